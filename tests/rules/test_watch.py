"""The watch by itself: which calls of a rule it lets pass, and when it looks."""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn

import pytest
from tileops_rules.outcome import MARK_START
from tileops_rules.watch import Watch


class Refused(Exception):
    """What the explorer would give the rule up for."""


class Watched:
    """A watch that looks, and what it refused."""

    def __init__(self) -> None:
        self.looking_when_refused: bool | None = None
        self.watch = Watch(frozenset({"mine"}), self.refuse)
        self.watch.looking = True

    def refuse(self, frame: Any, cause: str) -> NoReturn:
        self.looking_when_refused = self.watch.looking
        raise Refused(f"{frame.name}: {cause}")

    def sees(self, event: str, module: str | None, function: Any = None) -> str | None:
        """What a call is refused for, made where a frame of that module runs."""
        back = types.SimpleNamespace(name="back")
        code = types.SimpleNamespace(co_qualname="Some.method")
        frame: Any = types.SimpleNamespace(name="here", f_code=code, f_globals={"__name__": module}, f_back=back)
        try:
            self.watch._look(frame, event, function)
        except Refused as refused:
            assert self.looking_when_refused is False
            return str(refused)
        return None


def built_in(module: str | None, name: str = "work", receiver: Any = None) -> Any:
    return types.SimpleNamespace(__module__=module, __name__=name, __self__=receiver)


def of_torch(name: str) -> type:
    return type(name, (), {"__module__": "torch"})


ALONE = "outside its own package and the allowed modules: a rule is a function of the call alone"


class TestTheWatch:
    def test_it_looks_only_inside_its_context_once_it_is_told_to(self) -> None:
        watch = Watch(frozenset(), lambda frame, cause: pytest.fail(cause))
        before = sys.getprofile(), sys.gettrace()
        assert watch.looking is False
        watch.resume()
        assert watch.looking is False
        with watch.throughout(), watch.over(None):
            assert watch.looking is False
            watch.resume()
            assert watch.looking is True
            watch.pause()
            assert watch.looking is False
            watch.resume()
        assert watch.looking is False
        watch.resume()
        assert watch.looking is False
        assert (sys.getprofile(), sys.gettrace()) == before

    def test_exceptions_are_told_and_lines_are_not(self) -> None:
        told: list[Any] = []
        watch = Watch(frozenset(), lambda frame, cause: pytest.fail(cause))
        watch.over(lambda frame, error: told.append((frame, error)))
        frame: Any = types.SimpleNamespace(f_trace_lines=True)
        error = ValueError("x")
        for event, arg in (("call", None), ("return", 3), ("exception", (ValueError, error, None))):
            assert watch._trace(frame, event, arg) == watch._trace
            assert frame.f_trace_lines is False
        assert told == [(frame, error)]
        watch.over(None)
        watch._trace(frame, "exception", (ValueError, error, None))
        assert len(told) == 1

    @pytest.mark.parametrize(
        ("module", "cause"),
        [
            ("mine", None), ("mine.inner", None), ("math", None), ("tileops_rules.watch", None),
            ("other.mine", f"back: calls other.mine.Some.method, {ALONE}"),
            (None, f"back: calls None.Some.method, {ALONE}"),
        ],
    )  # fmt: skip
    def test_functions_are_called_in_the_package_and_in_allowed_modules(self, module: str, cause: str | None) -> None:
        assert Watched().sees("call", module) == cause
        assert Watched().sees("return", module) is None

    @pytest.mark.parametrize(
        ("function", "cause"),
        [
            (built_in("math"), None),
            (built_in("posix", "getpid"), f"here: calls posix.getpid, {ALONE}"),
            (built_in("builtins", "len", sys.modules["builtins"]), None),
            (built_in("builtins", "print", sys.modules["builtins"]), f"here: calls builtins.print, {ALONE}"),
            (built_in("builtins", "print", 3), None),
            (built_in(None, "upper", "text"), None),
            (built_in(None, "fromkeys", dict), None),
            (built_in(None, "add", 3), None),
            (built_in(None, "flush", sys.__stdout__), f"here: calls _io.TextIOWrapper.flush, {ALONE}"),
            (built_in(None, "numel", of_torch("Size")()), None),
            (built_in(None, "is_floating", of_torch("dtype")()), None),
            (built_in(None, "max", of_torch("finfo")()), None),
            (built_in(None, "max", of_torch("iinfo")), None),
            (built_in(None, "item", of_torch("Tensor")()), f"here: calls torch.Tensor.item, {ALONE}"),
        ],
    )
    def test_built_in_functions_are_those_that_compute(self, function: Any, cause: str | None) -> None:
        assert Watched().sees("c_call", "mine", function) == cause
        assert Watched().sees("c_call", "tileops_rules.views", function) is None
        assert Watched().sees("c_return", "mine", function) is None
        away = Watched()
        away.watch.looking = False
        assert away.sees("c_call", "mine", function) is None

    def test_the_text_of_a_field_is_put_together_and_not_looked_at(self) -> None:
        marked = f"a {MARK_START} b"
        for name in ("upper", "split", "encode"):
            assert Watched().sees("c_call", "mine", getattr(marked, name)) == (
                f"here: looks at the text of a field, by {name}(): compare the field itself"
            )
            assert Watched().sees("c_call", "mine", getattr("a b", name)) is None
        assert Watched().sees("c_call", "mine", marked.format) is None
        assert Watched().sees("c_call", "mine", marked.join) is None
