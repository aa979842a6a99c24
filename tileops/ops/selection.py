"""What is decided once for an op class: its implementations, checked, proved and ready to be chosen from.

The result is kept on the op class under everything that it was made from, so that a second construction costs
a comparison. What fails leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import types
import warnings
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final

from tileops_rules import NoImplementation, Selector
from tileops_rules.extents import Extent, extent_of, is_integer

from tileops.backend import plugins
from tileops.backend.places import outside_stacklevel
from tileops.backend.registry import Registration, registrations
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel
from tileops.ops import proof
from tileops.ops.checks import check_classes, merged
from tileops.ops.errors import UnknownInterface, UnknownKey, WrongCallSpec
from tileops.ops.nearest import NotServed
from tileops.ops.resolving import resolve

__all__ = ["Choice", "Selection", "registered_view", "selection_of"]

_MOST_KEPT: Final = 8
_MEMBERS: Final = ("general", "preferred_over", "devices", "supported_archs", "refusal")

_lock = threading.RLock()
_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """The implementations of one interface of an op.

    Attributes:
        op: Name of the op class.
        interface: Name of the interface.
        request: Its call spec type.
        selector: What decides; its candidates stand in the order of *keys*.
        keys: The keys, sorted.
        classes: The class of each key.
        devices: For each key, the device types it runs on.
        device_types: The device types that any of them runs on.
        general: Where the general implementation stands; -1 where there is none, or no other.
        extent_field: The field that a launch reads off its tensors, if the interface has one.
    """

    op: str
    interface: str
    request: type[CallSpec]
    selector: Selector
    keys: tuple[str, ...]
    classes: tuple[type[Kernel], ...]
    devices: Mapping[str, frozenset[str]]
    device_types: frozenset[str]
    general: int
    extent_field: str | None = None

    @functools.cached_property
    def extent(self) -> Extent | None:
        """How far :attr:`extent_field` may move without a rule answering differently; None where that is not known."""
        return None if self.extent_field is None else extent_of(self.selector, self.extent_field)

    def check(self, call: object) -> None:
        """Check that *call* is of the interface's call spec type, not of another or a subclass.

        Raises:
            WrongCallSpec: it is not.
        """
        if type(call) is not self.request:
            raise WrongCallSpec(self.op, self.interface, self.request, call)

    def index(self, key: str) -> int:
        """Where *key* stands.

        Raises:
            UnknownKey: it is none of this interface.
        """
        try:
            return self.keys.index(key)
        except ValueError:
            raise UnknownKey(self.op, self.interface, key, self.keys) from None

    def decide(self, resolved: CallSpec) -> int:
        """Which implementation runs a call that states its device's facts.

        Raises:
            NotServed: none serves it.
            ValueError: several do, or the call is invalid or outside its domain.
            RefusalError: a refusal raised.
        """
        try:
            return self.selector.pick(resolved)
        except NoImplementation as error:
            raise NotServed(error, self.op, self.interface, self.selector) from None

    def said(self, index: int, resolved: CallSpec) -> tuple[str | None, tuple[str, ...]]:
        """What one implementation says of a call: nothing where it serves, else how it does not and why."""
        entry = self.selector.said(self.keys[index], resolved)
        return (None, ()) if entry.status == "serves" else (entry.status, entry.reasons)


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """Every interface of an op.

    Attributes:
        op: Name of the op class.
        kernel_types: Its implementations, those that backends registered included.
        choices: The interfaces by name.
        number: Tells it from every other selection of this process.
    """

    op: str
    kernel_types: Mapping[str, type[Kernel]]
    choices: Mapping[str, Choice]
    number: int = dataclasses.field(default_factory=_numbers.__next__)

    def choice(self, interface: str) -> Choice:
        """One interface.

        Raises:
            UnknownInterface: the op has none of that name.
        """
        try:
            return self.choices[interface]
        except (KeyError, TypeError):
            raise UnknownInterface(self.op, interface, tuple(self.choices)) from None


def selection_of(op: type[Any]) -> Selection:
    """What was decided for an op class as it is now, with the kernels registered for it now.

    Raises:
        TypeError: a class is not what the contract asks for.
        ValueError: keys, preferences or overlaps are wrong, or ``TILEOPS_PROOF`` is no mode.
        NotProvedError: something is not proved, and ``TILEOPS_PROOF`` is ``strict``.
        BackendError: a plug-in failed, and ``TILEOPS_PROOF`` is ``strict``.
    """
    mode = proof.mode()
    plugins.ensure_loaded()
    if mode == "strict":
        for failure in plugins.failures(op.__name__):
            raise plugins.raised(failure)
    key = _stamp(op, mode)
    kept = op.__dict__.get("_selections", {}).get(key) if key is not None else None
    if kept is not None:
        found: Selection = kept
        return found
    with _lock:
        return _made(op, mode)


def _made(op: type[Any], mode: proof.Mode) -> Selection:
    stamp = _stamp(op, mode)
    selections: dict[Hashable, Selection] = op.__dict__.get("_selections", {})
    if stamp is not None and stamp in selections:
        return selections[stamp]
    added = registrations(op.__name__)
    try:
        selection, open_points = _compose(op, added, mode)
    except (TypeError, ValueError) as error:
        failure = error
    else:
        return _kept(op, stamp, selection, open_points)
    # Outside the handler, so that what is raised from here on does not show the same error twice.
    _without_culprits(op, mode)
    if registrations(op.__name__) == added:
        raise failure
    return _made(op, mode)


def _kept(op: type[Any], stamp: Hashable | None, selection: Selection, open_points: tuple[str, ...]) -> Selection:
    """*selection*, kept on the class; warns about what is not proved."""
    if stamp is not None:
        selections: dict[Hashable, Selection] = op.__dict__.get("_selections", {})
        recent = list(selections.items())[-_MOST_KEPT + 1 :]
        op._selections = {**dict(recent), stamp: selection}
    if open_points:
        warnings.warn(proof.warning(op.__name__, open_points), RuntimeWarning, stacklevel=outside_stacklevel())
    return selection


def _without_culprits(op: type[Any], mode: proof.Mode) -> None:
    """Take out the plug-ins whose kernels make *op* fail, judged in the order in which they were called.

    Raises:
        TypeError, ValueError: *op* fails without any plug-in too, or the mode is ``strict``.
    """
    present = registrations(op.__name__)
    taken = [each for each in present if not isinstance(each.source, plugins.Plugin)]
    _compose(op, taken, mode)
    for plugin in dict.fromkeys(each.source for each in present if isinstance(each.source, plugins.Plugin)):
        trial = [*taken, *(each for each in present if each.source is plugin)]
        try:
            _compose(op, trial, mode)
        except (TypeError, ValueError) as error:
            failure = plugins.reject(plugin, error, op.__name__)
            if mode == "strict":
                raise plugins.raised(failure) from None
        else:
            taken = trial


def _compose(op: type[Any], added: Collection[Registration], mode: proof.Mode) -> tuple[Selection, tuple[str, ...]]:
    """Check and prove an op class with *added*; also what could not be proved, a line each."""
    name = op.__name__
    view = _view(op, added)
    kernel_types = view.kernel_types
    check_classes(name, kernel_types, view.interfaces)
    choices = {interface: _choice(view, interface) for interface in view.interfaces}
    open_points = proof.prove(name, [choice.selector for choice in choices.values()], mode, module=op.__module__)
    return Selection(name, types.MappingProxyType(kernel_types), types.MappingProxyType(choices)), open_points


def registered_view(op: type[Any]) -> type[Any]:
    """A class with the members of *op* that an audit reads, and with the kernels registered for it now.

    Raises:
        KeysReused: a backend took a key of the tree.
    """
    plugins.ensure_loaded()
    return _view(op, registrations(op.__name__), resolve=staticmethod(resolve))


def _view(op: type[Any], added: Collection[Registration], **members: Any) -> type[Any]:
    kernel_types = merged(op.__name__, op.kernel_types, added)
    body = {"kernel_types": kernel_types, "interfaces": dict(op.interfaces), "__module__": op.__module__}
    return type(op.__name__, (), {**body, "__doc__": op.__doc__, "__qualname__": op.__qualname__, **members})


def _choice(view: Any, interface: str) -> Choice:
    selector = Selector.of(view, interface)
    keys = tuple(selector.keys)
    classes = tuple(view.kernel_types[key] for key in keys)
    devices = {key: frozenset(kernel.devices) for key, kernel in zip(keys, classes, strict=True)}
    general = [i for i, kernel in enumerate(classes) if kernel.general] if len(keys) > 1 else []
    face = view.interfaces[interface]
    if face.extent is not None and not is_integer(selector, face.extent):
        raise TypeError(
            f"{view.__name__}.{interface}: extent {face.extent!r} of {face.__name__} is no integer field of "
            f"{face.request.__name__}: name one, or leave it out"
        )
    return Choice(
        op=view.__name__,
        interface=interface,
        request=face.request,
        selector=selector,
        keys=keys,
        classes=classes,
        devices=types.MappingProxyType(devices),
        device_types=frozenset().union(*devices.values()),
        general=general[0] if general else -1,
        extent_field=face.extent,
    )


def _stamp(op: type[Any], mode: proof.Mode) -> Hashable | None:
    """Everything that a selection is made from, as far as it can be compared; None where it cannot."""
    added = registrations(op.__name__)
    parts: list[Hashable] = [mode, added]
    for key, kernel in op.kernel_types.items():
        parts.append((key, *_members(kernel)))
    for each in added:
        parts.append(_members(each.kernel))
    for name, interface in op.interfaces.items():
        request = getattr(interface, "request", None)
        parts.append((name, interface, request, getattr(request, "invalid", None)))
    stamp = tuple(parts)
    try:
        hash(stamp)
    except TypeError:
        return None
    return stamp


def _members(kernel: Any) -> tuple[Hashable, ...]:
    values = (getattr(kernel, member, None) for member in _MEMBERS)
    return (kernel, *(_fixed(value) for value in values))


def _fixed(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    result: Hashable = getattr(value, "__func__", value)
    return result
