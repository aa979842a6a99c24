"""Plug-ins: called once, taken out whole where they fail."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import subprocess
import threading
import traceback
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tileops_rules import Selector
from tileops_solver import audit

from tileops.backend import BackendError, load_failures, plugins, register_kernel_type, registry
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops import LayerNormFwdOp
from tileops.ops.op_base import Op, UnorderedOverlapError


@dataclasses.dataclass(frozen=True)
class PlugCall(CallSpec):
    n: int = 0


class PlugFwdInterface(KernelInterface):
    request = PlugCall

    @abstractmethod
    def forward(self, x: Any) -> Any: ...


class _Plain(Kernel, PlugFwdInterface):
    def __init__(self, call: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


class InTreeKernel(_Plain):
    @classmethod
    def refusal(cls, call: PlugCall) -> str | None:
        return super().refusal(call) if call.n < 100 else "n is 100 or more"


class OverlappingKernel(_Plain):
    @classmethod
    def refusal(cls, call: PlugCall) -> str | None:
        return super().refusal(call) if call.n > 41 else "n is 41 or less"


class WinningKernel(OverlappingKernel):
    preferred_over = frozenset({"in_tree"})


class XpuKernel(_Plain):
    devices = frozenset({"xpu"})


class PlugFwdOp(Op):
    kernel_types = {"in_tree": InTreeKernel}
    interfaces = {"plug": PlugFwdInterface}


class SecondFwdOp(Op):
    kernel_types = {"in_tree": InTreeKernel}
    interfaces = {"plug": PlugFwdInterface}


XPU = PlugCall(n=1, device=torch.device("xpu"))


@dataclasses.dataclass(frozen=True)
class FakeDistribution:
    name: str
    version: str = "1.2"


@dataclasses.dataclass(frozen=True)
class FakePoint:
    name: str
    call: Callable[[], Any]
    dist: FakeDistribution = FakeDistribution("their-backend")

    def load(self) -> Callable[[], Any]:
        return self.call


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Play installed plug-ins: name to callable."""
    monkeypatch.setattr(plugins, "_state", plugins._State())
    monkeypatch.setattr(plugins, "_mentioned", lambda: True)

    def installed(*points: FakePoint, **calls: Callable[[], Any]) -> None:
        found = [*points, *(FakePoint(name, call) for name, call in calls.items())]
        monkeypatch.setattr(
            importlib.metadata, "entry_points", lambda *, group: found if group == "tileops.backends" else []
        )

    with registry.sandbox(empty=True):
        yield installed


def registers(key: str, kernel: type, op: str = "PlugFwdOp") -> Callable[[], None]:
    return lambda: register_kernel_type(op, key, kernel)


def test_a_plug_in_is_called_once_at_the_first_construction(install: Any) -> None:
    calls: list[int] = []

    def backend() -> None:
        calls.append(1)
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)

    install(xpu=backend)
    assert calls == []
    assert PlugFwdOp().key_for("plug", XPU) == "xpu"
    SecondFwdOp()
    PlugFwdOp()
    assert calls == [1]
    assert load_failures() == {}


def test_threads_that_construct_at_once_call_it_once_and_all_see_it(install: Any) -> None:
    calls: list[int] = []
    entered = threading.Event()

    def backend() -> None:
        calls.append(1)
        entered.wait(0.1)
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)

    install(xpu=backend)
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(PlugFwdOp().key_for("plug", XPU))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, keys) == ([1], ["xpu"] * 8)


