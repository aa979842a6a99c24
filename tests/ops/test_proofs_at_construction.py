"""Construction with proofs on file: nothing is proved, nothing is written, and never a wrong answer."""

from __future__ import annotations

import importlib
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tileops_rules import Selector
from tileops_rules.code_digest import CodeDigests
from tileops_solver import audit
from tileops_solver.proofs.shelf import Shelf

from tests.speed import holds_within
from tileops import ops
from tileops.backend import register_kernel_type
from tileops.ops import proof
from tileops.ops.op_base import NotProvedError, UnorderedOverlapError

MOST_BESIDES_MS = 10.0
"""What construction may take besides lifting; benchmarks/dispatch.py has the bound without a margin."""

SHOP = '''
from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.op_base import Op


@dataclasses.dataclass(frozen=True)
class ShopCall(CallSpec):
    n: int = 0


class ShopFwdInterface(KernelInterface):
    request = ShopCall

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Return *x*."""


class Sixth(Kernel, ShopFwdInterface):
    @classmethod
    def refusal(cls, call: ShopCall) -> str | None:
        return f"n {call.n} is no multiple of 6" if call.n % 6 else super().refusal(call)

    def forward(self, x: Any) -> Any:
        return x


class Third(Kernel, ShopFwdInterface):
    @classmethod
    def refusal(cls, call: ShopCall) -> str | None:
        return f"n {call.n} leaves another rest than 1" if call.n % 3 != 1 else super().refusal(call)

    def forward(self, x: Any) -> Any:
        return x


class ShopFwdOp(Op):
    kernel_types = {"sixth": Sixth, "third": Third}
    interfaces = {"shop": ShopFwdInterface}
'''


class Shop:
    """A package with one op, and its proofs.

    Attributes:
        folder: Where the package stands.
        path: The file of the op's proofs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "shop_of_two" / "proofs" / "ShopFwdOp.json"
        (folder / "shop_of_two").mkdir()

    def load(self, source: str = SHOP) -> types.ModuleType:
        """The package anew, with this source."""
        (self.folder / "shop_of_two" / "__init__.py").write_text(source)
        importlib.invalidate_caches()
        sys.modules.pop("shop_of_two", None)
        return importlib.import_module("shop_of_two")

    def prove(self) -> types.ModuleType:
        """The package, with its proofs on file."""
        module = self.load()
        shelf = Shelf(read=False, records=True)
        audit(module, proofs=shelf)
        shelf.write()
        assert self.path.exists()
        return module


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.syspath_prepend(str(tmp_path))
    # The sources of a test are written within one second, which is what caches of bytecode tell them apart by.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Shop(tmp_path)
    sys.modules.pop("shop_of_two", None)


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The implementations of each interface of which pairs were proved, as construction went on."""
    asked: list[tuple[str, ...]] = []
    plain = importlib.import_module

    def watched(name: str, *more: Any) -> Any:
        module = plain(name, *more)
        if name != "tileops_solver":
            return module

        def prove_pairs(selector: Any, **options: Any) -> Any:
            asked.append(selector.keys)
            return module.prove_pairs(selector, **options)

        return types.SimpleNamespace(prove_pairs=prove_pairs)

    monkeypatch.setattr(proof.importlib, "import_module", watched)
    return asked


def test_an_op_whose_proofs_are_on_file_proves_nothing(shop: Shop, proved: list[Any]) -> None:
    module = shop.prove()
    before = shop.path.read_text()
    op = module.ShopFwdOp()
    assert proved == []
    assert [op.key_for("shop", module.ShopCall(n=n, arch=90)) for n in (6, 4)] == ["sixth", "third"]
    assert shop.path.read_text() == before


def test_nothing_is_written_at_construction(shop: Shop, proved: list[Any]) -> None:
    shop.load().ShopFwdOp()
    assert proved == [("sixth", "third")]
    assert not shop.path.parent.exists()


