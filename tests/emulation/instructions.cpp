// What the lanes of a warp do together, and numbers of 16 and 8 bits.
#include "emulator.h"

namespace emulator {

void exchange(Lane *lanes) {
  for (int lane = 0; lane < kLanes; lane++) memcpy(lanes[lane].to, lanes[lane ^ lanes[lane].number].from, 4);
}

// Four matrices of 8 x 8 elements of 16 bits: lane 8 m + r points at row r of matrix m.
void load_matrices(Lane *lanes) {
  for (int lane = 0; lane < kLanes; lane++) offset_in_shared(lanes[lane].from, 16);
  for (int lane = 0; lane < kLanes; lane++) {
    for (int m = 0; m < 4; m++) {
      const uchar *row = static_cast<const uchar *>(lanes[m * 8 + lane / 4].from);
      memcpy(static_cast<uint *>(lanes[lane].to) + m, row + lane % 4 * 4, 4);
    }
  }
}

void load_transposed(Lane *lanes) {
  for (int lane = 0; lane < kLanes; lane++) offset_in_shared(lanes[lane].from, 16);
  for (int lane = 0; lane < kLanes; lane++) {
    for (int i = 0; i < 8; i++) {
      const uint16_t *row = static_cast<const uint16_t *>(lanes[i / 2 * 8 + lane % 4 * 2 + i % 2].from);
      static_cast<uint16_t *>(lanes[lane].to)[i] = row[lane / 4];
    }
  }
}

namespace {

// mma.m16n8k16: where lanes have what is said in the PTX ISA, section "Matrix Fragments for mma.m16n8k16".
template <typename ToFloat> void multiply(Lane *lanes, ToFloat to_float) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; lane++) {
    const int group = lane / 4, pair = lane % 4 * 2;
    const uint16_t *of_a = static_cast<const uint16_t *>(lanes[lane].from);
    const uint16_t *of_b = static_cast<const uint16_t *>(lanes[lane].other);
    for (int i = 0; i < 8; i++) a[group + i / 2 % 2 * 8][pair + i % 2 + i / 4 * 8] = to_float(of_a[i]);
    for (int i = 0; i < 4; i++) b[pair + i % 2 + i / 2 * 8][group] = to_float(of_b[i]);
  }
  float c[16][8] = {};
  for (int row = 0; row < 16; row++) {
    for (int k = 0; k < 16; k++) {
      for (int column = 0; column < 8; column++) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kLanes; lane++) {
    float *of_c = static_cast<float *>(lanes[lane].to);
    for (int i = 0; i < 4; i++) of_c[i] += c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

float bits_to_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

struct Halves {
  float of[1 << 16];
  Halves() {
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
      const uint32_t sign = bits >> 15 << 31, exponent = bits >> 10 & 31, fraction = bits & 1023;
      if (exponent == 0) {
        of[bits] = std::copysign(std::ldexp(float(fraction), -24), bits_to_float(sign));
      } else {
        of[bits] = bits_to_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
      }
    }
  }
};
const Halves halves;

}  // namespace

void multiply_halves(Lane *lanes) {
  multiply(lanes, [](uint16_t bits) { return halves.of[bits]; });
}

void multiply_bfloats(Lane *lanes) {
  multiply(lanes, [](uint16_t bits) { return bits_to_float(uint32_t(bits) << 16); });
}

float half_to_float(uint16_t bits) { return halves.of[bits]; }

uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7FFF;
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // 65520 and more
  if (magnitude < 0x38800000) {                       // below 2 ** -14: multiples of 2 ** -24, rounded by the sum
    const float shifted = bits_to_float(magnitude) + 0.5f;
    return sign | (float_to_bits(shifted) - 0x3F000000);
  }
  return sign | (magnitude - (112 << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
}

float bfloat_to_float(uint16_t bits) { return bits_to_float(uint32_t(bits) << 16); }

uint16_t float_to_bfloat(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

float e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float sign = bits & 128 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return NAN;
  return sign * (exponent == 0 ? std::ldexp(float(fraction), -9) : std::ldexp(float(8 + fraction), exponent - 10));
}

}  // namespace emulator
