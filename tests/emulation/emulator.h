// What CUDA source that TileLang generates needs to run as plain C++: see harness.py for what this is and is not.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__  // what a fibre is given is written by others while it waits
#define CUDART_INF_F INFINITY
#define threadIdx (emulator::current->thread_index)
#define blockIdx (emulator::current->block_index)

using uint = unsigned;
using uchar = unsigned char;

namespace emulator {

constexpr int kLanes = 32;

struct Index {
  unsigned x, y, z;
};

// What the running fibre is, as a kernel sees it.
struct Thread {
  Index thread_index, block_index;
  uchar *shared;
};
extern Thread *current;

// What one lane brings to an instruction of its warp: all lanes come before it is carried out, for all of them.
struct Lane {
  const void *from;
  const void *other;
  void *to;
  int number;
};
using Together = void (*)(Lane *lanes);
void together(const char *name, Together carry_out, Lane mine);

[[noreturn]] void fail(const char *what);
void sync_warp();
void sync_block(int barrier, int threads);
void arrive_at_cluster();
void wait_for_cluster();
void *shared_of(void *mine, int rank);
void copy(void *to, const void *from, int bytes);
void commit_copies();
void wait_for_copies(int newest);
int add_atomically(int *to, int what);
// Where it lies in the shared memory of its block; fails where it does not, or at no multiple of *bytes*.
size_t offset_in_shared(const void *address, int bytes);

void load_matrices(Lane *lanes);
void load_transposed(Lane *lanes);
void exchange(Lane *lanes);
void multiply_halves(Lane *lanes);
void multiply_bfloats(Lane *lanes);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);
float e4m3_to_float(uint8_t bits);

}  // namespace emulator

// Numbers.

struct half_t {
  uint16_t bits;
  half_t() = default;
  half_t(float value) : bits(emulator::float_to_half(value)) {}
  operator float() const { return emulator::half_to_float(bits); }
};
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  bfloat16_t(float value) : bits(emulator::float_to_bfloat(value)) {}
  operator float() const { return emulator::bfloat_to_float(bits); }
};
struct fp8_e4_t {
  uint8_t bits;
  operator float() const { return emulator::e4m3_to_float(bits); }
};

struct uint1 { uint x; };
struct uint2 { uint x, y; };
struct uint4 { uint x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct half2 { half_t x, y; };
struct __nv_bfloat162 { bfloat16_t x, y; };
struct fp8_e4_2_t { fp8_e4_t x, y; };
using __nv_fp8x2_storage_t = uint16_t;
enum __nv_fp8_interpretation_t { __NV_E4M3 };

inline uint1 make_uint1(uint x) { return {x}; }
inline uint2 make_uint2(uint x, uint y) { return {x, y}; }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint __pack_half2(half_t x, half_t y) { return x.bits | uint(y.bits) << 16; }
inline uint __pack_nv_bfloat162(bfloat16_t x, bfloat16_t y) { return x.bits | uint(y.bits) << 16; }
inline half2 __float22half2_rn(float2 from) { return {from.x, from.y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 from) { return {from.x, from.y}; }
inline half2 __tl_cvt_fp8x2_to_half2(__nv_fp8x2_storage_t from, __nv_fp8_interpretation_t) {
  return {emulator::e4m3_to_float(from & 255), emulator::e4m3_to_float(from >> 8)};
}

inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }

// What threads do together.

inline void __syncwarp() { emulator::sync_warp(); }
inline void __syncthreads() { emulator::sync_block(0, 0); }

template <typename T> T __shfl_xor_sync(uint, T value, int mask, int = emulator::kLanes) {
  static_assert(sizeof(T) == 4, "a shuffle of 32 bits");
  T other;
  emulator::together("shuffle", emulator::exchange, {&value, nullptr, &other, mask});
  return other;
}

inline int AtomicAddRet(int *to, int what, int) { return emulator::add_atomically(to, what); }

namespace cooperative_groups {
struct cluster_group {
  template <typename T> T *map_shared_rank(T *mine, int rank) const {
    return static_cast<T *>(emulator::shared_of(mine, rank));
  }
};
inline cluster_group this_cluster() { return {}; }
}  // namespace cooperative_groups

namespace tl {

enum class DataType { kFloat16, kBFloat16, kFloat32 };

inline void __sync_thread_partial(int barrier, int threads) { emulator::sync_block(barrier, threads); }
inline void cluster_arrive() { emulator::arrive_at_cluster(); }
inline void cluster_arrive_relaxed() { emulator::arrive_at_cluster(); }
inline void cluster_wait() { emulator::wait_for_cluster(); }
inline void cluster_sync() {
  emulator::arrive_at_cluster();
  emulator::wait_for_cluster();
}

inline void cp_async_commit() { emulator::commit_copies(); }
template <int newest> void cp_async_wait() { emulator::wait_for_copies(newest); }
template <int bytes> void cp_async_gs(void *to, const void *from) { emulator::copy(to, from, bytes); }

template <int bytes> void cp_async_gs_conditional(void *to, const void *from, bool is_there) {
  emulator::copy(to, is_there ? from : nullptr, bytes);
}

struct MaxOp {
  float operator()(float a, float b) const { return max(a, b); }
};
struct SumOp {
  float operator()(float a, float b) const { return a + b; }
};
template <int threads> struct NamedBarrier {};
template <typename Op, int threads, int scale, int from, typename Barrier> struct AllReduce {
  static_assert(threads <= emulator::kLanes, "within a warp");
  static float run(float x) {
    for (int apart = threads / 2; apart >= scale; apart /= 2) x = Op()(x, __shfl_xor_sync(~0u, x, apart));
    return x;
  }
};

inline void ptx_ldmatrix_x4(const void *from, void *to) {
  emulator::together("ldmatrix", emulator::load_matrices, {from, nullptr, to, 0});
}
inline void ptx_ldmatrix_x4_trans(const void *from, void *to) {
  emulator::together("ldmatrix.trans", emulator::load_transposed, {from, nullptr, to, 0});
}

template <DataType a_type, DataType b_type, DataType c_type, int m, int n, int k, bool a_turned, bool b_turned>
void mma_sync(float *c, const uint *a, const uint *b) {
  static_assert(a_type == b_type && a_type != DataType::kFloat32 && c_type == DataType::kFloat32);
  static_assert(m == 16 && n == 8 && k == 16 && !a_turned && b_turned);
  if constexpr (a_type == DataType::kFloat16) {
    emulator::together("mma of float16", emulator::multiply_halves, {a, b, c, 0});
  } else {
    emulator::together("mma of bfloat16", emulator::multiply_bfloats, {a, b, c, 0});
  }
}

}  // namespace tl
