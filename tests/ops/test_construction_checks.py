"""Every row of the table of construction errors, and what is left behind by a construction that failed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tileops.backend import register_kernel_type
from tileops.kernels.call_spec import CallSpec
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.ops.op_base import Op


def test_a_class_that_inherits_the_interface_but_not_kernel_does_not_implement_it(toys: Any) -> None:
    lonely = toys.kernel("Lonely", bases=(toys.Interface,))
    with pytest.raises(TypeError, match="does not implement ToyFwdInterface") as error:
        toys.op({"lonely": lonely})()
    assert error.value.key == "lonely"
    assert error.value.interface is toys.Interface
    assert "class Lonely(Kernel, ToyFwdInterface)" in str(error.value)


def test_a_class_that_leaves_an_abstract_method_open_does_not_implement_the_interface(toys: Any) -> None:
    unfinished = type("Unfinished", (Kernel, toys.Interface), {})
    with pytest.raises(TypeError, match=r"does not implement ToyFwdInterface: define forward"):
        toys.op({"unfinished": unfinished})()


@pytest.mark.parametrize(
    "forward",
    [
        lambda self: None,
        lambda self, x, y: None,
        lambda self, *, x: None,
        staticmethod(lambda: None),
    ],
    ids=["too few", "too many", "by name only", "static, too few"],
)
def test_a_forward_that_cannot_take_the_arguments_by_position_is_refused(toys: Any, forward: Any) -> None:
    kernel = toys.kernel("Narrow", forward=forward)
    with pytest.raises(TypeError, match="forward does not take ToyFwdInterface's arguments") as error:
        toys.op({"narrow": kernel})()
    assert error.value.method == "forward"


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, other_name: None,
        lambda self, x, further=None: None,
        lambda self, *everything, **named: None,
        lambda self, x, /: None,
        staticmethod(lambda x: None),
    ],
)
def test_a_forward_that_takes_the_arguments_by_position_passes(toys: Any, forward: Any) -> None:
    toys.op({"wide": toys.kernel("Wide", forward=forward)})()


def test_a_forward_must_leave_optional_what_the_interface_leaves_optional(toys: Any) -> None:
    class OptionalFwdInterface(KernelInterface):
        request = toys.Call

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            """Scale."""

    bases = (Kernel, OptionalFwdInterface)
    interfaces = {"optional": OptionalFwdInterface}
    toys.op({"good": toys.kernel("Good", bases=bases, forward=lambda self, x, s=2.0: x)}, interfaces)()
    with pytest.raises(TypeError, match="forward does not take OptionalFwdInterface's arguments"):
        toys.op({"bad": toys.kernel("Bad", bases=bases, forward=lambda self, x, s: x)}, interfaces)()


def test_another_abstract_method_of_the_interface_is_checked_too(toys: Any) -> None:
    from abc import abstractmethod

    class PlannedFwdInterface(toys.Interface):
        @abstractmethod
        def plan(self, rows: int) -> int:
            """Plan."""

    bases = (Kernel, PlannedFwdInterface)
    with pytest.raises(TypeError, match="plan does not take PlannedFwdInterface's arguments"):
        toys.op({"bad": toys.kernel("Bad", bases=bases, plan=lambda self: 1)}, {"planned": PlannedFwdInterface})()


def test_two_general_implementations_of_one_interface_are_refused(toys: Any) -> None:
    kernels = {"one": toys.kernel("One", general=True), "two": toys.kernel("Two", general=True)}
    with pytest.raises(ValueError, match="has more than one general implementation"):
        toys.op(kernels)()


def test_preferences_that_form_a_cycle_are_refused_by_the_keys_on_it(toys: Any) -> None:
    kernels = {
        "one": toys.kernel("One", preferred_over=frozenset({"two"})),
        "two": toys.kernel("Two", preferred_over=frozenset({"three"})),
        "three": toys.kernel("Three", preferred_over=frozenset({"one"})),
    }
    with pytest.raises(ValueError, match="preferences form a cycle through") as error:
        toys.op(kernels)()
    assert all(key in str(error.value) for key in kernels)


def test_classes_of_no_interface_of_the_op_are_named_together(toys: Any) -> None:
    stray = toys.kernel("Stray", bases=(Kernel,))
    other = toys.kernel("Other", bases=(Kernel, toys.OtherInterface), forward=lambda self, x, s: x)
    with pytest.raises(ValueError, match="keys implement none of its kernel interfaces") as error:
        toys.op({"good": toys.kernel(), "stray": stray, "other": other})()
    assert error.value.keys == ("stray", "other")


def test_a_backend_that_takes_a_key_of_the_tree_is_refused_with_the_place(toys: Any) -> None:
    op = toys.op({"mine": toys.kernel()})
    register_kernel_type("ToyFwdOp", "mine", toys.kernel("Foreign"))
    with pytest.raises(ValueError, match="reuse keys it has") as error:
        op()
    assert error.value.keys == ("mine",)
    assert __file__ in error.value.places[0]


def test_a_key_is_snake_case(toys: Any) -> None:
    with pytest.raises(ValueError, match="is not snake_case"):
        toys.op({"NotSnake": toys.kernel()})()


@pytest.mark.parametrize(
    ("members", "fragment"),
    [
        ({"preferred_over": frozenset({"one"})}, "prefers itself"),
        ({"preferred_over": frozenset({"nobody"})}, "prefers nobody, which is no sibling"),
        ({"preferred_over": frozenset({"two"}), "general": True}, "the general implementation prefers"),
    ],
)
def test_a_preference_that_can_have_no_effect_is_refused(toys: Any, members: Any, fragment: str) -> None:
    kernels = {"one": toys.kernel("One", **members), "two": toys.kernel("Two", serves=lambda c: c.n > 3)}
    with pytest.raises(ValueError, match=fragment):
        toys.op(kernels)()


def test_preferring_the_general_implementation_is_only_needless(toys: Any) -> None:
    kernels = {
        "one": toys.kernel("One", preferred_over=frozenset({"two"})),
        "two": toys.kernel("Two", general=True),
    }
    op = toys.op(kernels)()
    assert op.key_for("toy", toys.Call(arch=90)) == "one"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("devices", "cuda"),
        ("devices", frozenset()),
        ("devices", frozenset({1})),
        ("supported_archs", 90),
        ("supported_archs", ["sm_90"]),
        ("supported_archs", [9.0]),
        ("general", "yes"),
        ("preferred_over", "two"),
        ("preferred_over", None),
    ],
)
def test_a_member_of_the_wrong_kind_is_refused_and_names_the_class_it_was_written_in(
    toys: Any, member: str, value: Any
) -> None:
    base = toys.kernel("Base", **{member: value})
    heir = toys.kernel("Heir", bases=(base,))
    with pytest.raises(TypeError, match=rf"{member} is .*written in .*Base") as error:
        toys.op({"one": heir, "two": toys.kernel("Two", general=True)})()
    assert error.value.owner is base


@pytest.mark.parametrize(("member", "value"), [("preferred_over", "two"), ("devices", "cuda")])
def test_a_plain_string_where_a_set_belongs_says_what_to_write(toys: Any, member: str, value: str) -> None:
    kernels = {"one": toys.kernel("One", **{member: value}), "two": toys.kernel("Two", general=True)}
    with pytest.raises(TypeError, match=rf'write {member} = frozenset\(\{{"{value}"\}}\)'):
        toys.op(kernels)()


@pytest.mark.parametrize(
    ("member", "value", "fragment"),
    [
        ("general", True, "more than one general"),
        ("preferred_over", frozenset({"nobody"}), "which is no sibling"),
    ],
)
def test_an_inherited_value_that_is_wrong_names_the_base_class(
    toys: Any, member: str, value: Any, fragment: str
) -> None:
    base = toys.kernel("CommonBase", **{member: value})
    kernels = {"one": toys.kernel("One", bases=(base,)), "two": toys.kernel("Two", bases=(base,))}
    with pytest.raises(ValueError, match=fragment) as error:
        toys.op(kernels)()
    assert "CommonBase" in str(error.value)


@pytest.mark.parametrize("method", ["refusal", "entry_for"])
def test_a_rule_that_is_no_classmethod_is_refused(toys: Any, method: str) -> None:
    kernel = toys.kernel("Plain", **{method: lambda self, call: None})
    with pytest.raises(TypeError, match=f"{method} is no classmethod"):
        toys.op({"plain": kernel})()


def test_what_is_no_class_is_refused(toys: Any) -> None:
    with pytest.raises(TypeError, match="which is no class"):
        toys.op({"one": 5})()
    with pytest.raises(TypeError, match="which is no class"):
        toys.op({}, {"toy": 5})()


@dataclasses.dataclass
class _Thawed:
    n: int = 0


class _Undecorated(CallSpec):
    n: int = 0


@pytest.mark.parametrize("request_type", [None, _Thawed, _Undecorated, 5])
def test_an_interface_names_a_frozen_call_spec(toys: Any, request_type: Any) -> None:
    interface = type("BadFwdInterface", (KernelInterface,), {"request": request_type, "forward": lambda self, x: x})
    with pytest.raises(TypeError, match="request"):
        toys.op({}, {"bad": interface})()


def test_a_key_belongs_to_every_interface_that_its_class_inherits(toys: Any) -> None:
    both = toys.kernel(
        "Both", bases=(Kernel, toys.Interface, toys.OtherInterface), forward=lambda self, x, scale=1.0: x
    )
    op = toys.op({"both": both}, {"toy": toys.Interface, "other": toys.OtherInterface})()
    call = toys.Call(arch=90)
    assert op.key_for("toy", call) == op.key_for("other", call) == "both"


def test_an_op_without_kernels_can_be_constructed(toys: Any) -> None:
    class Composite(Op):
        def forward(self, x: int) -> int:
            return x + 1

    assert Composite()(1) == 2
    with pytest.raises(NotImplementedError, match="defines no forward"):
        toys.op({}, {})()(1)


def test_a_construction_that_failed_leaves_nothing_behind(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = toys.kernel("One", general=True), toys.kernel("Two", general=True)
    op = toys.op({"one": one, "two": two})
    for _ in range(2):
        with pytest.raises(ValueError, match="more than one general"):
            op()
    monkeypatch.setattr(two, "general", False)
    assert op().key_for("toy", toys.Call(arch=90)) == "two"
    monkeypatch.setattr(two, "general", True)
    with pytest.raises(ValueError, match="more than one general"):
        op()


def test_a_subclass_that_does_not_call_its_base_constructor_is_checked_all_the_same(toys: Any) -> None:
    class Silent(toys.op({"one": toys.kernel("One", general="yes")})):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match="general is 'yes'"):
        Silent()


def test_an_op_without_a_constructor_takes_no_arguments(toys: Any) -> None:
    op = toys.op({"one": toys.kernel()})
    with pytest.raises(TypeError, match="takes no arguments"):
        op(5)
    with pytest.raises(TypeError, match="takes no arguments"):
        op(eps=1)


def test_constructing_again_checks_nothing_again(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tileops.ops import selection

    op = toys.op({"one": toys.kernel()})
    op()

    def unexpected(*_: Any) -> None:
        raise AssertionError("checked again")

    monkeypatch.setattr(selection, "check_classes", unexpected)
    op()
    with pytest.raises(AssertionError, match="checked again"):
        toys.op({"one": toys.kernel()})()


def test_an_op_can_be_copied_and_pickled_without_its_kernels(toys: Any, two_devices: Any) -> None:
    import copy

    op = toys.op({"one": toys.kernel()})()
    op.label = "kept"
    call = toys.Call(device=two_devices[0])
    kernel = op.kernel_for("toy", call)
    for other in (copy.copy(op), copy.deepcopy(op)):
        assert other.label == "kept"
        assert other.cache_info().entries == 0
        assert other.kernel_for("toy", call) is not kernel
