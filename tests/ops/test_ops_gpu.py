"""The ops as a user calls them, on a GPU: right against float64, one build for all lengths, keyed on what matters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.kernels.support import rounding_unit
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


def drawn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=CUDA, dtype=torch.float32).to(dtype)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softcap: float = 0.0) -> torch.Tensor:
    """One query a sequence, in float64."""
    group = q.shape[2] // k.shape[2]
    keys, values = (t.double().repeat_interleave(group, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), keys) / q.shape[3] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Within a few roundings of the dtype, relative to the largest result."""
    error = (found.double() - expected).abs().max() / expected.abs().max()
    return bool(error <= 4 * rounding_unit(found.dtype))


def decode_inputs(batch: int, heads: int, heads_kv: int, dim: int, keys: int, dtype: torch.dtype) -> Any:
    q = drawn(batch, 1, heads, dim, dtype=dtype, seed=keys)
    k = drawn(batch, keys, heads_kv, dim, dtype=dtype, seed=keys + 1)
    v = drawn(batch, keys, heads_kv, dim, dtype=dtype, seed=keys + 2)
    return q, k, v


@pytest.mark.parametrize(
    ("batch", "heads", "heads_kv", "keys", "key"),
    [
        (1, 32, 4, 4096, "gqa_dense_decode_long_context"),
        (1, 32, 4, 1024, "gqa_dense_decode_long_context"),
        (1, 32, 4, 1023, "gqa_dense_decode_bs1"),
        (1, 40, 8, 1, "gqa_dense_decode_bs1"),
        (3, 28, 4, 777, "gqa_dense_decode"),
    ],
)
def test_decode_takes_the_kernel_of_its_region_and_is_right(
    batch: int, heads: int, heads_kv: int, keys: int, key: str
) -> None:
    op = GQADenseFwdOp(is_causal=True)
    q, k, v = decode_inputs(batch, heads, heads_kv, 128, keys, torch.float16)
    call = AttentionCall(batch, heads, heads_kv, 128, 1, keys, torch.float16, is_causal=True, device=CUDA)
    if torch.cuda.get_device_capability(CUDA) == (9, 0):
        assert op.key_for("gqa_dense", call) == key
    assert close(op(q, k, v), attended(q, k, v))


def test_every_implementation_that_serves_a_call_agrees() -> None:
    op = GQADenseFwdOp()
    q, k, v = decode_inputs(1, 32, 4, 128, 2050, torch.float16)
    call = AttentionCall(1, 32, 4, 128, 1, 2050, torch.float16, device=CUDA)
    expected = attended(q, k, v)
    said = op.explain("gqa_dense", call).entries
    serving = [entry.key for entry in said if entry.status in ("chosen", "loses")]
    assert len(serving) >= 2
    for key in serving:
        assert close(op.kernel_for("gqa_dense", call, key=key)(q, k, v), expected), key


def test_a_decode_loop_over_8192_lengths_builds_one_kernel_a_region() -> None:
    op = GQADenseFwdOp(is_causal=True)
    q, k, v = decode_inputs(1, 32, 4, 128, 8192, torch.float16)
    for keys in range(1, 8193):
        out = op(q, k[:, :keys], v[:, :keys])
        if keys in (1, 127, 128, 129, 1023, 1024, 1025, 4097, 8192):
            assert close(out, attended(q, k[:, :keys], v[:, :keys])), keys
    assert op.cache_info().builds <= 2


def test_calls_that_differ_in_one_field_do_not_share_a_kernel() -> None:
    inputs = {dtype: decode_inputs(2, 8, 2, 64, 300, dtype) for dtype in (torch.float16, torch.bfloat16)}
    ops = [(GQADenseFwdOp(softcap=cap), cap) for cap in (0.0, 0.5)]
    for _ in range(2):
        for (op, cap), (q, k, v) in itertools.product(ops, inputs.values()):
            assert close(op(q, k, v), attended(q, k, v, cap))


