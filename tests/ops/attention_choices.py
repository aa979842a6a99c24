"""What attention is to choose, written out by hand as plain numbers: the contract that rules are held against."""

from __future__ import annotations

import torch

from tileops.kernels.attention.call_spec import AttentionCall

DECODE, BS1, LONG = "gqa_dense_decode", "gqa_dense_decode_bs1", "gqa_dense_decode_long_context"
LONG_CONTEXT = {"batch": 1, "heads": 32, "heads_kv": 4, "dim": 128, "dtype": torch.float16, "softcap": 0.0}

RING_SMEM = {
    # 128 rows of queries, as many of results where they have a place of their own, and rings of keys and values, of two
    # bytes an element, behind 1,024 bytes with the barriers
    64: 2 * 64 * (2 * 128 + 2 * 4 * 128) + 1024,
    80: 2 * 80 * (2 * 128 + 2 * 2 * 128) + 1024,
    96: 2 * 96 * (2 * 128 + 2 * 2 * 128) + 1024,
    128: 2 * 128 * (2 * 128 + 2 * 2 * 128) + 1024,
    192: 2 * 192 * (128 + 2 * 2 * 96) + 1024,
    256: 2 * 256 * (128 + 2 * 2 * 80) + 1024,
}
"""By head size: shared memory of a block of Hopper's prefill."""


FP8_SMEM = {
    # 128 rows of queries filled up to a multiple of 32, rings of keys as wide and of values, 128 rows of float32
    # results, behind 1,024 bytes with the barriers
    dim: 128 * wide + stages * keys * (wide + dim) + 128 * dim * 4 + 1024
    for dim, wide, keys, stages in (
        (64, 64, 224, 4),
        (80, 96, 224, 2),
        (96, 96, 224, 2),
        (128, 128, 192, 2),
        (192, 192, 128, 2),
        (256, 256, 64, 2),
    )
}
"""By head size: shared memory of a block of float8 prefill."""


