"""What each op chooses at every border of every region, held against the limits written out as plain numbers.

The calls come from the rules (``tileops_solver.testing``); what they are to get is stated here once more, by hand,
so that a rule that is changed by mistake does not change its own test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tileops_rules import Selector
from tileops_solver.regions import regions_of
from tileops_solver.report.regions import as_text
from tileops_solver.subject import Subject
from tileops_solver.testing import boundary_calls

import tileops.ops
from tests.ops.attention_choices import ATTENTION_FACES, gqa_choice
from tileops.kernels.attention.gqa.decode import GQADecodeLongContextKernel
from tileops.kernels.norm.call_spec import BatchNormCall, LayerNormCall
from tileops.kernels.norm.layer_norm import LayerNormKernel
from tileops.ops.op_base import Op

GOLDEN = Path(__file__).parent / "golden"

CENTRED_SMEM = 4 * 16_384 + 8 * 3 * 4
"""Of a block: the longest row of float32 that waits there, and three numbers from each of 8 warps."""
PLAIN_SMEM = 32 * 3 * 4
"""Where no row waits: what 32 warps hand to each other."""


RINGED = ("layer_norm", "rms_norm")
"""Ops of one input and weights that all rows share, whose rows may come through a ring."""
ROW_RING_SMEM = 3 * 4 * 1_024 * 4 + 1_024


def row_choice(name: str, held_smem: int, *, wide: bool = False) -> Callable[[LayerNormCall], str | None]:
    """The contract of one normalization of rows, from 1 element to 2**28, on the four archs that are listed.

    Up to 512 elements short. Many rows up to 1,024 that begin at 16 bytes come through a ring on SM90. Then held:
    64 KiB of float32, or 128 KiB of 16 bits where the row is *wide*. On SM90 cut where a block does not hold the row,
    and from 8,193 elements where rows are few, up to 1 MiB of float32.
    """

    def choice(call: LayerNormCall) -> str | None:
        if call.arch not in (80, 86, 89, 90) or not 1 <= call.n <= 268_435_456:
            return None
        if call.n <= 512:
            return f"{name}_short_rows"
        longest = 65_536 if wide and call.dtype is not torch.float32 else 16_384
        smem = call.smem_budget or 0
        aligned = call.n % (4 if call.dtype is torch.float32 else 8) == 0
        many = name in RINGED and call.arch == 90 and not call.few_rows
        if many and aligned and call.n <= 1_024 and smem >= ROW_RING_SMEM:
            return f"{name}_ring_rows"
        shortest = 8_193 if call.few_rows else longest + 1
        if call.arch == 90 and shortest <= call.n <= 262_144 and smem >= 131_280:
            return f"{name}_cut_rows"
        return f"{name}_held_rows" if call.n <= longest and smem >= held_smem else name

    return choice


ROWS: dict[tuple[str, str], int] = {
    ("LayerNormFwdOp", "layer_norm"): CENTRED_SMEM,
    ("RMSNormFwdOp", "rms_norm"): PLAIN_SMEM,
    ("FusedAddLayerNormFwdOp", "fused_add_layer_norm"): CENTRED_SMEM,
    ("FusedAddRMSNormFwdOp", "fused_add_rms_norm"): PLAIN_SMEM,
    ("AdaLayerNormFwdOp", "ada_layer_norm"): CENTRED_SMEM,
    ("AdaLayerNormZeroFwdOp", "ada_layer_norm_zero"): CENTRED_SMEM,
}
"""What the longest held row of each op takes of shared memory."""


def extents_in_range(call: BatchNormCall) -> bool:
    """On the four archs, and no extent beyond 2**30."""
    return call.arch in (80, 86, 89, 90) and all(1 <= each <= 2**30 for each in (call.n, call.c, call.spatial))


def read_together(call: BatchNormCall) -> int:
    """Channels that share 32 bytes of memory."""
    plane = call.spatial * (4 if call.dtype is torch.float32 else 2)
    return next((16 >> i for i, most in enumerate((2, 4, 8, 16)) if plane <= most), 1)


CLUSTER_SMEM = 230_672
"""Of a block of a cluster: its share of the longest channel, what 8 warps and 8 blocks exchange, and 4 barriers."""


def in_cluster(call: BatchNormCall, values: int, channels: int, longest: int) -> bool:
    """Up to *longest* values of 16 bits, in planes of whole vectors and of 512 bytes or more, on SM90."""
    whole, plane, longest = (4, 128, longest // 2) if call.dtype is torch.float32 else (8, 256, longest)
    fits = call.arch == 90 and (call.smem_budget or 0) >= CLUSTER_SMEM
    return (
        fits
        and 8_192 <= values <= longest
        and channels <= 2**27
        and call.spatial % whole == 0
        and call.spatial >= plane
    )


def channel_choice(
    values: int, channels: int, together: int, held: int, clustered: bool, keys: tuple[str, str, str, str]
) -> str:
    """Channels in one block's registers, in a cluster, few long ones cut over blocks, and others streamed.

    Args:
        values: Of a channel.
        channels: How many there are.
        together: How many are read together.
        held: Values that a block has room for, where they are not read together.
        clustered: Whether a cluster has room for a channel.
        keys: Of the four.
    """
    in_block, in_blocks, cut, streamed = keys
    if values <= (held if together == 1 else held // 32):
        return in_block
    if clustered:
        return in_blocks
    return cut if values >= 8_192 and channels <= 512 * together else streamed


def batch_train_choice(call: BatchNormCall) -> str | None:
    """The contract: up to 32 values in a thread, up to 16,384 in a block, or 512 of narrow planes; 917,504 in eight."""
    if not extents_in_range(call):
        return None
    if call.n * call.spatial <= 32:
        return "fwd_train_whole"
    values, keys = call.n * call.spatial, ("fwd_train_wide", "fwd_train_cluster", "fwd_train_split", "fwd_train_kernel")
    clustered = in_cluster(call, values, call.c, 917_504)
    return channel_choice(values, call.c, read_together(call), 16_384, clustered, keys)


def batch_bwd_choice(call: BatchNormCall) -> str | None:
    """The contract: as forward, blocks holding half as many values, beside their gradients."""
    if not extents_in_range(call):
        return None
    values, keys = call.n * call.spatial, ("bwd_wide", "bwd_cluster", "bwd_split", "bwd_kernel")
    clustered = in_cluster(call, values, call.c, 458_752)
    return channel_choice(values, call.c, read_together(call), 8_192, clustered, keys)


def instance_choice(call: BatchNormCall) -> str | None:
    """The contract: as forward, each channel of each sample by itself, 2**30 of them at most."""
    if not extents_in_range(call) or call.n * call.c > 2**30:
        return None
    keys = ("instance_norm_wide", "instance_norm_cluster", "instance_norm_split", "instance_norm")
    clustered = in_cluster(call, call.spatial, call.n * call.c, 917_504)
    return channel_choice(call.spatial, call.n * call.c, read_together(call), 16_384, clustered, keys)


def running_choice(key: str) -> Callable[[BatchNormCall], str | None]:
    """The contract: whatever has running statistics."""
    return lambda call: key if extents_in_range(call) and call.running_dtype is not None else None


BY_HAND: dict[tuple[str, str], Callable[[Any], str | None]] = {
    ("GQADenseFwdOp", "gqa_dense"): gqa_choice,
    **{(op, name): row_choice(name, smem, wide=name == "rms_norm") for (op, name), smem in ROWS.items()},
    ("BatchNormFwdOp", "batch_norm_fwd_train"): batch_train_choice,
    ("BatchNormFwdOp", "batch_norm_fwd_infer"): running_choice("fwd_infer_kernel"),
    ("BatchNormBwdOp", "batch_norm_bwd"): batch_bwd_choice,
    ("InstanceNormFwdOp", "instance_norm_fwd"): instance_choice,
    ("InstanceNormFwdOp", "instance_norm_fwd_train"): instance_choice,
    ("InstanceNormFwdOp", "instance_norm_fwd_infer"): running_choice("instance_norm_infer"),
}


def row_faces(held_smem: int) -> list[str]:
    return [
        "arch in (80, 86, 89, 90)",
        "arch == 90",
        "n >= 1",
        "n <= 512",
        "n >= 513",
        "n <= 8192",
        "n >= 8193",
        "n <= 16384",
        "n >= 16385",
        "n <= 262144",
        "n >= 262145",
        "n <= 268435456",
        f"smem_budget <= {held_smem - 1}",
        f"smem_budget >= {held_smem}",
        "smem_budget <= 131279",
        "smem_budget >= 131280",
        "few_rows == True",
        "few_rows != True",
        "few_rows == False",
    ]


RINGS = [
    "few_rows != False",
    "n % 4 != 0",
    "n % 4 == 0",
    "n % 8 != 0",
    "n % 8 == 0",
    "n <= 1024",
    "n >= 1025",
    f"smem_budget <= {ROW_RING_SMEM - 1}",
    f"smem_budget >= {ROW_RING_SMEM}",
]
"""The faces of rows that come through a ring."""

EXTENTS = [
    "arch in (80, 86, 89, 90)",
    *(f"{extent} {bound}" for extent in ("n", "c", "spatial") for bound in (">= 1", "<= 1073741824")),
]
"""The faces of all ops that normalize channels."""
RUNNING = [*EXTENTS, "running_dtype in (torch.bfloat16, torch.float16, torch.float32)"]


def cluster_faces(values: str, channels: str, longest: int) -> list[str]:
    """Where a cluster has room for *longest* values of 16 bits; *values* and *channels* are what counts them."""
    return [
        "arch == 90",
        f"smem_budget >= {CLUSTER_SMEM}",
        f"smem_budget <= {CLUSTER_SMEM - 1}",
        f"{channels} <= 134217728",
        f"{channels} >= 134217729",
        *(f"{values} <= {most}" for most in (longest // 2, longest)),
        *(f"{values} >= {most + 1}" for most in (longest // 2, longest)),
        *(f"spatial % {whole} {is_or_not} 0" for whole in (4, 8) for is_or_not in ("==", "!=")),
        "dtype not in (torch.bfloat16, torch.float16)",
        "dtype != torch.float32",
    ]


INSTANCES = [
    *EXTENTS,
    *cluster_faces("spatial", "c*n", 917_504),
    "c*n <= 1073741824",
    "c*n <= 512",
    "c*n >= 513",
    "spatial >= 8192",
    "spatial <= 16384",
    "spatial >= 16385",
    *(f"spatial >= {plane}" for plane in (2, 3, 5, 9)),
    "dtype in (torch.bfloat16, torch.float16)",
    "dtype == torch.float32",
]


def channel_faces(in_block: int) -> list[str]:
    """Where a block holds *in_block* values of a channel, or a 32nd of them where channels are read together.

    A cluster holds 56 times as many.
    """
    return [
        *EXTENTS,
        f"n*spatial >= {in_block // 32 + 1}",
        f"n*spatial <= {in_block // 32}",
        f"n*spatial >= {in_block + 1}",
        f"n*spatial <= {in_block}",
        *cluster_faces("n*spatial", "c", 56 * in_block),
        *(f"spatial >= {plane}" for plane in (128, 256)),
        *(f"spatial <= {plane - 1}" for plane in (128, 256)),
        "n*spatial >= 8192",
        "n*spatial <= 8191",
        *(f"c <= {512 * together}" for together in (1, 2, 4, 8, 16)),
        *(f"c >= {512 * together + 1}" for together in (1, 2, 4, 8, 16)),
        *(f"spatial <= {plane}" for plane in (1, 2, 4, 8)),
        *(f"spatial >= {plane + 1}" for plane in (1, 2, 4, 8)),
        "dtype in (torch.bfloat16, torch.float16)",
        "dtype == torch.float32",
    ]


FACES = {
    ("GQADenseFwdOp", "gqa_dense"): ATTENTION_FACES,
    **{place: row_faces(smem) for place, smem in ROWS.items()},
    ("BatchNormFwdOp", "batch_norm_fwd_train"): [*channel_faces(16_384), "n*spatial <= 32", "n*spatial >= 33"],
    ("BatchNormFwdOp", "batch_norm_fwd_infer"): RUNNING,
    ("BatchNormBwdOp", "batch_norm_bwd"): channel_faces(8_192),
    ("InstanceNormFwdOp", "instance_norm_fwd"): INSTANCES,
    ("InstanceNormFwdOp", "instance_norm_fwd_train"): INSTANCES,
    ("InstanceNormFwdOp", "instance_norm_fwd_infer"): RUNNING,
}
FACES["RMSNormFwdOp", "rms_norm"] += [
    "n <= 65536",
    "n >= 65537",
    "dtype in (torch.bfloat16, torch.float16)",
    "dtype not in (torch.bfloat16, torch.float16)",
    "dtype == torch.float32",
    "dtype != torch.float32",
]
for ringed in (("LayerNormFwdOp", "layer_norm"), ("RMSNormFwdOp", "rms_norm")):
    FACES[ringed] = [*FACES[ringed], *RINGS]
FACES["LayerNormFwdOp", "layer_norm"] += [
    "dtype in (torch.bfloat16, torch.float16)",
    "dtype == torch.float32",
    "dtype != torch.float32",
]
"""The conditions at which the cases stand, so that none is lost without being seen."""

INTERFACES = [
    (op, interface)
    for name in tileops.ops.__all__
    if isinstance(op := getattr(tileops.ops, name), type) and issubclass(op, Op) and op is not Op
    for interface in op.interfaces
]
each_interface = pytest.mark.parametrize(
    ("op", "interface"),
    INTERFACES,
    ids=lambda each: getattr(each, "__name__", each),
)


def chosen(op: Op, interface: str, call: Any) -> str | None:
    try:
        return op.key_for(interface, call)
    except ValueError as error:
        if "no implementation serves this call" not in str(error):
            raise
        return None


@each_interface
def test_every_boundary_call_gets_what_the_rules_and_the_contract_say_and_stands_at_its_conditions(
    op: type[Op], interface: str
) -> None:
    """One test an interface, as its cases take up to a minute to find."""
    by_hand, cases = BY_HAND[op.__name__, interface], boundary_calls(op, interface)
    for platform in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
        mine = [case for case in cases if case.platform == platform]
        found = {str(case): chosen(op(), interface, case.call) for case in mine}
        assert found == {str(case): case.expected for case in mine}
        assert found == {str(case): by_hand(case.call) for case in mine}
        assert found, f"there are cases of {platform}"
    faces = {border.face for case in cases for border in case.borders}
    assert faces == set(FACES[op.__name__, interface])
    for face in faces:
        sides = {border.where != "outside" for case in cases for border in case.borders if border.face == face}
        assert sides == {True, False}, face


def test_the_tables_here_are_those_of_the_ops() -> None:
    names = {(op.__name__, interface) for op, interface in INTERFACES}
    assert names == set(BY_HAND) == set(FACES)


@pytest.mark.parametrize(("length", "at"), [(1025, 1024), (1023, 1023)])
def test_a_threshold_that_is_off_by_one_is_seen(monkeypatch: pytest.MonkeyPatch, length: int, at: int) -> None:
    monkeypatch.setattr(GQADecodeLongContextKernel, "long_context", length)
    op = tileops.ops.GQADenseFwdOp
    wrong = [c.call for c in boundary_calls(op, "gqa_dense", archs=[80]) if c.expected != gqa_choice(c.call)]
    assert wrong
    assert {call.seqlen_kv for call in wrong} == {at}


def test_an_arch_that_is_swapped_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerNormKernel, "supported_archs", [80, 86, 90, 100])
    found = boundary_calls(tileops.ops.LayerNormFwdOp, "layer_norm")
    by_hand = BY_HAND["LayerNormFwdOp", "layer_norm"]
    wrong = {case.platform for case in found if case.expected != by_hand(case.call)}
    assert wrong == {"sm_89", "sm_100"}


@each_interface
def test_who_serves_what_is_as_it_was_reviewed(op: type[Op], interface: str) -> None:
    """A change of a rule shows here, arch by arch, as a change of this file."""
    path = GOLDEN / f"regions-{op.__name__}-{interface}.txt"
    command = f"tileops regions {op.__name__} {interface} > tests/ops/golden/{path.name}"
    text = as_text(regions_of(Subject(Selector.of(op, interface))))
    kept = path.read_text() if path.exists() else ""
    assert text.splitlines() == kept.splitlines(), f"if this is meant, rewrite the file and review it: {command}"


def test_no_golden_file_is_left_of_an_op_that_is_gone() -> None:
    wanted = {f"regions-{op.__name__}-{interface}.txt" for op, interface in INTERFACES}
    assert {path.name for path in GOLDEN.iterdir()} == wanted
