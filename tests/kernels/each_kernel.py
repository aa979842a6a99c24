"""One small call of every kernel of the tree, for tools that watch a process from outside.

    compute-sanitizer --tool racecheck python -m tests.kernels.each_kernel [gqa_dense_decode ...]

Each runs between allocations of its own, so that a tool sees what is read or written past them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tests.kernels.row_support import ROW_NORMS, WAYS, row_call
from tests.kernels.support import DEVICE, build, on_this_gpu
from tileops import ops
from tileops.kernels.attention.call_spec import AttentionCall, Rotation, Scales
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, GQADenseFwdOp, InstanceNormFwdOp
from tileops.ops.op_base import Op

ROW_LENGTHS = {"tiled": 1111, "short": 257, "held": 3000, "cut": 12289}
"""By way to hold a row: lengths that no load divides, but the one of the held rows."""

TRAINING = {
    "fwd_train_whole": [(32, 70, 1)],
    "fwd_train_wide": [(4, 16, 784), (16, 24, 49), (40, 520, 1)],
    "fwd_train_cluster": [(3, 130, 3136), (7, 70, 3136), (9, 33, 3120), (70, 5, 256)],
    "fwd_train_split": [(3, 5, 9030), (4, 3, 16384)],
    "fwd_train_kernel": [(70, 530, 36), (40, 6, 49)],
}
INFERENCE = [(4, 16, 784), (16, 24, 49), (3, 5, 77), (32, 64, 1), (2, 3, 1080), (3, 8, 3)]
BACKWARD = {
    "bwd_wide": [(4, 16, 784), (16, 24, 49)],
    "bwd_cluster": [(3, 130, 3136), (7, 70, 3136), (9, 33, 3120), (70, 5, 256)],
    "bwd_split": [(3, 5, 9030), (4, 3, 16384)],
    "bwd_kernel": [(70, 530, 36), (40, 6, 49)],
}
INSTANCES = {
    "instance_norm_wide": [(4, 16, 784), (16, 24, 49), (64, 40, 64), (1100, 3, 5)],
    "instance_norm_cluster": [(2, 70, 8192), (5, 13, 8192), (3, 11, 8200), (1, 5, 100_000)],
    "instance_norm_split": [(3, 5, 9030)],
    "instance_norm": [(2, 270, 20000)],
}
"""By key: samples, channels and values of a plane."""

DECODE = {"heads": 32, "heads_kv": 4, "dim": 128, "max_seqlen_q": 1, "is_causal": True, "dtype": torch.float16}

Run = Callable[[type[Any]], None]


def drawn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def affine(c: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(c, dtype=torch.float32), drawn(c, dtype=torch.float32)


def statistics(c: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(c, dtype=torch.float32), torch.rand(c, device=DEVICE) + 0.5


def channels(n: int, c: int, spatial: int, *, tracked: bool) -> BatchNormCall:
    return BatchNormCall(n, c, spatial, running_dtype=torch.float32 if tracked else None)


def rows(interface: str, way: str) -> Run:
    def run(kind: type[Any]) -> None:
        n = ROW_LENGTHS[way]
        kernel = build(kind, row_call(n, torch.bfloat16))
        kernel(*ROW_NORMS[interface].tensors(5, n, torch.bfloat16, DEVICE))

    return run


def ring(interface: str) -> Run:
    def run(kind: type[Any]) -> None:
        kernel = build(kind, row_call(1000, torch.bfloat16, few_rows=False))
        kernel(*ROW_NORMS[interface].tensors(2500, 1000, torch.bfloat16, DEVICE))

    return run


def training(shapes: list[tuple[int, int, int]]) -> Run:
    def run(kind: type[Any]) -> None:
        for n, c, spatial in shapes:
            kernel = build(kind, channels(n, c, spatial, tracked=True))
            kernel(drawn(n, c, spatial), *affine(c), *statistics(c))

    return run


def inference(kind: type[Any]) -> None:
    for n, c, spatial in INFERENCE:
        build(kind, channels(n, c, spatial, tracked=True))(drawn(n, c, spatial), *affine(c), *statistics(c))


def backward(shapes: list[tuple[int, int, int]]) -> Run:
    def run(kind: type[Any]) -> None:
        for n, c, spatial in shapes:
            kernel = build(kind, channels(n, c, spatial, tracked=False))
            mean, variance = statistics(c)
            kernel(drawn(n, c, spatial), drawn(n, c, spatial), affine(c)[0], mean, variance)

    return run


def instances(shapes: list[tuple[int, int, int]]) -> Run:
    def run(kind: type[Any]) -> None:
        for n, c, spatial in shapes:
            for tracked in (False, True):
                kernel = build(kind, channels(n, c, spatial, tracked=tracked))
                given = statistics(c) if tracked else (None, None)
                kernel(drawn(n, c, spatial), *affine(c), *given)

    return run


def decode(batch: int, length: int) -> Run:
    def run(kind: type[Any]) -> None:
        call = AttentionCall(batch=batch, seqlen_kv=length, **DECODE)
        query = drawn(batch, 1, call.heads, call.dim)
        kept = [drawn(batch, length, call.heads_kv, call.dim) for _ in range(2)]
        build(kind, call)(query, *kept)

    return run


def prefill(window: int, *lengths: tuple[int, int]) -> Run:
    def run(kind: type[Any]) -> None:
        for queries, keys in lengths:
            call = AttentionCall(
                2, 4, 2, 64, queries, keys, torch.float16, is_causal=True, window_size_left=window, window_size_right=3
            )
            kept = [drawn(2, keys, call.heads_kv, call.dim) for _ in range(2)]
            build(kind, call)(drawn(2, queries, call.heads, call.dim), *kept)

    return run


def decoded(**fields: Any) -> Run:
    """Decode of two sequences with what *fields* say."""

    def run(kind: type[Any]) -> None:
        call = AttentionCall(2, 12, 2, 96, 1, 300, torch.bfloat16, **fields)
        numbers = torch.float8_e4m3fn if call.is_fp8 else call.dtype
        heads = call.heads, call.heads_kv, call.heads_kv
        given = [drawn(2, n, each, 96).to(numbers) for n, each in zip((1, 300, 300), heads, strict=True)]
        scales = Scales(*(drawn(2, each, dtype=torch.float32).abs() for each in heads)) if call.is_fp8 else None
        angles = drawn(300, call.rotary_dim // 2, dtype=torch.float32)
        build(kind, call)(*given, scales, Rotation(angles.cos(), angles.sin()) if call.fuse_rope else None)

    return run


def together(*runs: Run) -> Run:
    """One after the other."""

    def run(kind: type[Any]) -> None:
        for each in runs:
            each(kind)

    return run


def float8(kind: type[Any]) -> None:
    for queries, keys, dim, window in ((300, 300, 64, -1), (5, 400, 80, -1), (1, 400, 128, 100)):
        call = AttentionCall(
            2, 4, 2, dim, queries, keys, torch.bfloat16, is_causal=True, window_size_left=window, is_fp8=True
        )
        lengths = queries, keys, keys
        heads = call.heads, call.heads_kv, call.heads_kv
        given = [drawn(2, n, h, dim).to(torch.float8_e4m3fn) for n, h in zip(lengths, heads, strict=True)]
        build(kind, call)(*given, Scales(*(drawn(2, each, dtype=torch.float32).abs() for each in heads)))


RUNS: Mapping[tuple[type[Op], str], Run] = {
    **{
        (op, f"{interface}{'' if way == 'tiled' else f'_{way}_rows'}"): rows(interface, way)
        for interface, op in (
            ("layer_norm", ops.LayerNormFwdOp),
            ("rms_norm", ops.RMSNormFwdOp),
            ("fused_add_layer_norm", ops.FusedAddLayerNormFwdOp),
            ("fused_add_rms_norm", ops.FusedAddRMSNormFwdOp),
            ("ada_layer_norm", ops.AdaLayerNormFwdOp),
            ("ada_layer_norm_zero", ops.AdaLayerNormZeroFwdOp),
        )
        for way in WAYS
    },
    (ops.LayerNormFwdOp, "layer_norm_ring_rows"): ring("layer_norm"),
    (ops.RMSNormFwdOp, "rms_norm_ring_rows"): ring("rms_norm"),
    **{(BatchNormFwdOp, key): training(shapes) for key, shapes in TRAINING.items()},
    (BatchNormFwdOp, "fwd_infer_kernel"): inference,
    **{(BatchNormBwdOp, key): backward(shapes) for key, shapes in BACKWARD.items()},
    **{(InstanceNormFwdOp, key): instances(shapes) for key, shapes in INSTANCES.items()},
    (InstanceNormFwdOp, "instance_norm_infer"): inference,
    (GQADenseFwdOp, "gqa_dense"): prefill(-1, (300, 300), (5, 400)),
    (GQADenseFwdOp, "gqa_dense_mma"): prefill(-1, (300, 300), (5, 400)),
    (GQADenseFwdOp, "gqa_dense_sliding_window"): prefill(100, (300, 400), (1, 400)),
    (GQADenseFwdOp, "gqa_dense_fp8"): float8,
    (GQADenseFwdOp, "gqa_dense_decode"): together(
        decode(3, 300), decoded(), decoded(fuse_rope=True, rotary_dim=24), decoded(softcap=5.0)
    ),
    (GQADenseFwdOp, "gqa_dense_decode_sliding_window"): together(
        decoded(window_size_left=70), decoded(window_size_left=70, fuse_rope=True, rotary_dim=24, rope_interleaved=True)
    ),
    (GQADenseFwdOp, "gqa_dense_fp8_decode"): together(decoded(is_fp8=True), decoded(is_fp8=True, window_size_left=70)),
    (GQADenseFwdOp, "gqa_dense_decode_bs1"): decode(1, 300),
    (GQADenseFwdOp, "gqa_dense_decode_long_context"): together(decode(1, 40000), decode(1, 70000)),
}
"""By op and key: what runs the kernel on calls that it serves."""


def runnable() -> Iterator[tuple[type[Op], str]]:
    """Those of the kernels that run on this card."""
    arch = on_this_gpu(CallSpec()).arch
    for op, key in RUNS:
        archs = op.kernel_types[key].supported_archs
        if archs is None or arch in archs:
            yield op, key


def main() -> None:
    """Run all of them, or those whose keys begin as an argument says, and tell how many."""
    ran = 0
    for op, key in runnable():
        if key.startswith(tuple(sys.argv[1:]) or ""):
            RUNS[op, key](op.kernel_types[key])
            torch.cuda.synchronize()
            ran += 1
    sys.stdout.write(f"{ran} kernels ran\n")


if __name__ == "__main__":
    main()