def decode_smem(call: AttentionCall, *, clustered: bool) -> int:
    """The smallest block: one warp for each 16 of up to 64 query heads, and two stages of 16 keys and 16 values."""
    group = -(-call.heads // call.heads_kv)
    warps = 1 if group <= 16 else 2 if group <= 32 else 4
    item = 1 if call.is_fp8 else 2
    # results of all rows have to fit the place of the rings
    stages = max(2, warps * (2 if call.is_fp8 else 1))
    known = 4 * 16 * warps * 4 + 8 * 16 * warps * 4
    exchanged = 2 * 16 * warps * call.dim * 4 + 2 * 8 * 16 * warps * 4 if clustered else 0
    return 2 * stages * 16 * call.dim * item + known + exchanged + 8 * 128


def decode_served(call: AttentionCall, *, clustered: bool = False) -> bool:
    """What every decode kernel asks."""
    return (
        call.max_seqlen_q == 1
        and call.dtype in (torch.float16, torch.bfloat16)
        and call.dim in range(16, 257, 16)
        and decode_smem(call, clustered=clustered) <= (call.smem_budget or 0)
    )


def fp8_choice(call: AttentionCall) -> str | None:
    """The contract: decode on SM89 and SM90, the rest on SM90."""
    if call.arch in (89, 90) and decode_served(call):
        return "gqa_dense_fp8_decode"
    served = (
        call.arch == 90
        and call.dtype in (torch.float16, torch.bfloat16)
        and call.dim in FP8_SMEM
        and FP8_SMEM[call.dim] <= (call.smem_budget or 0)
    )
    return "gqa_dense_fp8" if served else None


def prefill_choice(call: AttentionCall) -> str | None:
    """The contract: several queries, or a left window; Hopper's where they fit, one of them for left windows."""
    budget = call.smem_budget or 0
    if call.arch in (80, 89, 90) and decode_served(call):
        return "gqa_dense_decode_sliding_window"
    served = (
        call.arch in (80, 89, 90)
        and not call.fuse_rope
        and call.dtype in (torch.float16, torch.bfloat16)
        and call.dim in RING_SMEM
        # 64 rows of queries, and two stages of 32 keys and 32 values, of two bytes an element
        and 2 * (64 + 2 * (32 + 32)) * call.dim <= budget
    )
    if not served:
        return None
    if call.arch != 90 or budget < RING_SMEM[call.dim]:
        return "gqa_dense_mma"
    return "gqa_dense" if call.window_size_left == -1 else "gqa_dense_sliding_window"


def gqa_choice(call: AttentionCall) -> str | None:
    """The contract: decode on SM80, SM89 and SM90; for one sequence on SM90 bs1 up to 65,535 keys; from 1,024 keys
    long-context. On SM90 both ask for the room of a cluster."""
    if call.is_fp8:
        return fp8_choice(call)
    if call.max_seqlen_q > 1 or call.window_size_left != -1:
        return prefill_choice(call)
    if call.arch not in (80, 89, 90):
        return None
    clustered = call.arch == 90
    single = not call.fuse_rope and call.batch == 1
    long = single and call.seqlen_kv > 1023 and all(getattr(call, name) == each for name, each in LONG_CONTEXT.items())
    if long and decode_served(call, clustered=clustered):
        return LONG
    if single and call.seqlen_kv < 65_536 and call.arch == 90 and decode_served(call, clustered=clustered):
        return BS1
    return DECODE if decode_served(call) else None


ATTENTION_FACES = [
    "arch == 90",
    "arch in (89, 90)",
    "arch in (80, 89, 90)",
    *(f"{name} == {value}" for name, value in (("batch", 1), ("max_seqlen_q", 1), ("window_size_left", -1))),
    *(f"{name} != {value}" for name, value in (("batch", 1), ("max_seqlen_q", 1), ("window_size_left", -1))),
    "is_fp8 == False",
    "is_fp8 == True",
    "is_fp8 != True",
    "fuse_rope == False",
    "fuse_rope != False",
    "dtype in (torch.bfloat16, torch.float16)",
    "dim >= 16",
    "dim >= 64",
    "dim <= 256",
    "dim % 16 == 0",
    *(f"dim == {dim}" for dim in RING_SMEM),
    *(f"dim != {dim}" for dim in RING_SMEM if dim != 256),
    *(f"smem_budget >= {smem}" for smem in {*RING_SMEM.values(), *FP8_SMEM.values()}),
    *(f"smem_budget <= {smem - 1}" for smem in RING_SMEM.values()),
    # the smallest tile of prefill
    "384*dim - smem_budget <= 0",
    # the smallest blocks of decode, of up to 16, 32 and 64 query heads: alone, where float8 asks for half as much of up
    # to 16 and else for what the one before asks, and in clusters
    *(f"{rows}*dim - smem_budget <= -{rest}" for rows, rest in ((64, 1792), (128, 1792), (128, 2560), (256, 4096))),
    *(f"{rows}*dim - smem_budget <= -{rest}" for rows, rest in ((256, 2816), (384, 4608), (768, 8192))),
    *(f"{rows}*dim - smem_budget >= -{rest}" for rows, rest in ((256, 2815), (384, 4607), (768, 8191))),
    *(f"heads - {rows}*heads_kv <= 0" for rows in (16, 32)),
    *(f"heads - {rows}*heads_kv >= 1" for rows in (16, 32)),
    "seqlen_kv >= 1024",
    "seqlen_kv <= 1023",
    "seqlen_kv >= 65536",
    "seqlen_kv <= 65535",
    "heads == 32",
    "heads != 32",
    "heads_kv == 4",
    "heads_kv != 4",
    "dtype == torch.float16",
    "dtype != torch.float16",
    "softcap == 0.0",
    "softcap != 0.0",
]
"""The conditions at which the cases of attention stand."""