def test_a_call_that_differs_in_one_field_and_the_first_again_are_each_right() -> None:
    """Sizes, dtype and parameters, through the caches of one object for each set of parameters."""
    sizes = {"batch": 2, "heads": 8, "heads_kv": 2, "dim": 64, "keys": 300, "dtype": torch.float16}
    changes = {"batch": 1, "heads": 10, "heads_kv": 4, "dim": 128, "keys": 301, "dtype": torch.bfloat16}
    op = GQADenseFwdOp()
    first = decode_inputs(**sizes)
    for field, value in changes.items():
        other = decode_inputs(**{**sizes, field: value})
        for q, k, v in (first, other, first):
            assert close(op(q, k, v), attended(q, k, v)), field
    norm, coarse = LayerNormFwdOp(), LayerNormFwdOp(eps=0.5)
    for x in (drawn(4, n, dtype=dtype, seed=n) for n in (64, 65) for dtype in (torch.float32, torch.float16)):
        for each in (norm, coarse, norm):
            weight = torch.ones(x.shape[-1:], dtype=x.dtype, device=CUDA)
            expected = torch.nn.functional.layer_norm(x.double(), x.shape[-1:], eps=each.eps)
            assert close(each(x, weight), expected)


class TestCompiled:
    @pytest.fixture(autouse=True)
    def fresh_dynamo(self) -> Any:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
    def test_a_decode_loop_is_one_graph_and_a_build_a_region(self, mode: str) -> None:
        op = GQADenseFwdOp(is_causal=True)
        step = torch.compile(lambda q, k, v: op(q * 0.5, k, v) + 1, fullgraph=True, dynamic=True, mode=mode)
        q, k, v = decode_inputs(1, 32, 4, 128, 2048, torch.float16)
        with torch.no_grad():
            for keys in (700, 701, 1023, 1024, 1025, 2048, 700):
                expected = attended(q * 0.5, k[:, :keys], v[:, :keys]) + 1
                assert close(step(q, k[:, :keys].clone(), v[:, :keys].clone()), expected), keys
        assert op.cache_info().builds <= 2

    def test_a_refused_call_raises_out_of_a_graph_that_goes_on(self) -> None:
        op = GQADenseFwdOp(is_causal=True)
        step = torch.compile(lambda q, k, v: op(q * 0.5, k, v) + 1, fullgraph=True, dynamic=True)
        q, k, v = decode_inputs(1, 32, 4, 128, 700, torch.float16)
        with torch.no_grad():
            for _ in range(2):
                assert close(step(q, k, v), attended(q * 0.5, k, v) + 1)
                with pytest.raises(ValueError, match="dim 72"):
                    step(q[..., :72], k[..., :72], v[..., :72])

    def test_empty_tensors_and_many_rows_through_one_function(self) -> None:
        op = LayerNormFwdOp(512)
        function = torch.compile(lambda x: op(x.relu()) * 2, fullgraph=True, dynamic=True)
        for rows in (5, 0, 64, 0, 1, 4096):
            x = drawn(rows, 512, dtype=torch.bfloat16, seed=rows)
            torch.testing.assert_close(function(x), op(x.relu()) * 2)
        assert op.cache_info().builds == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 7, 256, 769, 4096, 65537])
def test_layer_norm_is_right_for_inputs_of_any_layout(n: int, dtype: torch.dtype) -> None:
    op = LayerNormFwdOp(n)
    weight, bias = drawn(n, dtype=dtype, seed=1), drawn(n, dtype=dtype, seed=2)
    wide = drawn(6, n + 3, dtype=dtype, seed=3)
    layouts = [
        wide[:, :n],
        wide[:, 1 : n + 1],
        drawn(n, 6, dtype=dtype, seed=4).t(),
        drawn(2, 3, n, dtype=dtype, seed=5),
    ]
    for x in layouts:
        expected = torch.nn.functional.layer_norm(x.double(), (n,), weight.double(), bias.double())
        error = (op(x, weight, bias).double() - expected).abs().max()
        assert error <= 8 * rounding_unit(dtype) * (1 + expected.abs().max())


def test_a_weight_and_bias_left_out_are_ones_and_zeros() -> None:
    x = drawn(5, 320, dtype=torch.float32, seed=0)
    expected = torch.nn.functional.layer_norm(x.double(), (320,))
    assert (LayerNormFwdOp(320)(x).double() - expected).abs().max() < 1e-5


def test_an_empty_input_launches_nothing() -> None:
    op = LayerNormFwdOp(64)
    assert op(torch.empty(0, 64, device=CUDA)).shape == (0, 64)
    assert op.cache_info().builds == 0


def test_a_prefill_is_refused_with_every_reason() -> None:
    q = torch.zeros(1, 4, 8, 64, device=CUDA, dtype=torch.float16)
    with pytest.raises(ValueError, match="no implementation serves this call") as caught:
        GQADenseFwdOp()(q, q, q)
    assert "one query a sequence" in str(caught.value)