def test_a_plug_in_whose_kernel_overlaps_is_taken_out_whole_with_the_witness(install: Any) -> None:
    def backend() -> None:
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
        register_kernel_type("PlugFwdOp", "theirs", OverlappingKernel)
        register_kernel_type("SecondFwdOp", "xpu", XpuKernel)

    install(theirs=backend)
    with pytest.warns(RuntimeWarning, match="their-backend 1.2") as caught:
        op = PlugFwdOp()
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "'theirs'" in text
    assert "PlugCall(device=device(type='cuda')" in text
    assert "n=42" in text
    error = load_failures()["theirs"]
    assert isinstance(error, UnorderedOverlapError)
    assert error.witness.n == 42
    assert registry.registrations("PlugFwdOp") == registry.registrations("SecondFwdOp") == ()
    assert op.key_for("plug", PlugCall(n=50, arch=90)) == "in_tree"
    with pytest.raises(RuntimeError, match="in-tree kernels do not run on xpu"):
        op.key_for("plug", XPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PlugFwdOp()


def test_a_plug_in_with_a_declared_winner_is_taken_in(install: Any) -> None:
    install(theirs=registers("theirs", WinningKernel))
    op = PlugFwdOp()
    assert op.key_for("plug", PlugCall(n=50, arch=90)) == "theirs"
    assert op.key_for("plug", PlugCall(n=41, arch=90)) == "in_tree"


@pytest.mark.parametrize(
    ("key", "kernel", "fragment"),
    [
        ("in_tree", XpuKernel, "reuse keys it has"),
        ("NotSnake", XpuKernel, "is not snake_case"),
        (
            "stray",
            type("Stray", (Kernel,), {"forward": lambda self, x: x}),
            "implement none of its kernel interfaces",
        ),
        ("lonely", type("Lonely", (PlugFwdInterface,), {"forward": lambda self, x: x}), "does not implement"),
    ],
)
def test_a_plug_in_that_fails_another_construction_check_is_taken_out(
    install: Any, key: str, kernel: type, fragment: str
) -> None:
    install(theirs=registers(key, kernel))
    with pytest.warns(RuntimeWarning, match=fragment):
        PlugFwdOp()
    assert fragment in str(load_failures()["theirs"])
    assert registry.registrations("PlugFwdOp") == ()


def test_a_plug_in_that_raises_leaves_nothing_and_the_others_stay(install: Any) -> None:
    def broken() -> None:
        register_kernel_type("PlugFwdOp", "half", XpuKernel)
        raise OSError("no driver")

    install(broken=broken, good=registers("xpu", XpuKernel))
    with pytest.warns(RuntimeWarning, match=r"'broken' of distribution their-backend 1.2 .*OSError: no driver"):
        op = PlugFwdOp()
    assert list(load_failures()) == ["broken"]
    assert isinstance(load_failures()["broken"], OSError)
    assert op.key_for("plug", XPU) == "xpu"


def test_a_plug_in_that_does_not_import_is_kept_as_a_failure(install: Any) -> None:
    class Missing(FakePoint):
        def load(self) -> Any:
            raise ModuleNotFoundError("No module named 'their_backend'")

    install(Missing("missing", lambda: None))
    with pytest.warns(RuntimeWarning, match="No module named 'their_backend'"):
        PlugFwdOp()
    assert isinstance(load_failures()["missing"], ModuleNotFoundError)


def test_only_the_culprit_of_two_plug_ins_is_taken_out(install: Any) -> None:
    install(bad=registers("theirs", OverlappingKernel), good=registers("xpu", XpuKernel))
    with pytest.warns(RuntimeWarning, match="'bad'"):
        op = PlugFwdOp()
    assert list(load_failures()) == ["bad"]
    assert op.key_for("plug", XPU) == "xpu"


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_two_plug_ins_that_clash_the_later_name_goes_whatever_the_order_of_discovery(
    install: Any, order: tuple[str, str]
) -> None:
    kernels = {"a": type("AKernel", (XpuKernel,), {}), "b": type("BKernel", (XpuKernel,), {})}
    install(*(FakePoint(name, registers(f"xpu_{name}", kernels[name])) for name in order))
    with pytest.warns(RuntimeWarning, match="'b'"):
        op = PlugFwdOp()
    assert list(load_failures()) == ["b"]
    assert op.key_for("plug", XPU) == "xpu_a"


def test_two_distributions_with_one_name_are_told_apart(install: Any) -> None:
    def broken() -> None:
        raise OSError

    install(
        FakePoint("x", broken, FakeDistribution("first", "1")),
        FakePoint("x", broken, FakeDistribution("second", "2")),
    )
    with pytest.warns(RuntimeWarning):
        PlugFwdOp()
    assert list(load_failures()) == ["x", "x (second 2)"]


def test_a_direct_registration_is_not_undone(install: Any) -> None:
    install(good=registers("xpu", XpuKernel))
    register_kernel_type("PlugFwdOp", "mine", OverlappingKernel)
    for _ in range(2):
        with pytest.raises(UnorderedOverlapError):
            PlugFwdOp()
    assert {each.key for each in registry.registrations("PlugFwdOp")} == {"mine", "xpu"}
    assert load_failures() == {}


def test_a_plug_in_that_takes_a_registered_key_is_taken_out(install: Any) -> None:
    register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
    install(theirs=registers("xpu", XpuKernel))
    with pytest.warns(RuntimeWarning, match="already"):
        PlugFwdOp()
    assert isinstance(load_failures()["theirs"], BackendError)
    assert len(registry.registrations("PlugFwdOp")) == 1


def test_strict_raises_the_overlap_each_time(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_PROOF", "strict")
    install(theirs=registers("theirs", OverlappingKernel))
    with pytest.warns(RuntimeWarning, match="their-backend 1.2"), pytest.raises(UnorderedOverlapError):
        PlugFwdOp()
    with pytest.raises(UnorderedOverlapError):
        PlugFwdOp()
    SecondFwdOp()
    assert isinstance(load_failures()["theirs"], UnorderedOverlapError)
    assert registry.registrations("PlugFwdOp") == ()


def test_strict_raises_what_a_plug_in_raised(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no driver")

    monkeypatch.setenv("TILEOPS_PROOF", "strict")
    install(theirs=broken)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(BackendError, match="no driver") as error:
                PlugFwdOp()
        assert isinstance(error.value.__cause__, OSError)
        assert (error.value.plugin, error.value.distribution) == ("theirs", "their-backend 1.2")


def banded(name: str, low: int, high: int, *preferred: str) -> type[Kernel]:
    """A kernel for ``low <= n < high`` that wins over *preferred*."""

    def refusal(cls: Any, call: Any) -> str | None:
        return None if low <= call.n < high else f"n {call.n} is not from {low} to {high}"

    members = {"refusal": classmethod(refusal), "preferred_over": frozenset(preferred)}
    return type(name, (_Plain,), members)


def test_what_plug_ins_and_callers_register_is_chosen_alike_in_every_order(install: Any) -> None:
    """Every order of five registrations, and every way to give them to two plug-ins and the caller."""
    kernels = {
        "rest": type("Rest", (_Plain,), {"general": True}),
        "low": banded("Low", 0, 30, "in_tree"),
        "middle": banded("Middle", 20, 60, "low", "in_tree"),
        "high": banded("High", 50, 300, "middle", "in_tree"),
        "far": banded("Far", 250, 900, "high"),
    }
    calls = [
        PlugCall(n=n, arch=arch) for n in (0, 19, 20, 29, 30, 49, 50, 99, 250, 299, 300, 899, 900) for arch in (80, 90)
    ]
    seen = set()
    for turn, order in enumerate(itertools.permutations(kernels)):
        first, second, direct = order[: turn % 4], order[turn % 4 : 4], order[4:]

        def register(keys: tuple[str, ...]) -> Callable[[], None]:
            return lambda: [register_kernel_type("PlugFwdOp", key, kernels[key]) for key in keys] and None

        plugins._state = plugins._State()
        with registry.sandbox(empty=True):
            names = ("a", "b") if turn % 2 else ("b", "a")
            install(*(FakePoint(name, register(keys)) for name, keys in zip(names, (first, second), strict=True)))
            register(direct)()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                op = PlugFwdOp()
            seen.add((tuple(op.key_for("plug", call) for call in calls), str(op.explain("plug", calls[0]))))
    assert len(seen) == 1
    ((keys, _),) = seen
    assert keys[::2] == (
        *("low", "low", "middle", "middle", "middle", "middle"),
        *("high", "high", "far", "far", "far", "far", "rest"),
    )


def test_an_error_of_construction_is_shown_once(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, and where plug-ins had to be judged first."""

    def shown(kind: type[Op]) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(UnorderedOverlapError) as error:
                kind()
        return "".join(traceback.format_exception(error.value))

    install(good=registers("xpu", XpuKernel))
    register_kernel_type("PlugFwdOp", "mine", OverlappingKernel)
    texts = [shown(PlugFwdOp)]
    monkeypatch.setattr(plugins, "_state", plugins._State())
    registry.restore({})
    monkeypatch.setenv("TILEOPS_PROOF", "strict")
    install(theirs=registers("theirs", OverlappingKernel))
    texts += [shown(PlugFwdOp), shown(PlugFwdOp)]
    for text in texts:
        assert "During handling" not in text
        assert text.count("UnorderedOverlapError:") == 1


class TestWithRegistered:
    def test_it_holds_what_is_registered_and_loads_plug_ins(self, install: Any) -> None:
        install(theirs=registers("xpu", XpuKernel))
        register_kernel_type("PlugFwdOp", "mine", WinningKernel)
        view = PlugFwdOp.with_registered()
        assert dict(view.kernel_types) == {"in_tree": InTreeKernel, "xpu": XpuKernel, "mine": WinningKernel}
        assert dict(view.interfaces) == {"plug": PlugFwdInterface}
        assert (view.__name__, view.__module__, view.__qualname__) == ("PlugFwdOp", __name__, "PlugFwdOp")
        assert set(PlugFwdOp.kernel_types) == {"in_tree"}

    def test_a_selector_of_it_chooses_as_the_op_does(self, install: Any) -> None:
        register_kernel_type("PlugFwdOp", "mine", WinningKernel)
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
        selector = Selector.of(PlugFwdOp.with_registered(), "plug")
        op = PlugFwdOp()
        for call in (XPU, *(PlugCall(n=n, arch=90) for n in (41, 42, 99, 100))):
            assert selector.select(call) == op.key_for("plug", call)

    def test_an_audit_of_it_finds_what_a_plug_in_brings(self, install: Any) -> None:
        install(theirs=registers("theirs", OverlappingKernel))
        report = audit(PlugFwdOp.with_registered(), select=["overlap"])
        assert [finding.keys for finding in report.findings] == [("in_tree", "theirs")]
        assert audit(PlugFwdOp, select=["overlap"]).findings == ()
        assert load_failures() == {}

    def test_one_that_is_taken_out_is_not_in_it(self, install: Any) -> None:
        def broken() -> None:
            register_kernel_type("PlugFwdOp", "half", XpuKernel)
            raise OSError("no driver")

        install(broken=broken)
        with pytest.warns(RuntimeWarning, match="no driver"):
            assert set(PlugFwdOp.with_registered().kernel_types) == {"in_tree"}

    def test_a_key_of_the_tree_that_is_taken_raises(self, install: Any) -> None:
        register_kernel_type("PlugFwdOp", "in_tree", XpuKernel)
        with pytest.raises(ValueError, match="reuse keys it has"):
            PlugFwdOp.with_registered()


def test_an_interrupted_plug_in_is_called_again_and_leaves_nothing(install: Any) -> None:
    attempts: list[int] = []

    def backend() -> None:
        attempts.append(1)
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
        if len(attempts) == 1:
            raise KeyboardInterrupt

    install(xpu=backend)
    with pytest.raises(KeyboardInterrupt):
        PlugFwdOp()
    assert registry.registrations("PlugFwdOp") == ()
    assert PlugFwdOp().key_for("plug", XPU) == "xpu"
    assert len(attempts) == 2


def test_a_plug_in_may_construct_ops_itself(install: Any) -> None:
    keys: list[str] = []

    def backend() -> None:
        register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
        keys.append(PlugFwdOp().key_for("plug", XPU))

    install(xpu=backend)
    PlugFwdOp()
    assert keys == ["xpu"]


def test_an_object_made_before_keeps_its_kernels(install: Any) -> None:
    install()
    before = PlugFwdOp()
    register_kernel_type("PlugFwdOp", "xpu", XpuKernel)
    after = PlugFwdOp()
    with pytest.raises(RuntimeError, match="in-tree kernels do not run on xpu"):
        before.key_for("plug", XPU)
    assert after.key_for("plug", XPU) == "xpu"
    assert set(before.kernel_types) == {"in_tree"}
    assert set(after.kernel_types) == {"in_tree", "xpu"}
    assert set(PlugFwdOp.kernel_types) == {"in_tree"}


def test_an_installed_distribution_is_found(
    tmp_path: Path, fresh_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    info = tmp_path / "their_backend-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-backend\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[tileops.backends]\ntheirs = their_backend:register\n")
    (tmp_path / "their_backend.py").write_text(
        "from tileops.backend import register_kernel_type\n"
        "from tileops.kernels.norm.layer_norm import LayerNormKernel\n"
        "def register():\n"
        "    register_kernel_type('LayerNormFwdOp', 'theirs', type('Theirs', (LayerNormKernel,), {'general': False}))\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tileops.ops import LayerNormFwdOp\n"
        "from tileops.backend import load_failures\n"
        "op = LayerNormFwdOp()\n"
        "sys.stdout.write(f'{sorted(op.kernel_types)} {type(load_failures()[\"theirs\"]).__name__}')\n"
    )
    done = fresh_python("-c", code)
    assert done.stdout == f"{sorted(LayerNormFwdOp.kernel_types)} UnorderedOverlapError", done.stderr
    assert "RuntimeWarning: backend plug-in 'theirs' of distribution their-backend 3.1" in done.stderr
