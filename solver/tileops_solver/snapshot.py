"""The rules of all ops as one sorted text, and back: what a repository keeps, and a later tree is compared with.

The text is JSON with a clause, a slot or a name on each line. It depends on the rules alone: not on the process, the
machine, the Python version, the order of registration or where the code stands. It reads back to selectors of which
every question can be asked, without the code and without torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tileops_rules import Selector

from tileops_solver.recorded import RecordedSelector
from tileops_solver.snapshot_data import Line, NoStableText, data_of, selector_from
from tileops_solver.targets import TargetError, op_classes, selector_of

__all__ = ["Snapshot", "SnapshotError", "live_selectors", "read_snapshot", "take_snapshot"]

_FORMAT: Final = 1

Name = tuple[str, str]
"""An op and one of its interfaces."""


class SnapshotError(TargetError):
    """A text is no snapshot, or one of another format."""


class Snapshot(Mapping[Name, RecordedSelector]):
    """The rules of some interfaces: ``snapshot["GQADenseFwdOp", "gqa_dense"]`` is a selector.

    ``find_call(predicate, within=selector.valid)`` asks of its valid calls.
    """

    def __init__(self, selectors: Mapping[Name, RecordedSelector]) -> None:
        self._selectors = {name: selectors[name] for name in sorted(selectors)}

    def __getitem__(self, name: Name) -> RecordedSelector:
        return self._selectors[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self._selectors)

    def __len__(self) -> int:
        return len(self._selectors)

    @property
    def text(self) -> str:
        """The snapshot as it is kept."""
        ops: dict[str, dict[str, Any]] = {}
        for (op, interface), selector in self._selectors.items():
            ops.setdefault(op, {})[interface] = data_of(selector)
        return "\n".join(_laid_out({"snapshot": _FORMAT, "ops": ops}, "")) + "\n"


def take_snapshot(selectors: Mapping[Name, Selector]) -> Snapshot:
    """The rules of *selectors* as they are now.

    Args:
        selectors: As :func:`live_selectors` finds them.

    Raises:
        TargetError: a field has values that cannot be written.
    """
    return Snapshot({name: _recorded(name, selector) for name, selector in selectors.items()})


def _recorded(name: Name, selector: Selector) -> RecordedSelector:
    try:
        return selector_from(*name, json.loads(json.dumps(data_of(selector))))
    except NoStableText as error:
        raise TargetError(f"{'.'.join(name)} cannot be recorded: {error}") from error


def live_selectors(targets: Iterable[Any]) -> dict[Name, Selector]:
    """The selectors of every interface in *targets*: modules, op classes or objects, or selectors.

    Raises:
        TargetError: a target is none of these, an interface's table is wrong, or two op classes have one name.
    """
    found: dict[Name, Selector] = {}
    homes: dict[str, Any] = {}
    for target in targets:
        if isinstance(target, Selector):
            found[target.op, target.interface] = target
            continue
        for op in op_classes(target):
            kind = op if isinstance(op, type) else type(op)
            other = homes.setdefault(kind.__name__, kind)
            if other is not kind:
                raise TargetError(
                    f"two op classes are called {kind.__name__}, in {other.__module__} and in {kind.__module__}: "
                    f"a snapshot tells ops apart by name, so rename one or name one target"
                )
            for interface in op.interfaces:
                found[kind.__name__, interface] = selector_of(op, interface)
    return {name: found[name] for name in sorted(found)}


def read_snapshot(text: str) -> Snapshot:
    """The snapshot that reads *text*.

    Raises:
        SnapshotError: it is no snapshot of this format.
    """
    try:
        data = json.loads(text)
        version = data["snapshot"]
        if version != _FORMAT:
            raise SnapshotError(
                f"this is a snapshot of format {version}, and {_FORMAT} is read here: take it anew, with this version"
            )
        return Snapshot(
            {
                (op, interface): selector_from(op, interface, each)
                for op, interfaces in data["ops"].items()
                for interface, each in interfaces.items()
            }
        )
    except SnapshotError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise SnapshotError(f"this is no snapshot of rules: {type(error).__name__}: {error}") from error


def _laid_out(value: Any, indent: str, before: str = "", after: str = "") -> Iterator[str]:
    """JSON with the members of objects sorted, and each item of a list, slot and number on its line."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict) and not isinstance(value, Line):
        items = [(f"{json.dumps(name)}: ", value[name]) for name in sorted(value)]
    elif isinstance(value, list):
        items = [("", item) for item in value]
    if not items:
        yield f"{indent}{before}{json.dumps(value)}{after}"
        return
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    yield f"{indent}{before}{opened}"
    for i, (name, item) in enumerate(items):
        yield from _laid_out(item, indent + "  ", name, "," if i < len(items) - 1 else "")
    yield f"{indent}{closed}{after}"
