"""Prefill by ``mma.sync`` as TileLang generates it, against float64 without a GPU, in any order of blocks and warps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.emulation.harness import SCHEDULES, Emulator
from tests.kernels.prefill_support import check, prompt, tensors
from tileops.kernels.attention.gqa.prefill import GQAPrefillMmaKernel

pytestmark = pytest.mark.compile

CPU = torch.device("cpu")
BUILDS: dict[str, tuple[int, dict[str, Any]]] = {
    "causal": (90, {"heads": 2, "heads_kv": 1}),
    "a window and a bound, bfloat16": (
        80, {"heads": 2, "heads_kv": 2, "dim": 64, "dtype": torch.bfloat16, "is_causal": False, "window_size_left": 40,
             "window_size_right": 5, "softcap": 3.0}
    ),
    "the smallest tile": (89, {"heads": 2, "heads_kv": 1, "dim": 256, "is_causal": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDS)
def test_every_length_in_every_order_matches_float64(emulator: Emulator, name: str) -> None:
    arch, fields = BUILDS[name]
    usual = prompt(**fields)
    kernel = emulator.build(GQAPrefillMmaKernel, usual, arch)
    for batch, queries, keys in ((1, 2, 1), (2, 70, 70), (1, 130, 200)):
        call = dataclasses.replace(usual, batch=batch, max_seqlen_q=queries, seqlen_kv=keys)
        made = tensors(call, device=CPU)
        first = kernel(*made)
        check(call, first, *made)
        for order, schedule in SCHEDULES.items():
            with emulator.scheduled(schedule):
                assert torch.equal(kernel(*made), first), (call, order)
