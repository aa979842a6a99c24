"""The references against torch's own functions and against loops written out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tileops.reference
from tileops.backend import BackendError, register_kernel_type
from tileops.backend.registry import registrations, sandbox
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.reference import REFERENCES, GQADenseReferenceKernel, LayerNormReferenceKernel
from tileops.reference.attention import gqa_dense, visible_keys
from tileops.reference.norm import layer_norm

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def kernel(cls: Any, call: Any) -> Any:
    assert cls.refusal(call) is None
    return cls.entry_for(call)[1]()


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + len(shape))).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 769])
def test_layer_norm_is_torchs_rounded_once(n: int, dtype: torch.dtype) -> None:
    x, weight, bias = draw(5, n, dtype=dtype), draw(n, dtype=dtype, seed=1), draw(n, dtype=dtype, seed=2)
    out = kernel(LayerNormReferenceKernel, LayerNormCall(n=n, eps=1e-3, dtype=dtype))(x, weight, bias)
    expected = torch.nn.functional.layer_norm(x.double(), (n,), weight.double(), bias.double(), 1e-3)
    assert out.dtype == dtype
    assert torch.allclose(out.double(), expected, rtol=torch.finfo(dtype).eps / 2, atol=1e-12)


def test_layer_norm_takes_rows_over_several_axes_and_writes_nothing() -> None:
    x, weight, bias = draw(2, 3, 4, 5), draw(4, 5, seed=1), draw(4, 5, seed=2)
    held = x.clone()
    out = kernel(LayerNormReferenceKernel, LayerNormCall(n=20, dtype=torch.float32))(x, weight, bias)
    expected = torch.nn.functional.layer_norm(x, (4, 5), weight, bias, 1e-5)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(x, held)
    assert out.data_ptr() != x.data_ptr()


def test_layer_norm_of_nothing_is_nothing() -> None:
    empty = torch.empty(0)
    assert layer_norm(torch.empty(3, 0), empty, empty, 0, 1e-5).shape == (3, 0)
    assert layer_norm(torch.empty(0, 4), torch.ones(4), torch.ones(4), 4, 1e-5).shape == (0, 4)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_layer_norm_lets_a_bad_element_spoil_its_row_alone(poison: float) -> None:
    x = draw(3, 8)
    x[1, 2] = poison
    out = layer_norm(x, torch.ones(8), torch.zeros(8), 8, 1e-5)
    assert out[1].isnan().all()
    assert not out[[0, 2]].isnan().any()


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, call: AttentionCall) -> torch.Tensor:
    """Attention one query at a time, from the words of the interface."""
    batch, queries, heads, dim = q.shape
    keys = k.shape[1]
    out = torch.zeros(q.shape, dtype=torch.float64)
    scale = 1 / math.sqrt(dim) if call.sm_scale is None else call.sm_scale
    for b in range(batch):
        for i in range(queries):
            position = keys - queries + i
            seen = [
                j
                for j in range(keys)
                if (not call.is_causal or j <= position)
                and (call.window_size_left == -1 or j >= position - call.window_size_left)
                and (call.window_size_right == -1 or j <= position + call.window_size_right)
            ]
            for h in range(heads if seen else 0):
                shared = h // (heads // k.shape[2])
                scores = [float(q[b, i, h].double() @ k[b, j, shared].double()) * scale for j in seen]
                if call.softcap:
                    scores = [call.softcap * math.tanh(score / call.softcap) for score in scores]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                total = sum(weights)
                for j, weight in zip(seen, weights, strict=True):
                    out[b, i, h] += weight / total * v[b, j, shared].double()
    return out


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"is_causal": True},
        {"sm_scale": 0.7},
        {"softcap": 1.5},
        {"window_size_left": 2},
        {"window_size_right": 1},
        {"is_causal": True, "window_size_left": 1, "softcap": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (3, 6), (6, 6), (5, 3)])
def test_attention_is_what_the_interface_says(fields: dict[str, Any], queries: int, keys: int) -> None:
    call = AttentionCall(
        batch=2,
        heads=6,
        heads_kv=2,
        dim=8,
        max_seqlen_q=queries,
        seqlen_kv=keys,
        dtype=torch.float32,
        **fields,
    )
    q, k, v = draw(2, queries, 6, 8), draw(2, keys, 2, 8, seed=1), draw(2, keys, 2, 8, seed=2)
    out = kernel(GQADenseReferenceKernel, call)(q, k, v)
    assert out.dtype == torch.float32
    assert torch.allclose(out.double(), by_hand(q, k, v, call), atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_agrees_with_torch(dtype: torch.dtype) -> None:
    q, k, v = (
        draw(2, 7, 8, 16, dtype=dtype),
        draw(2, 7, 2, 16, dtype=dtype, seed=1),
        draw(2, 7, 2, 16, seed=2).to(dtype),
    )
    call = AttentionCall(batch=2, heads=8, heads_kv=2, dim=16, max_seqlen_q=7, seqlen_kv=7, dtype=dtype, is_causal=True)
    out = kernel(GQADenseReferenceKernel, call)(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(t.double().transpose(1, 2) for t in (q, k, v)), is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    assert torch.allclose(out.double(), expected, rtol=torch.finfo(dtype).eps / 2, atol=1e-10)


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    q, none = draw(2, 1, 4, 8), torch.empty(2, 0, 2, 8)
    assert torch.equal(gqa_dense(q, none, none), torch.zeros(2, 1, 4, 8, dtype=torch.float64))
    q, k = draw(1, 4, 2, 8), draw(1, 2, 2, 8)
    out = gqa_dense(q, k, k, is_causal=True)
    assert torch.equal(out[:, :2], torch.zeros(1, 2, 2, 8, dtype=torch.float64))
    assert not out[:, 2:].eq(0).all()


def test_a_hidden_key_cannot_spoil_a_query_and_a_seen_one_does() -> None:
    q, k, v = draw(1, 3, 2, 8), draw(1, 3, 2, 8, seed=1), draw(1, 3, 2, 8, seed=2)
    k[0, 2, 1] = math.nan
    out = gqa_dense(q, k, v, is_causal=True)
    assert not out[:, :2].isnan().any()
    assert out[:, 2, 1].isnan().all()
    assert not out[:, 2, 0].isnan().any()


def test_queries_stand_at_the_end_of_their_sequence() -> None:
    seen = visible_keys(2, 4, is_causal=True)
    assert seen.tolist() == [[True, True, True, False], [True, True, True, True]]
    seen = visible_keys(2, 4, window_size_left=1, window_size_right=0)
    assert seen.tolist() == [[False, True, True, False], [False, False, True, True]]


def test_calls_that_differ_in_shape_alone_share_a_build() -> None:
    calls = [AttentionCall(seqlen_kv=n, batch=n) for n in (1, 2, 9)]
    assert len({GQADenseReferenceKernel.entry_for(call)[0] for call in calls}) == 1
    plain = GQADenseReferenceKernel.entry_for(AttentionCall())[0]
    assert GQADenseReferenceKernel.entry_for(AttentionCall(softcap=1.0))[0] != plain
    assert GQADenseReferenceKernel.entry_for(AttentionCall(dtype=torch.bfloat16))[0] != plain


def test_installing_twice_registers_each_reference_once_through_the_public_door() -> None:
    with sandbox(empty=True):
        tileops.reference.install()
        tileops.reference.install()
        ops = dict.fromkeys(op for op, _, _ in REFERENCES)
        found = [(each.op_name, each.key, each.kernel) for op in ops for each in registrations(op)]
        assert found == list(REFERENCES)
    assert all(cls.devices == frozenset({"cpu"}) for _, _, cls in REFERENCES)


def test_a_key_that_somebody_else_took_is_an_error_naming_both() -> None:
    op_name, key, _ = REFERENCES[0]
    with sandbox(empty=True):
        register_kernel_type(op_name, key, GQADenseReferenceKernel)
        with pytest.raises(BackendError, match=key):
            tileops.reference.install()
