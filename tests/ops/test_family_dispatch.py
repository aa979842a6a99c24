"""Which key each family chooses, at the borders of every region, with device facts stated."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.reference
from tests.ops.row_norms import RMS_NORM, ROW_NORMS, RowNormCase
from tileops.backend import OpNotAvailableError
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import (
    GQADecodeBs1Kernel,
    GQADecodeKernel,
    GQADecodeLongContextKernel,
)
from tileops.kernels.norm.call_spec import MAX_ROW, LayerNormCall
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp
from tileops.ops.op_base import UnorderedOverlapError

DECODE, BS1, LONG = "gqa_dense_decode", "gqa_dense_decode_bs1", "gqa_dense_decode_long_context"


def decode(**facts: Any) -> AttentionCall:
    """The shape that the long-context kernel is for, on SM90, unless *facts* say otherwise."""
    usual: dict[str, Any] = {
        "batch": 1,
        "heads": 32,
        "heads_kv": 4,
        "dim": 128,
        "max_seqlen_q": 1,
        "seqlen_kv": 4096,
        "dtype": torch.float16,
        "is_causal": True,
        "arch": 90,
    }
    return AttentionCall(**{**usual, **facts})


def key(**facts: Any) -> str:
    return GQADenseFwdOp().key_for("gqa_dense", decode(**facts))


@pytest.mark.parametrize(
    ("arch", "seqlen_kv", "serving", "chosen"),
    [
        (90, 4096, {DECODE, BS1, LONG}, LONG),
        (90, 512, {DECODE, BS1}, BS1),
        (80, 4096, {DECODE, LONG}, LONG),
        (80, 512, {DECODE}, DECODE),
    ],
)
def test_decode_of_one_sequence_by_arch_and_length(arch: int, seqlen_kv: int, serving: set[str], chosen: str) -> None:
    op = GQADenseFwdOp()
    call = decode(arch=arch, seqlen_kv=seqlen_kv)
    assert op.key_for("gqa_dense", call) == chosen
    explained = op.explain("gqa_dense", call)
    assert explained.winner == chosen
    assert {each.key for each in explained.entries if each.status in ("chosen", "loses")} == serving


def test_the_kernel_that_runs_is_the_one_that_was_named(two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GQADecodeKernel, "__init__", lambda self, build: None)
    op = GQADenseFwdOp()
    classes = {DECODE: GQADecodeKernel, BS1: GQADecodeBs1Kernel, LONG: GQADecodeLongContextKernel}
    for device, arch in zip(two_devices, (90, 80), strict=True):
        for length in (1, 512, 1023, 1024, 4096):
            kernel = op.kernel_for("gqa_dense", decode(arch=None, device=device, seqlen_kv=length))
            assert type(kernel) is classes[key(arch=arch, seqlen_kv=length)]
            assert kernel.launch_device == device


def test_a_decode_loop_builds_a_small_constant_number_of_kernels(
    two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GQADecodeKernel, "__init__", lambda self, build: None)
    op = GQADenseFwdOp()
    for length in range(1, 8193):
        op.kernel_for("gqa_dense", decode(arch=None, device=two_devices[0], seqlen_kv=length))
    assert op.cache_info().builds == 3, "up to 1,023 keys, up to 4,095, and more"


class TestBordersOfLongContext:
    @pytest.mark.parametrize(
        ("seqlen_kv", "chosen"), [(1, BS1), (1023, BS1), (1024, LONG), (1025, LONG), (2**20, LONG)]
    )
    def test_length(self, seqlen_kv: int, chosen: str) -> None:
        assert key(seqlen_kv=seqlen_kv) == chosen

    @pytest.mark.parametrize(
        "facts",
        [
            {"heads": 31, "heads_kv": 1},
            {"heads": 64},
            {"heads_kv": 8},
            {"heads_kv": 2},
            {"dim": 64},
            {"dim": 256},
            {"dtype": torch.bfloat16},
            {"softcap": 30.0},
        ],
        ids=str,
    )
    def test_another_shape_is_not_served_by_it(self, facts: Any) -> None:
        assert key(**facts) == BS1
        assert key(arch=80, **facts) == DECODE

    def test_two_sequences_go_to_the_general_kernel(self) -> None:
        assert key(batch=2) == DECODE

    @pytest.mark.parametrize("is_causal", [True, False])
    def test_causality_changes_nothing_for_one_query(self, is_causal: bool) -> None:
        assert key(is_causal=is_causal) == LONG


class TestBordersOfDecode:
    @pytest.mark.parametrize(
        ("facts", "reason"),
        [
            ({"fuse_rope": True, "rotary_dim": 2, "max_seqlen_q": 2}, "max_seqlen_q"),
            ({"dtype": torch.float32}, "dtype"),
            ({"dim": 72}, "dim"),
        ],
        ids=str,
    )
    def test_what_is_outside_is_refused_with_the_reason(self, facts: Any, reason: str) -> None:
        with pytest.raises(ValueError, match="no implementation serves this call") as error:
            key(**facts)
        decoding = [each for each in error.value.explanation.entries if "decode" in each.key]
        assert {each.key for each in decoding} >= {DECODE, BS1, LONG}
        for entry in decoding:
            assert any(reason in each for each in entry.reasons), str(entry)

    @pytest.mark.parametrize("arch", [80, 89, 90])
    def test_every_listed_arch_is_served(self, arch: int) -> None:
        assert key(arch=arch, batch=4) == DECODE

    @pytest.mark.parametrize("arch", [86, 100, 120])
    def test_another_arch_is_not(self, arch: int) -> None:
        with pytest.raises(ValueError, match="no implementation serves this call"):
            key(arch=arch, batch=4)

    @pytest.mark.parametrize("arch", [75, 87, 91])
    def test_an_unknown_arch_is_refused_and_no_error_of_ours(self, arch: int) -> None:
        with pytest.raises(ValueError, match="no implementation serves this call"):
            key(arch=arch)

    @pytest.mark.parametrize("arch", [80, 89])
    def test_the_hopper_kernel_runs_on_hopper_only(self, arch: int) -> None:
        entries = GQADenseFwdOp().explain("gqa_dense", decode(arch=arch, seqlen_kv=512)).entries
        assert next(each for each in entries if each.key == BS1).status == "cannot run"

    @pytest.mark.parametrize("group", [1, 2, 5, 7, 16, 64])
    def test_any_group_of_query_heads_is_served(self, group: int) -> None:
        assert key(heads=4 * group, heads_kv=4, batch=2) == DECODE

    @pytest.mark.parametrize(
        ("facts", "reason"),
        [
            ({"heads": 33}, "heads 33 is not a multiple of heads_kv 4"),
            ({"heads_kv": 0}, "heads_kv 0 is not positive"),
            ({"softcap": -1.0}, "softcap"),
            ({"sm_scale": float("nan")}, "sm_scale"),
        ],
        ids=str,
    )
    def test_what_no_op_asks_for_is_not_valid(self, facts: Any, reason: str) -> None:
        with pytest.raises(ValueError, match="is not a valid AttentionCall") as error:
            key(**facts)
        assert reason in str(error.value)

    def test_a_dtype_that_attention_does_not_have_is_outside_its_domain(self) -> None:
        with pytest.raises(ValueError, match="is outside the domain of dtype"):
            key(dtype=torch.float64)


BEFORE_SM90 = [(1, "short_rows"), (513, "held_rows"), (16385, "")]
MANY_ON_SM90 = [(1, "short_rows"), (513, "held_rows"), (16385, "cut_rows"), (262145, "")]
FEW_ON_SM90 = [(1, "short_rows"), (513, "held_rows"), (8193, "cut_rows"), (262145, "")]
"""The shortest row of each region, and the kernel there; the general one has no name of its own."""


def row_regions(case: RowNormCase, arch: int, dtype: torch.dtype, *, few_rows: bool) -> list[tuple[int, str]]:
    regions = BEFORE_SM90 if arch < 90 else FEW_ON_SM90 if few_rows else MANY_ON_SM90
    if case is RMS_NORM and dtype is not torch.float32:  # a block holds four times as many values of 16 bits
        return [(65537 if n == 16385 else n, kernel) for n, kernel in regions]
    return regions


def row_key(case: RowNormCase, n: int, **facts: Any) -> str:
    return case.op().key_for(case.interface, LayerNormCall(n=n, **{"arch": 90, **facts}))


@pytest.mark.parametrize("case", ROW_NORMS, ids=str)
class TestRowNorms:
    @pytest.mark.parametrize("few_rows", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("arch", [80, 86, 89, 90])
    def test_each_region_begins_and_ends_at_its_borders(
        self, case: RowNormCase, arch: int, dtype: torch.dtype, few_rows: bool
    ) -> None:
        regions = row_regions(case, arch, dtype, few_rows=few_rows)
        found, expected = {}, {}
        for (first, kernel), (beyond, _) in zip(regions, [*regions[1:], (MAX_ROW + 1, "")], strict=True):
            for n in (first, first + 1, (first + beyond) // 2, beyond - 2, beyond - 1):
                found[n] = row_key(case, n, arch=arch, dtype=dtype, few_rows=few_rows)
                expected[n] = f"{case.interface}_{kernel}".rstrip("_")
        assert found == expected

    @pytest.mark.parametrize("arch", [75, 87, 100, 120])
    def test_it_is_not_served_on_others(self, case: RowNormCase, arch: int) -> None:
        with pytest.raises(ValueError, match="no implementation serves this call"):
            row_key(case, 768, arch=arch)

    @pytest.mark.parametrize("n", [0, MAX_ROW + 1])
    def test_a_row_beyond_what_is_counted_is_refused_with_the_length(self, case: RowNormCase, n: int) -> None:
        with pytest.raises(ValueError, match=f"n {n} is not from"):
            row_key(case, n)

    def test_a_negative_row_is_not_valid(self, case: RowNormCase) -> None:
        with pytest.raises(ValueError, match="is not a valid LayerNormCall: n -1 is negative"):
            row_key(case, -1)

    @pytest.mark.parametrize(
        ("n", "few_rows", "serving"),
        [
            (512, True, ["short_rows", "held_rows", ""]),
            (8192, True, ["held_rows", ""]),
            (8193, True, ["cut_rows", "held_rows", ""]),
            (8193, False, ["held_rows", ""]),
            (65537, False, ["cut_rows", ""]),
            (262145, True, [""]),
        ],
    )
    def test_who_else_serves_a_call_loses_to_the_first(
        self, case: RowNormCase, n: int, few_rows: bool, serving: list[str]
    ) -> None:
        explained = case.op().explain(case.interface, LayerNormCall(n=n, few_rows=few_rows, arch=90))
        keys = [f"{case.interface}_{kernel}".rstrip("_") for kernel in serving]
        assert explained.winner == keys[0]
        assert {each.key for each in explained.entries if each.status in ("chosen", "loses")} == set(keys)

    @pytest.mark.parametrize(("kernel", "n", "few_rows"), [("short_rows", 1, False), ("cut_rows", 8193, True)])
    def test_without_its_preference_construction_fails_with_the_smallest_call(
        self, monkeypatch: pytest.MonkeyPatch, case: RowNormCase, kernel: str, n: int, few_rows: bool
    ) -> None:
        key = f"{case.interface}_{kernel}"
        monkeypatch.setattr(case.op.kernel_types[key], "preferred_over", frozenset())
        with pytest.raises(UnorderedOverlapError) as error:
            case.op()
        assert set(error.value.keys) == {key, f"{case.interface}_held_rows"}
        assert (error.value.witness.n, error.value.witness.few_rows) == (n, few_rows)
        assert any(f"norm/{case.interface}.py:" in place for place in error.value.places)


class TestReference:
    def test_cpu_is_unavailable_without_it(self) -> None:
        cpu = torch.device("cpu")
        with pytest.raises(OpNotAvailableError, match="in-tree kernels do not run on cpu"):
            LayerNormFwdOp().key_for("layer_norm", LayerNormCall(n=8, device=cpu))
        with pytest.raises(OpNotAvailableError, match="in-tree kernels do not run on cpu"):
            GQADenseFwdOp().key_for("gqa_dense", decode(arch=None, device=cpu))

    def test_it_serves_cpu_once_installed_and_changes_nothing_on_cuda(self) -> None:
        before = GQADenseFwdOp()
        tileops.reference.install()
        tileops.reference.install()
        cpu = torch.device("cpu")
        assert LayerNormFwdOp().key_for("layer_norm", LayerNormCall(n=8, device=cpu)) == "reference_layer_norm"
        assert key(arch=None, device=cpu) == "reference_gqa_dense"
        assert key() == LONG
        with pytest.raises(OpNotAvailableError):
            before.key_for("gqa_dense", decode(arch=None, device=cpu))

    def test_every_op_proves_with_it_under_strict(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEOPS_PROOF", "strict")
        LayerNormFwdOp(), GQADenseFwdOp()
        tileops.reference.install()
        LayerNormFwdOp(), GQADenseFwdOp()


@pytest.mark.parametrize("member", ["preferred_over"])
def test_without_its_preference_the_long_context_kernel_fails_construction(
    monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    monkeypatch.setattr(GQADecodeLongContextKernel, member, frozenset())
    with pytest.raises(UnorderedOverlapError) as error:
        GQADenseFwdOp()
    assert set(error.value.keys) == {BS1, LONG}
    witness = error.value.witness
    assert (witness.arch, witness.batch, witness.heads, witness.heads_kv, witness.dim) == (90, 1, 32, 4, 128)
    assert witness.seqlen_kv == 1024
    assert "decode.py:" in error.value.places[0]