CHANGES = {
    "a rule": ("call.n % 3 != 1", "call.n % 3 != 2"),
    "a range": ("n: int = 0", "n: int = 1"),
    "an arch": (
        "class Third(Kernel, ShopFwdInterface):",
        "class Third(Kernel, ShopFwdInterface):\n    supported_archs = [90]",
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_is_proved_again(shop: Shop, proved: list[Any], change: tuple[str, str]) -> None:
    shop.prove()
    changed = shop.load(SHOP.replace(*change))
    changed.ShopFwdOp()
    assert proved == [("sixth", "third")]


def test_a_rule_that_gives_other_reasons_for_the_same_calls_is_not(shop: Shop, proved: list[Any]) -> None:
    shop.prove()
    shop.load(SHOP.replace("is no multiple of 6", "leaves a rest")).ShopFwdOp()
    assert proved == []


def test_an_overlap_is_found_with_the_proofs_of_the_time_before_on_file(shop: Shop) -> None:
    shop.prove()
    overlapping = shop.load(SHOP.replace("call.n % 3 != 1", "call.n % 3 == 1"))
    with pytest.raises(UnorderedOverlapError) as error:
        overlapping.ShopFwdOp()
    assert error.value.witness.n == 0


def test_an_overlap_on_file_is_shown_as_it_was_found(shop: Shop) -> None:
    overlapping = shop.load(SHOP.replace("call.n % 3 != 1", "call.n % 3 == 1"))
    with pytest.raises(UnorderedOverlapError) as plain:
        overlapping.ShopFwdOp()
    shelf = Shelf(read=False, records=True)
    audit(overlapping, proofs=shelf, select=["overlap"])
    shelf.write()
    assert '"found"' in shop.path.read_text()
    with pytest.raises(UnorderedOverlapError) as known:
        overlapping.ShopFwdOp()
    assert str(known.value) == str(plain.value)


def test_a_kernel_that_a_backend_adds_is_proved_with_the_others(shop: Shop, proved: list[Any]) -> None:
    module = shop.prove()
    body = {
        "__module__": "theirs",
        "refusal": classmethod(lambda cls, call: None if call.n % 9 == 8 else "no"),
        "forward": lambda self, x: x,
    }
    register_kernel_type("ShopFwdOp", "theirs", type("Theirs", (module.Kernel, module.ShopFwdInterface), body))
    module.ShopFwdOp()
    assert proved == [("sixth", "theirs", "third")]


def test_a_broken_file_is_a_warning_and_no_more(shop: Shop, proved: list[Any]) -> None:
    module = shop.prove()
    shop.path.write_text("{")
    with pytest.warns(RuntimeWarning, match=r"ShopFwdOp\.json") as caught:
        module.ShopFwdOp()
    assert len(caught) == 1
    assert proved == [("sixth", "third")]


@pytest.mark.parametrize("head", [{"z3": "4.0.0.0"}, {"encoder": 0}])
def test_proofs_of_another_version_are_made_again(shop: Shop, proved: list[Any], head: dict[str, Any]) -> None:
    module = shop.prove()
    shop.path.write_text(json.dumps({**json.loads(shop.path.read_text()), **head}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.ShopFwdOp()
    assert proved == [("sixth", "third")]


def test_a_rule_that_is_not_lifted_is_told_whatever_is_on_file(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.prove()
    monkeypatch.setenv("TILEOPS_PROOF", "strict")
    strange = shop.load(SHOP.replace("call.n % 3 != 1", "hash(call.n) % 3 != 1"))
    with pytest.raises(NotProvedError, match="the rule of third was not lifted"):
        strange.ShopFwdOp()


MEASURED = """
import json, sys, time
import tileops.ops, shop_of_two
from tileops_rules import Rule, selector
from tileops.backend import plugins

spent = {}

def timed(owner, name):
    plain = getattr(owner, name)
    def measured(*args, **more):
        start = time.thread_time()
        try:
            return plain(*args, **more)
        finally:
            spent[name] = spent.get(name, 0.0) + time.thread_time() - start
    setattr(owner, name, measured)

timed(selector, "lift")
timed(Rule, "replayed")
timed(plugins, "ensure_loaded")
kind = shop_of_two.ShopFwdOp
before = set(sys.modules)
besides = []
for _ in range(5):
    spent.clear()
    again = type(kind.__name__, (shop_of_two.Op,), {"__module__": kind.__module__, "kernel_types": kind.kernel_types,
                                                    "interfaces": kind.interfaces})
    start = time.thread_time()
    again()
    besides.append((time.thread_time() - start - sum(spent.values())) * 1e3)
tileops.ops.GQADenseFwdOp()
heavy = sorted({"z3", "networkx", "tileops_solver.engine", "tileops_solver.subject", "tilelang"} & set(sys.modules))
sys.stdout.write(json.dumps({"heavy": heavy, "new": sorted(set(sys.modules) - before), "besides": min(besides)}))
"""


def test_construction_with_proofs_on_file_imports_nothing_and_takes_no_time(
    shop: Shop, fresh_python: Callable[..., Any]
) -> None:
    def measured() -> Any:
        done = fresh_python("-W", "error", "-c", MEASURED, cwd=shop.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    shop.prove()
    found = measured()
    assert (found["heavy"], found["new"]) == ([], [])
    holds_within(MOST_BESIDES_MS * 1e-3, lambda: measured()["besides"] * 1e-3)
    shop.path.unlink()
    assert "tileops_solver.engine" in measured()["heavy"], "without the file this is not so"


def test_no_rule_of_our_own_ops_reaches_what_has_no_digest() -> None:
    """Its replay would never be on file, and made anew by each audit and whenever an op is constructed."""
    for name in ops.__all__:
        op = getattr(ops, name)
        for interface in getattr(op, "interfaces", {}):
            selector = Selector.of(op, interface)
            assert selector.rules
            for rule in selector.rules.values():
                assert CodeDigests(selector.spec).of(rule.original)


def test_the_proofs_of_our_own_ops_are_on_file() -> None:
    shelf = Shelf(records=True)
    audit(ops, proofs=shelf)
    assert dict(shelf.missing) == {}, "refresh them with: tileops audit --write-proofs tileops.ops"
    asked = {Path(path) for path in shelf.files}
    assert set(Path(ops.__file__).parents[1].glob("proofs/*")) == asked, "a file of an op that is no more"
