"""What attention is measured against, on the same tensors: torch's two backends and flashinfer.

A peer's call gives the result of ours, ``(batch, queries, heads, dim)``, or there is a reason why there is none.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from attention_case import AttentionCase, Inputs
from timing import CUDA, Work, reason_of
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

PEERS: Final = ("cudnn", "flash", "flashinfer")
PAGE: Final = 64
"""Keys of a page of flashinfer's caches."""
WORKSPACE_BYTES: Final = 256 * 2**20
BUILT_DIM: Final = 128
"""The head size that flashinfer is built for: each of its kernels takes a compiler a minute or more."""


def peers_of(case: AttentionCase, inputs: Inputs) -> dict[str, Work | str]:
    """By name a call, or why there is none."""
    return {
        "cudnn": torch_peer(SDPBackend.CUDNN_ATTENTION, case, inputs),
        "flash": torch_peer(SDPBackend.FLASH_ATTENTION, case, inputs),
        "flashinfer": flashinfer_peer(case, inputs),
    }


def torch_peer(backend: SDPBackend, case: AttentionCase, inputs: Inputs) -> Work | str:
    """Attention of torch through one of its backends."""
    if case.is_fp8:
        return "torch attends to float8 through flash-attn 3 alone, which is a package of its own"
    if case.window >= 0:
        return "scaled_dot_product_attention has no windows"
    q, k, v = (each.transpose(1, 2) for each in inputs[:3])

    def work() -> torch.Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=case.is_causal, enable_gqa=True).transpose(1, 2)

    return work


def flashinfer_peer(case: AttentionCase, inputs: Inputs) -> Work | str:
    """flashinfer's attention for such a call; planning is no part of it."""
    try:
        import flashinfer
    except ImportError as error:
        return f"flashinfer does not import: {error}"
    if case.dim != BUILT_DIM:
        return f"flashinfer is built for heads of {BUILT_DIM} alone here"
    made = paged_decode if case.queries == 1 else single_prefill if case.batch == 1 else ragged_prefill
    try:
        return made(flashinfer, case, inputs)
    except Exception as error:  # noqa: BLE001 - that flashinfer plans or builds no such call is a result
        return reason_of(error)


@functools.cache
def workspace() -> torch.Tensor:
    """What flashinfer's wrappers share, one at a time."""
    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=CUDA)


def steps_of(case: AttentionCase, length: int) -> torch.Tensor:
    """Where each sequence starts among *length* of each, and where the last one ends."""
    return torch.arange(case.batch + 1, dtype=torch.int32, device=CUDA) * length


def paged_decode(flashinfer: Any, case: AttentionCase, inputs: Inputs) -> Work | str:
    """One query a sequence over pages that lie in order: the tensors of ours, seen as pages.

    Of float8 keys and values its tensor-core kernels take 16-bit queries, and one scale for all heads.
    """
    if case.keys % PAGE:
        return f"{case.keys} keys are not whole pages of {PAGE}"
    pages = case.keys // PAGE
    cache = tuple(each.view(-1, PAGE, case.heads_kv, case.dim) for each in (inputs.k, inputs.v))
    query = inputs.q.to(case.out_dtype)[:, 0]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", use_tensor_cores=True)
    wrapper.plan(
        steps_of(case, pages),
        torch.arange(case.batch * pages, dtype=torch.int32, device=CUDA),
        torch.full((case.batch,), PAGE, dtype=torch.int32, device=CUDA),
        case.heads,
        case.heads_kv,
        case.dim,
        PAGE,
        q_data_type=query.dtype,
        kv_data_type=case.dtype,
        o_data_type=case.out_dtype,
    )
    return lambda: wrapper.run(query, cache)[:, None]


def single_prefill(flashinfer: Any, case: AttentionCase, inputs: Inputs) -> Work:
    """The queries of one sequence."""
    q, k, v = (each[0] for each in inputs[:3])
    more: dict[str, Any] = {}
    if case.is_fp8:
        names = ("scale_q", "scale_k", "scale_v")
        more = {name: scale[0] for name, scale in zip(names, inputs.scales, strict=True)}
    attend = flashinfer.single_prefill_with_kv_cache
    more.update(causal=case.is_causal, window_left=case.window, o_dtype=case.out_dtype)
    return lambda: attend(q, k, v, **more)[None]


def ragged_prefill(flashinfer: Any, case: AttentionCase, inputs: Inputs) -> Work | str:
    """The queries of several sequences, one after the other."""
    if case.is_fp8:
        return "flashinfer's float8 prefill is measured for one sequence alone"
    q, k, v = (each.flatten(0, 1) for each in inputs[:3])
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD")
    wrapper.plan(
        steps_of(case, case.queries),
        steps_of(case, case.keys),
        case.heads,
        case.heads_kv,
        case.dim,
        causal=case.is_causal,
        window_left=case.window,
        q_data_type=case.dtype,
    )
    return lambda: wrapper.run(q, k, v).view(inputs.q.shape)
