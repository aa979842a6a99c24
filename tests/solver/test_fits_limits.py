"""What a block may take where: by device, by arch, by what a call states; and what is said of a need."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from tileops_rules import Candidate, OneOf, Range
from tileops_rules.archs import KNOWN_ARCHS, LEAST_SMEM_BYTES, MOST_THREADS
from tileops_rules.evaluating import evaluate
from tileops_rules.expr import TRUE
from tileops_solver import InconsistencyError, audit
from tileops_solver.checks import fits
from tileops_solver.subject import Platform, Subject

from tests.solver.test_check_details import SWITCH, Placed, everything, selector


@pytest.mark.parametrize(
    ("platform", "cuda"),
    [
        (Platform("sm_90", TRUE, 90), True),
        (Platform("sm_103", TRUE, 103), True),
        (Platform("", TRUE), True),
        (Platform("cuda", TRUE), True),
        (Platform("cpu", TRUE), False),
    ],
)
def test_limits_are_those_of_cuda_devices(platform: Platform, cuda: bool) -> None:
    assert fits._is_cuda(platform) is cuda
    threads = fits._threads(platform, Subject(selector()))
    assert [(when is TRUE, most.data) for when, most in threads] == ([(True, MOST_THREADS)] if cuda else [])


def test_calls_that_name_a_device_and_no_arch_are_held_to_the_limits_of_cuda() -> None:
    @dataclass(frozen=True)
    class NoArch:
        n: int = 0
        device: Optional[str] = None

    class Face:
        request = NoArch

    class Kernel(Face):
        devices = frozenset({"cuda", "cpu"})
        refusal = classmethod(lambda cls, call: None)
        block_threads = classmethod(lambda cls, call: 2048)
        block_smem_bytes = classmethod(lambda cls, call: 16)

    op = type("NoArchOp", (), {"kernel_types": {"only": Kernel}, "interfaces": {"job": Face}})
    (report,) = audit(op, select=["fits"]).interfaces
    assert [(f.kind, f.subject, f.witness) for f in report.findings] == [
        ("fits", "threads of cuda", NoArch(device="cuda"))
    ]
    assert report.findings[0].message.startswith(
        f"NoArchOp.job: only serves {NoArch(device='cuda')!r} and takes 2048 threads where a block has 1024; refuse"
    )
    assert [(p.keys, p.subject, p.reason) for p in report.undecided] == [
        (("only",), "cuda", "no shared memory of a block is known for cuda")
    ]


BUDGETS = (60_000, 120_000, 300_000)


def spec_with(budget: Any, default: Any) -> type:
    made = {"arch": Annotated[int, OneOf(80, 90)], "smem_budget": budget}
    kind = type("Budgeted", (), {"__annotations__": made, "arch": 90, "smem_budget": default})
    return dataclass(frozen=True)(kind)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("budget", "default", "values"),
    [
        (Annotated[int, OneOf(*BUDGETS)], BUDGETS[0], BUDGETS),
        (Optional[Annotated[int, OneOf(*BUDGETS)]], None, (None, *BUDGETS)),
        (Annotated[Optional[int], OneOf(None, *BUDGETS)], None, (None, *BUDGETS)),
        (Annotated[int, Range(0, 500_000)], 1, (0, LEAST_SMEM_BYTES - 1, LEAST_SMEM_BYTES, 166_912, 166_913, 232_448)),
        (Optional[int], None, (None, 7, LEAST_SMEM_BYTES, 99_999, 232_448, 232_449)),
        (None, None, (None,)),
    ],
)
def test_a_block_has_what_its_call_states_up_to_what_the_arch_has(
    arch: int, budget: Any, default: Any, values: Any
) -> None:
    """A stated number that no device has (too much, or less than every device has) limits nothing."""
    if budget is None:
        spec: Any = dataclass(frozen=True)(type("Bare", (), {"__annotations__": {"arch": int}, "arch": 90}))
    else:
        spec = spec_with(budget, default)
    subject = Subject(selector(spec=spec))
    platform = next(p for p in subject.platforms if p.arch == arch)
    limits = fits._smem(platform, subject)
    has = KNOWN_ARCHS[arch].smem_budget
    for value in values:
        call = spec(arch=arch) if budget is None else spec(arch=arch, smem_budget=value)
        held = subject.domain.read(call)
        known = [evaluate(most, held) for when, most in limits if evaluate(when, held)]
        listed = "OneOf" in repr(budget)
        if value is None:
            assert known == [has]
        elif listed:
            assert known == [min(value, has)]
        else:
            assert known == ([value] if LEAST_SMEM_BYTES <= value <= has else [])


def test_of_an_arch_that_no_table_knows_there_is_no_limit_of_shared_memory() -> None:
    subject = Subject(selector(Candidate("a", everything, supported_archs=[103]), spec=Placed))
    platform = next(p for p in subject.platforms if p.arch == 103)
    assert fits._smem(platform, subject) == ()
    assert fits._smem(Platform("", TRUE), subject) == ()


def op_with(**members: Callable[[Any, Any], Any]) -> type:
    @dataclass(frozen=True)
    class Tile:
        n: Annotated[int, Range(0, 9)] = 1
        arch: Annotated[int, OneOf(90)] = 90

    face = type("Face", (), {"request": Tile})
    own = {name: classmethod(function) for name, function in members.items()}
    kernel = type("Tiled", (face,), {"refusal": classmethod(lambda cls, call: None), "supported_archs": [90], **own})
    return type("TileOp", (), {"kernel_types": {"tiled": kernel}, "interfaces": {"tile": face}})


def test_a_need_that_differs_from_what_was_lifted_is_our_inconsistency(monkeypatch: pytest.MonkeyPatch) -> None:
    real, counts = fits.lift, []

    def lift(function: Any, *given: Any, **named: Any) -> Any:
        rule = real(function, *given, **named)
        SWITCH["on"] = False
        return types.SimpleNamespace(replayed=lambda count: (counts.append(count), rule.replayed(count))[1])

    monkeypatch.setitem(SWITCH, "on", True)
    monkeypatch.setattr(fits, "lift", lift)
    with pytest.raises(InconsistencyError, match=r"^TileOp.tile: block_threads of tiled ") as caught:
        audit(op_with(block_threads=lambda cls, call: 64 if SWITCH["on"] else 96), select=["fits"])
    assert caught.value.facts == (f"call: {caught.value.call!r}",)
    assert counts == [256]


def test_what_a_need_says_is_told_in_words() -> None:
    (threads, silent) = audit(
        op_with(block_threads=lambda cls, call: 1025, block_smem_bytes=lambda cls, call: None if call.n else 0),
        select=["fits"],
    ).findings[::-1]
    assert silent.message == (
        "TileOp.tile: tiled states no shared memory of a block for calls that it serves, so that nothing is proved of "
        "it; write the classmethod block_smem_bytes(cls, call), and build with what it gives"
    )
    assert (silent.subject, silent.edit) == ("shared memory", "def block_smem_bytes(cls, call): ...")
    assert threads.facts == {"taken": 1025, "most": 1024}
    assert threads.edit == "refuse calls whose block_threads is above what there is"


@pytest.mark.parametrize("need", fits.NEEDS, ids=lambda need: need.member)
@pytest.mark.parametrize("arch", [90, 103])
def test_a_call_that_is_found_not_to_fit_and_does_is_our_inconsistency(need: Any, arch: int) -> None:
    subject = Subject(selector(Candidate("a", everything, supported_archs=[90, 103]), spec=Placed))
    call = Placed(device="cuda", arch=arch)
    most = MOST_THREADS if need.what == "threads" else KNOWN_ARCHS[90].smem_budget if arch == 90 else None
    assert fits._most(need, call) == most
    least = 1 if need.what == "threads" else 0
    for taken in (least - 1, least, 640, most or 99, (most or 99) + 1, None, 640.0, True):
        rule: Any = types.SimpleNamespace(original=lambda call, taken=taken: taken)
        if type(taken) is int and most is not None and least <= taken <= most:
            with pytest.raises(InconsistencyError, match=f"a is proved to take more {need.what} than there is") as it:
                fits._finding(subject, "a", need, "label", rule, call)
            assert it.value.facts == (f"call: {call!r}", f"{need.member}: {taken}", f"there is: {most}")
            continue
        found = fits._finding(subject, "a", need, "label", rule, call)
        assert found.facts == {"taken": taken, "most": most}
        there = f" where a block has {most}" if most is not None else ""
        assert found.message == (
            f"Op.job: a serves {call!r} and takes {taken} {need.unit}{there}; refuse what does not fit, as "
            f"`if cls.{need.member}(call) > ...: return ...`, or build it smaller"
        )
        assert (found.subject, found.witness) == ("label", call)


def test_a_need_that_raises_is_told_with_what_it_raised() -> None:
    def raises(call: Any) -> int:
        raise KeyError("gone")

    subject, call = Subject(selector(Candidate("a", everything), spec=Placed)), Placed(device="cuda", arch=90)
    rule: Any = types.SimpleNamespace(original=raises)
    found = fits._finding(subject, "a", fits.NEEDS[1], "label", rule, call)
    assert found.message == (
        f"Op.job: block_threads of a raised KeyError: 'gone' on {call!r}, which it serves; refuse the call, or state "
        f"its need"
    )
    assert found.edit == "refuse such calls in refusal, or state their threads"
