"""The numbers of an op's caches: hits, misses, builds and evictions, and that nothing is built in the steady state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.speed import cpu_seconds, holds_within
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeBs1Kernel, GQADecodeKernel, GQADecodeLongContextKernel
from tileops.kernels.attention.gqa.decode_kernel import DecodeKernel
from tileops.ops import GQADenseFwdOp, dispatch


def by_parity(cls: Any, call: Any) -> Any:
    """One build for even n and one for odd n."""
    return call.n % 2, lambda: cls(call)


def test_the_numbers_tell_hits_misses_builds_and_what_is_held(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel(entry_for=classmethod(by_parity))})()
    for _ in range(3):
        for n in range(10):
            op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))
    info = op.cache_info()
    assert (info.hits, info.misses, info.builds) == (20, 10, 2)
    assert (info.calls, info.entries, info.evictions) == (10, 2, 0)


def test_in_the_steady_state_of_a_growing_length_nothing_is_built(
    two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GQADecodeKernel, "__init__", lambda self, build: None)
    op = GQADenseFwdOp()

    def ask(lengths: range, device: Any) -> None:
        for length in lengths:
            op.kernel_for("gqa_dense", AttentionCall(heads=32, heads_kv=4, dim=128, seqlen_kv=length, device=device))

    for device in two_devices:
        ask(range(1, 4097), device)
    warm = op.cache_info()
    for device in two_devices:
        ask(range(4097, 8193), device)
        ask(range(8048, 8193), device)
    info = op.cache_info()
    assert (info.builds, info.evictions, info.entries) == (warm.builds, 0, warm.builds)
    assert info.misses - warm.misses == 2 * 4096
    assert info.hits - warm.hits == 2 * 145


def test_a_decode_loop_of_ten_thousand_steps_asks_rules_at_its_borders_alone(
    two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DecodeKernel, "__init__", lambda self, build: None)
    op = GQADenseFwdOp(is_causal=True)

    def step(length: int) -> Any:
        facts = 1, 32, 4, 128, 1, torch.float16, two_devices[0]
        return op.kernel_along(
            "gqa_dense", facts, length, lambda: op._call(1, 32, 4, 128, 1, length, torch.float16, two_devices[0])
        )

    kinds = [type(step(length)) for length in (1, 1023, 1024, 4095, 4096, 65_535, 65_536, 100_000)]
    assert kinds == [GQADecodeBs1Kernel] * 2 + [GQADecodeLongContextKernel] * 6
    warm = op.cache_info()
    assert (warm.misses, warm.builds) == (4, 3)
    for length in range(60_000, 70_000):
        step(length)
    info = op.cache_info()
    assert (info.misses, info.builds, info.calls) == (warm.misses, warm.builds, warm.calls)
    assert len(op._spans) == 1
    steps = range(60_000, 70_000)
    holds_within(5e-6, lambda: cpu_seconds(lambda: [step(length) for length in steps]) / len(steps))


def test_calls_that_raise_and_questions_count_as_no_hit(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel()})()
    call = toys.Call(n=3, device=two_devices[0])
    op.kernel_for("toy", call)
    op.key_for("toy", call)
    op.explain("toy", call)
    op.kernel_for("toy", call, key="one")
    with pytest.raises(TypeError, match="states"):
        op.kernel_for("toy", toys.Call(n=3, arch=90, device=two_devices[0]))
    assert op.cache_info().hits == 0
    op.kernel_for("toy", call)
    assert op.cache_info().hits == 1


def test_at_the_bound_kernels_are_dropped_and_counted_and_the_choice_stays(toys: Any, two_devices: Any) -> None:
    op = toys.op({"low": toys.kernel("Low", serves=lambda c: c.n < 1000), "all": toys.kernel("All", general=True)})()
    for n in [*range(dispatch.MOST_ENTRIES + 10), 0]:
        assert type(op.kernel_for("toy", toys.Call(n=n, device=two_devices[0]))).__name__ == "Low"
    info = op.cache_info()
    assert info.evictions > 0
    assert info.builds == info.entries + info.evictions
    assert info.entries <= info.most_entries
    assert info.hits + info.misses == dispatch.MOST_ENTRIES + 11
