"""What the interfaces of the tree declare unserved is exactly what their kernels do not serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tileops_rules import NoImplementation, Selector, fields
from tileops_solver import Verdict, audit, find_call, nearest_served

import tileops.ops
from tests.ops.row_norms import ROW_NORMS
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.norm.call_spec import MAX_ROW, BatchNormCall, LayerNormCall
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, GQADenseFwdOp, InstanceNormFwdOp
from tileops.reference import REFERENCES

OPS: dict[str, tuple[Any, str]] = {
    **{case.op.__name__: (case.op, case.interface) for case in ROW_NORMS},
    "BatchNormFwdOp": (BatchNormFwdOp, "batch_norm_fwd_train"),
    "BatchNormBwdOp": (BatchNormBwdOp, "batch_norm_bwd"),
    "InstanceNormFwdOp": (InstanceNormFwdOp, "instance_norm_fwd"),
    "GQADenseFwdOp": (GQADenseFwdOp, "gqa_dense"),
}
"""One interface of each op."""


def test_no_op_has_a_gap_and_none_declares_what_is_served() -> None:
    report = audit(tileops.ops, select=["gap"])
    assert {each.op for each in report.interfaces} >= OPS.keys()
    assert report.findings == ()
    assert report.totals.not_proved == 0


@pytest.mark.parametrize(("name", "key", "kernel"), REFERENCES, ids=[name for name, _, _ in REFERENCES])
def test_the_references_leave_no_gap_on_the_cpu_either(name: str, key: str, kernel: type) -> None:
    op = getattr(tileops.ops, name)
    members = {"kernel_types": {**op.kernel_types, key: kernel}, "interfaces": op.interfaces, "resolve": op.resolve}
    report = audit(type(name, (), members), select=["gap"])
    assert report.findings == ()
    assert report.totals.not_proved == 0


@pytest.mark.parametrize(
    ("name", "but_for", "call"),
    [
        ("LayerNormFwdOp", lambda call: call.n == 0 and call.arch == 86, LayerNormCall(n=0, arch=86)),
        ("LayerNormFwdOp", lambda call: call.n == MAX_ROW + 1, LayerNormCall(n=MAX_ROW + 1, arch=80)),
        ("LayerNormFwdOp", lambda call: call.arch == 120, LayerNormCall(arch=120)),
        (
            "RMSNormFwdOp",
            lambda call: call.n > MAX_ROW and call.few_rows,
            LayerNormCall(MAX_ROW + 1, few_rows=True, arch=80),
        ),
        ("BatchNormFwdOp", lambda call: call.c == 0, BatchNormCall(arch=80)),
        ("BatchNormBwdOp", lambda call: call.spatial > 2**30, BatchNormCall(spatial=2**30 + 1, arch=80)),
        ("GQADenseFwdOp", lambda call: call.dim == 264, AttentionCall(dim=264, arch=80)),
        ("GQADenseFwdOp", lambda call: call.arch == 80 and call.is_fp8, AttentionCall(is_fp8=True, arch=80)),
        ("GQADenseFwdOp", lambda call: call.smem_budget == 4_000, AttentionCall(arch=80, smem_budget=4_000)),
    ],
    ids=["no row", "long row", "arch", "long row of few", "channels", "plane", "head size", "float8", "shared memory"],
)
def test_a_call_that_the_declaration_leaves_out_is_a_gap(name: str, but_for: Callable[[Any], bool], call: Any) -> None:
    op, interface = OPS[name]
    face = op.interfaces[interface]

    def unserved(asked: Any) -> str | None:
        return None if but_for(asked) else face.unserved(asked)

    selector = Selector.of(op, interface)
    narrower = Selector(
        selector.spec, selector.candidates, op=name, interface=interface, resolve=op.resolve, unserved=unserved
    )
    gap = next(f for f in audit(narrower, select=["gap"]).findings if f.kind == "gap")
    assert gap.witness == op.resolve(call)
    assert gap.subject == f"sm_{call.arch}"


@pytest.mark.parametrize("name", OPS)
def test_a_call_that_is_declared_and_served_is_found(name: str) -> None:
    op, interface = OPS[name]
    selector = Selector.of(op, interface)
    wider = Selector(
        selector.spec,
        selector.candidates,
        op=name,
        interface=interface,
        resolve=op.resolve,
        unserved=lambda call: op.interfaces[interface].unserved(call) or ("no" if call.arch == 89 else None),
    )
    (finding,) = audit(wider, select=["gap"]).findings
    assert finding.kind == "served-gap"
    assert finding.witness.arch == 89
    assert finding.facts["reason"] == "no"


@pytest.mark.parametrize("arch", [80, 89, 90])
def test_any_group_of_1_to_64_query_heads_is_served_in_decode(arch: int) -> None:
    selector = Selector.of(GQADenseFwdOp, "gqa_dense")
    claims = [selector.claims(key) for key in selector.keys]
    served = claims[0]
    for claim in claims[1:]:
        assert served is not None
        assert claim is not None
        served = served | claim
    assert served is not None
    call = fields(AttentionCall, domain=selector.domain)
    decode = (call.max_seqlen_q == 1) & (call.window_size_left == -1) & ~call.is_fp8.isin([True])
    plain = decode & ~call.fuse_rope.isin([True]) & call.dtype.isin([torch.float16, torch.bfloat16])
    asked = plain & (call.seqlen_kv >= 1) & call.dim.isin([64, 128, 256]) & (call.smem_budget >= 98_304)
    grouped = (call.heads >= call.heads_kv) & (call.heads <= 64 * call.heads_kv)
    answer = find_call(asked & grouped & (call.arch == arch) & ~served)
    assert answer.verdict is Verdict.NONE
    for group in range(1, 65):
        assert selector.select(AttentionCall(heads=4 * group, heads_kv=4, dim=128, arch=arch)).startswith("gqa_dense")


@pytest.mark.parametrize(
    ("name", "call", "said"),
    [
        *((case.op.__name__, LayerNormCall(arch=90), "n 0 is not from 1 to") for case in ROW_NORMS),
        ("LayerNormFwdOp", LayerNormCall(n=8, arch=100), "nothing is built for sm_100, only for sm_80, sm_86"),
        ("BatchNormFwdOp", BatchNormCall(n=2, c=3, spatial=0, arch=90), "spatial 0 is not from 1 to 1073741824"),
        ("BatchNormBwdOp", BatchNormCall(n=2, c=0, arch=80), "c 0 is not from 1 to 1073741824"),
        ("BatchNormBwdOp", BatchNormCall(n=2, c=3, arch=120), "nothing is built for sm_120, only for sm_80, sm_86"),
        ("InstanceNormFwdOp", BatchNormCall(n=2**20, c=2**11, spatial=4, arch=90), "is more than 1073741824"),
        (
            "GQADenseFwdOp",
            AttentionCall(arch=90, max_seqlen_q=7, dim=72),
            "dim 72 is not one of 64, 80, 96, 128, 192, 256",
        ),
        (
            "GQADenseFwdOp",
            AttentionCall(arch=90, max_seqlen_q=2, window_size_left=3, dim=112),
            "dim 112 is not one of 64, 80, 96, 128",
        ),
        (
            "GQADenseFwdOp",
            AttentionCall(max_seqlen_q=2, dtype=torch.float32, arch=89),
            "dtype torch.float32 is not",
        ),
        ("GQADenseFwdOp", AttentionCall(arch=80, dim=256, max_seqlen_q=2, smem_budget=65_536), "needs 98304 bytes"),
        (
            "GQADenseFwdOp",
            AttentionCall(arch=90, fuse_rope=True, rotary_dim=8, max_seqlen_q=2, seqlen_kv=9),
            "rotate queries and keys beforehand",
        ),
        ("GQADenseFwdOp", AttentionCall(arch=80, is_fp8=True), "float8 is not multiplied on sm_80"),
        ("GQADenseFwdOp", AttentionCall(arch=89, is_fp8=True, max_seqlen_q=2), "float8 prefill is built for sm_90"),
        (
            "GQADenseFwdOp",
            AttentionCall(arch=90, is_fp8=True, max_seqlen_q=2, dim=112),
            "dim 112 is not one of 64, 80, 96, 128, 192, 256",
        ),
        ("GQADenseFwdOp", AttentionCall(arch=90, dim=72), "dim 72 is not a multiple of 16 from 16 to 256"),
        ("GQADenseFwdOp", AttentionCall(arch=90, dtype=torch.float32), "dtype torch.float32 is not"),
        ("GQADenseFwdOp", AttentionCall(arch=86), "nothing is built for sm_86, only for sm_80, sm_89, sm_90"),
        ("GQADenseFwdOp", AttentionCall(arch=89, dim=256, smem_budget=30_000), "34560 bytes of shared memory a block"),
    ],
)
def test_a_user_is_told_why_nobody_serves_a_call(name: str, call: Any, said: str) -> None:
    op, interface = OPS[name]
    with pytest.raises(NoImplementation, match="declared unserved") as caught:
        Selector.of(op, interface).select(call)
    assert caught.value.declared is not None
    assert said in caught.value.declared


@pytest.mark.parametrize(
    ("call", "end"),
    [
        (AttentionCall(arch=90, dim=100), {"dim": 96}),
        (
            AttentionCall(arch=90, dim=300, max_seqlen_q=5, seqlen_kv=5, fuse_rope=True, rotary_dim=8),
            {"dim": 256, "max_seqlen_q": 1},
        ),
        (AttentionCall(arch=89, dim=256, smem_budget=15_000), {"dim": 96}),
        (AttentionCall(arch=120), {"arch": 90, "sm_count": 132, "smem_budget": 227 * 1024}),
    ],
)
def test_the_nearest_served_call_of_attention(call: AttentionCall, end: dict[str, Any]) -> None:
    answer = nearest_served(Selector.of(GQADenseFwdOp, "gqa_dense"), call)
    assert answer.verdict is Verdict.FOUND
    stated = GQADenseFwdOp.resolve(call)
    changed = {
        name: getattr(answer.call, name) for name in vars(stated) if getattr(stated, name) != getattr(answer.call, name)
    }
    assert changed == end


@pytest.mark.parametrize("arch", [80, 90, None])
@pytest.mark.parametrize(
    ("op", "interface"), [(BatchNormFwdOp, "batch_norm_fwd_infer"), (InstanceNormFwdOp, "instance_norm_fwd_infer")]
)
def test_without_running_statistics_nothing_is_normalized_by_them_on_any_device(
    op: Any, interface: str, arch: int | None
) -> None:
    call = BatchNormCall(n=2, c=3, spatial=4, device=torch.device("cuda" if arch else "cpu"), arch=arch)
    with pytest.raises(NoImplementation) as caught:
        Selector.of(op, interface).select(call)
    assert "running_dtype is None: there are no running statistics" in str(caught.value.declared)
