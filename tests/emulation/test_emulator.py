"""The emulator sees what a GPU may do wrong: each barrier, wait and group of copies that a kernel cannot do without."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch

from tests.emulation.harness import SCHEDULES, EmulationError, Emulator, Schedule
from tests.emulation.test_decode_emulated import CPU, launched, made_for
from tests.kernels.decode_support import tensors

pytestmark = pytest.mark.compile

FAULTS: dict[str, tuple[str, str, str]] = {
    "keys are not waited for": (r"tl::cp_async_wait<\d+>\(\);(?=\s*__syncwarp\(\);\s*#pragma)", "", "8 heads of 128"),
    "values are not waited for": (r"tl::cp_async_wait<\d+>\(\);(?=\s*__syncwarp\(\);\s*slot)", "", "8 heads of 128"),
    "one group too many runs ahead": (r"cp_async_wait<3>", "cp_async_wait<4>", "8 heads of 128"),
    "lanes do not meet after their wait": (r"(?<=cp_async_wait<3>\(\);)\s*__syncwarp\(\);", "", "8 heads of 128"),
    "warps do not meet before they add": (r"__syncthreads\(\);", "", "8 heads of 128"),
    "a counter stays": (r"counters\[counter\] = 0;", "", "8 heads of 128"),
    "the last part is not waited for": (r"== \(run_to - run_from\)", "== (run_to - run_from - 1)", "8 heads of 128"),
    "rows are written to the wrong part": (r"condval_2 = 1;", "condval_2 = 0;", "8 heads of 128"),
    "blocks do not meet": (r"tl::cluster_sync\(\);", "", "8 heads of 128 in clusters"),
    "blocks do not wait": (r"tl::cluster_wait\(\);", "", "8 heads of 128 in clusters"),
    "warps that share keys do not meet": (r"tl::__sync_thread_partial\(.*\);", "", "17 heads of 80"),
    "warps that share keys wait for one more": (r"(__sync_thread_partial\(.*), 64\);", r"\1, 96);", "17 heads of 80"),
}
"""What is replaced, by what, in which build: everywhere at once."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(emulator: Emulator, fault: str) -> None:
    pattern, instead, name = FAULTS[fault]
    kernel, call = made_for(emulator, name, batch=3, seqlen_kv=1025)
    q, k, v = tensors(call, device=CPU)
    right = launched(kernel, call, 12, q, k, v)
    source, found = re.subn(pattern, instead, kernel.attend.source)
    assert found
    faulty = type(kernel)(kernel.build)
    faulty.attend = kernel.attend.altered(source)
    faulty.launch = faulty.attend.launch
    seen = []
    for schedule in (Schedule(), *SCHEDULES.values()):
        with emulator.scheduled(schedule):
            try:
                seen.append(not torch.equal(launched(faulty, call, 12, q, k, v), right))
            except (AssertionError, EmulationError):
                seen.append(True)
    assert any(seen)


CONVERSIONS = """#include "emulator.h"
extern "C" void run_kernel(void **given) {
  const float *from = static_cast<float *>(given[0]);
  half_t *halves = static_cast<half_t *>(given[1]);
  bfloat16_t *bfloats = static_cast<bfloat16_t *>(given[2]);
  float *back = static_cast<float *>(given[3]);
  for (int i = 0; i < 1 << 20; i++) halves[i] = from[i], bfloats[i] = from[i];
  for (int i = 0; i < 1 << 16; i++) back[i] = half_t(reinterpret_cast<half_t *>(given[4])[i]);
  for (int i = 0; i < 1 << 8; i++) back[(1 << 16) + i] = static_cast<fp8_e4_t *>(given[5])[i];
}
"""


def test_numbers_are_converted_as_torch_converts_them(emulator: Emulator) -> None:
    draw = torch.Generator().manual_seed(0)
    near = torch.randint(0, 1 << 16, (1 << 19,), generator=draw, dtype=torch.int32).to(torch.int16).view(torch.float16)
    ties = near.float() + 2.0 ** torch.randint(-26, 5, near.shape, generator=draw)
    bits = torch.randint(-(2**31), 2**31, (1 << 19,), generator=draw, dtype=torch.int64).to(torch.int32)
    numbers = torch.cat([ties, bits.view(torch.float32)])
    halves, bfloats = torch.empty(1 << 20, dtype=torch.float16), torch.empty(1 << 20, dtype=torch.bfloat16)
    back = torch.empty((1 << 16) + 256)
    all_halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    all_e4m3 = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn)
    given = [each.data_ptr() for each in (numbers, halves, bfloats, back, all_halves, all_e4m3)]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(emulator.built(CONVERSIONS))((ctypes.c_void_p * 6)(*given))
    for found, right in (
        (halves, numbers.to(torch.float16)),
        (bfloats, numbers.to(torch.bfloat16)),
        (back, torch.cat([all_halves.float(), all_e4m3.float()])),
    ):
        assert torch.equal(found.isnan(), right.isnan())
        assert torch.equal(found.nan_to_num(nan=0.0), right.nan_to_num(nan=0.0))
