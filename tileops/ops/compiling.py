"""Ops inside ``torch.compile``: each call is one node of the graph, and the kernel is chosen when it runs.

What is traced is only the call of :data:`torch.ops.tileops.run <torch.ops>` with the tensors and a text that
names the op: its class, the kernels it was constructed with, its parameters and its modes. Call spec,
selection and caches stay outside the graph, so a new length compiles nothing of ours. Ops with one name are
alike in all that a call depends on: they share a graph, and what is built for the one that was traced serves the
others. torch guards on the text, so an op whose parameter is changed is traced anew.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from tileops.ops.op_base import Op

__all__ = ["MOST_HELD", "NotTraceable", "enrol", "identity_of", "run"]

MOST_HELD: Final = 1024
"""Ops of compiled graphs that are held for when their object is gone. A forgotten one is looked up again."""

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device})


class _Held(NamedTuple):
    """An op of a compiled graph: as it was when it was traced, since the object may change, with its caches."""

    copy: Op
    original: weakref.ref[Op]


_numbers = itertools.count(1)
_lock = threading.Lock()
_living: weakref.WeakValueDictionary[int, Op] = weakref.WeakValueDictionary()
_held: dict[str, _Held] = {}


class NotTraceable(RuntimeError):
    """A compiled graph names an op of which no object is left.

    Attributes:
        identity: The name in the graph.
    """

    def __init__(self, identity: str) -> None:
        super().__init__(
            f"a compiled graph calls {identity!r}, and no such op is alive in this process: construct it with the "
            f"same parameters and kernels and keep it as long as the graph"
        )
        self.identity = identity


def enrol(op: Op) -> None:
    """Let compiled graphs find *op* as long as it lives."""
    _living[next(_numbers)] = op


def identity_of(kind: type, number: int, parameters: Mapping[str, Any], modes: Sequence[str] = ()) -> str:
    """A text that is equal for ops of which every call gives the same.

    Args:
        kind: Class of the op.
        number: Which set of kernels it was constructed with.
        parameters: Its attributes. One that is no plain value makes the text unique.
        modes: Further words that tell ops apart.
    """
    written = [f"{name}={_written(value)}" for name, value in sorted(parameters.items())]
    return f"{kind.__qualname__}#{number}({', '.join([*written, *modes])})"


def run(op: Op, identity: str, tensors: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call *op* from code that is being traced; what is traced is one node.

    Gradients stop here, as kernels record none.

    Raises:
        TypeError: an argument is neither a tensor nor None.
    """
    names = list(named)
    inputs: list[torch.Tensor | None] = []
    for each in (*tensors, *named.values()):
        if each is not None and not isinstance(each, torch.Tensor):
            raise TypeError(
                f"{type(op).__name__} was given a {type(each).__name__} under torch.compile: there an op takes "
                f"tensors and None; make it a parameter of the op's constructor"
            )
        inputs.append(None if each is None else each.detach())
    results = torch.ops.tileops.run(identity, inputs, names)
    return results[0] if len(results) == 1 else tuple(results)


def _written(value: Any) -> str:
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) in (tuple, torch.Size):
        return f"({''.join(f'{_written(each)},' for each in value)})"
    return f"<{type(value).__name__} {next(_numbers)}>"


def _called(identity: str) -> Op:
    """The op that a graph calls.

    Raises:
        NotTraceable: it is neither held nor alive.
    """
    held = _held.get(identity) or _hold(identity)
    if held is None:
        raise NotTraceable(identity)
    return held.copy


def _traced(identity: str) -> Op:
    """The op that is being traced: a living one takes the place of one that is gone."""
    held = _held.get(identity)
    if held is None or held.original() is None:
        held = _hold(identity) or held
    if held is None:
        raise NotTraceable(identity)
    return held.copy


def _hold(identity: str) -> _Held | None:
    """Hold a living op of that name; None where there is none."""
    for reference in _living.valuerefs():
        op = reference()
        if op is not None and op._identity == identity:
            copy = object.__new__(type(op))
            copy.__dict__.update(op.__dict__)
            held = _Held(copy, weakref.ref(op))
            with _lock:
                _held.pop(identity, None)
                while len(_held) >= MOST_HELD:
                    del _held[next(iter(_held))]
                _held[identity] = held
            return held
    return None


def _arguments(
    tensors: Sequence[torch.Tensor | None], names: Sequence[str]
) -> tuple[Sequence[torch.Tensor | None], dict[str, torch.Tensor | None]]:
    count = len(tensors) - len(names)
    return tensors[:count], dict(zip(names, tensors[count:], strict=True))


def _listed(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _run(identity: str, tensors: Sequence[torch.Tensor | None], names: Sequence[str]) -> list[torch.Tensor]:
    positional, named = _arguments(tensors, names)
    return _listed(_called(identity).forward(*positional, **named))


def _described(identity: str, tensors: Sequence[torch.Tensor | None], names: Sequence[str]) -> list[torch.Tensor]:
    positional, named = _arguments(tensors, names)
    return _listed(_traced(identity).empty_result(*positional, **named))


_library: Final = torch.library.Library("tileops", "FRAGMENT")
_library.define("run(str op, Tensor?[] tensors, str[] names) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("run", _run, "CompositeExplicitAutograd")
torch.library.register_fake("tileops::run", _described, lib=_library)
