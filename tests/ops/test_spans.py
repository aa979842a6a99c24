"""Calls of which only the extent changes: found without a rule and without a call spec, and never wrongly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tileops.kernels.kernel_base import Kernel
from tileops.ops import dispatch


@pytest.fixture
def along(toys: Any) -> Any:
    """An op of two kernels with a border at 100, and what asks for one of its kernels."""
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    bases = (Kernel, face)
    kernels = {
        "short": toys.kernel("Short", serves=lambda c: c.n < 100, bases=bases, entry_for=classmethod(one_build)),
        "long": toys.kernel("Long", serves=lambda c: c.n >= 100, bases=bases, entry_for=classmethod(one_build)),
    }
    return toys.op(kernels, {"toy": face})


def one_build(cls: Any, call: Any) -> Any:
    return call.m, lambda: cls(call)


def ask(op: Any, toys: Any, n: int, device: torch.device, m: int = 0) -> Any:
    return op.kernel_along("toy", (m, device), n, lambda: toys.Call(n=n, m=m, device=device))


def test_a_growing_extent_asks_rules_at_borders_alone(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    for n in range(1, 300):
        assert type(ask(op, toys, n, two_devices[0])).__name__ == ("Short" if n < 100 else "Long")
    info = op.cache_info()
    assert (info.misses, info.hits, info.builds) == (4, 295, 2), "borders at 13, where a call may be invalid, and 100"


def test_it_is_the_kernel_that_kernel_for_gives(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    for device in two_devices:
        for m in (0, 1):
            for n in (99, 100, 5, 1000):
                call = toys.Call(n=n, m=m, device=device)
                assert ask(op, toys, n, device, m) is op.kernel_for("toy", call)
                assert ask(op, toys, n, device, m) is op.kernel_for("toy", call)


def test_what_is_invalid_or_refused_is_not_remembered(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    kernel = toys.kernel(serves=lambda c: c.n < 100, bases=(Kernel, face), entry_for=classmethod(one_build))
    op = toys.op({"one": kernel}, {"toy": face})()
    for _ in range(2):
        ask(op, toys, 12, two_devices[0], 13)
        ask(op, toys, 14, two_devices[0], 13)
        with pytest.raises(ValueError, match="n and m are both 13"):
            ask(op, toys, 13, two_devices[0], 13)
        with pytest.raises(ValueError, match="does not serve n 100"):
            ask(op, toys, 100, two_devices[0])


def test_a_build_that_changes_with_the_extent_is_found_at_every_value(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    kernel = toys.kernel(bases=(Kernel, face), entry_for=classmethod(lambda cls, call: (call.n, lambda: cls(call))))
    op = toys.op({"one": kernel}, {"toy": face})()
    for n in range(20):
        assert ask(op, toys, n, two_devices[0]).call.n == n
    assert op.cache_info().builds == 20


def test_a_build_that_changes_within_a_rule_is_a_border_of_its_own(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    entry = classmethod(lambda cls, call: (call.n >= 700, lambda: cls(call)))
    op = toys.op({"one": toys.kernel(bases=(Kernel, face), entry_for=entry)}, {"toy": face})()
    for n in [20, *range(650, 750), *range(20, 2000)]:
        assert (ask(op, toys, n, two_devices[0]).call.n >= 700) == (n >= 700)
    info = op.cache_info()
    assert (info.builds, info.misses) == (2, 2)
    spans = sorted(each[:2] for held in op._spans.values() for each in held)
    assert [low for low, _ in spans][-1] == 700
    assert 699 in [high for _, high in spans]


def test_a_length_that_is_built_alone_is_found_again_without_asking(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    asked = []

    def whole(cls: Any, call: Any) -> Any:
        asked.append(call)
        return call, lambda: cls(call)

    op = toys.op({"one": toys.kernel(bases=(Kernel, face), entry_for=classmethod(whole))}, {"toy": face})()
    kernel = ask(op, toys, 500, two_devices[0])
    asked.clear()
    assert ask(op, toys, 500, two_devices[0]) is kernel
    assert asked == []


def test_spans_of_one_extent_are_bounded(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    entry = classmethod(lambda cls, call: (call.n // 10, lambda: cls(call)))
    op = toys.op({"one": toys.kernel(bases=(Kernel, face), entry_for=entry)}, {"toy": face})()
    for n in range(20, 2000):
        assert ask(op, toys, n, two_devices[0]).call.n // 10 == n // 10
    assert {len(held) for held in op._spans.values()} == {dispatch.MOST_SPANS}
    before = dict(op._spans)
    for n in range(1900, 2000):
        assert ask(op, toys, n, two_devices[0]).call.n // 10 == n // 10
    assert before == op._spans, "no search for what there is no room for"


def test_an_interface_without_an_extent_is_asked_for_every_value(toys: Any, two_devices: Any) -> None:
    op = toys.op({"one": toys.kernel(entry_for=classmethod(one_build))})()
    for n in range(20):
        ask(op, toys, n, two_devices[0])
    assert (op.cache_info().misses, op.cache_info().builds) == (20, 1)


def test_a_rule_that_asks_for_remainders_is_asked_for_every_value(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    members = {"bases": (Kernel, face), "entry_for": classmethod(one_build)}
    kernels = {
        "even": toys.kernel("Even", serves=lambda c: c.n % 2 == 0, **members),
        "odd": toys.kernel("Odd", serves=lambda c: c.n % 2 == 1, **members),
    }
    op = toys.op(kernels, {"toy": face})()
    for n in range(20):
        assert type(ask(op, toys, n, two_devices[0])).__name__ == ("Odd" if n % 2 else "Even")


def test_a_changed_parameter_forgets_what_was_found(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    op.scale = 1
    ask(op, toys, 5, two_devices[0])
    before = op.cache_info().hits
    op.scale = 2
    ask(op, toys, 6, two_devices[0])
    assert op.cache_info().hits == before
    del op.scale
    ask(op, toys, 7, two_devices[0])
    assert op.cache_info().hits == before
    ask(op, toys, 8, two_devices[0])
    assert op.cache_info().hits == before + 1


def test_a_copy_begins_empty(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    first = ask(op, toys, 5, two_devices[0])
    assert ask(copy.deepcopy(op), toys, 5, two_devices[0]) is not first


def test_spans_are_bounded_and_hold_no_kernel_that_was_dropped(
    along: Any, toys: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MOST_CALLS", 8)
    monkeypatch.setattr(dispatch, "MOST_ENTRIES", 8)
    monkeypatch.setattr(dispatch, "RENEWAL", 4)
    op = along()
    for m in range(100):
        kernel = ask(op, toys, 5, two_devices[0], m)
        assert kernel.call.m == m
        assert len(op._spans) <= 8
        held = {id(each) for spans in op._spans.values() for _, _, each in spans}
        assert held <= {id(entry.kernel) for entry in op._dispatcher._entries.values()}


def test_a_device_without_an_index_is_asked_for_every_time(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    for n in (1, 2, 3):
        assert ask(op, toys, n, torch.device("cuda")).launch_device == two_devices[0]
    assert not op._spans


def test_what_changes_while_a_call_is_made_is_not_remembered(along: Any, toys: Any, two_devices: Any) -> None:
    op = along()
    op.scale = 1

    def call_of() -> Any:
        call = toys.Call(n=5, m=op.scale, device=two_devices[0])
        op.scale = 2  # as another thread might
        return call

    assert op.kernel_along("toy", two_devices[0], 5, call_of).call.m == 1
    after = toys.Call(n=6, m=2, device=two_devices[0])
    assert op.kernel_along("toy", two_devices[0], 6, lambda: after) is op.kernel_for("toy", after)


def test_an_entry_for_that_fails_far_away_is_remembered_as_far_as_it_builds(toys: Any, two_devices: Any) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": "n"})
    sizes = dict.fromkeys(range(100), "small")
    kernel = toys.kernel(
        bases=(Kernel, face), entry_for=classmethod(lambda cls, call: (sizes[call.n], lambda: cls(call)))
    )
    op = toys.op({"one": kernel}, {"toy": face})()
    for n in range(20):
        ask(op, toys, n, two_devices[0])
    assert (op.cache_info().misses, op.cache_info().builds) == (3, 1), "of 0 to 12 once, of 13, and of all from 14 on"


def test_a_call_that_has_no_hash_is_told_as_elsewhere(along: Any, toys: Any, two_devices: Any) -> None:
    with pytest.raises(TypeError, match="cannot key a dispatch cache"):
        along().kernel_along("toy", 1, 5, lambda: toys.Call(n=5, shape=[1], device=two_devices[0]))


@pytest.mark.parametrize("extent", ["nothing", "shape", "device"])
def test_an_extent_that_is_no_integer_field_is_refused_at_construction(toys: Any, extent: str) -> None:
    face = type("AlongFwdInterface", (toys.Interface,), {"extent": extent})
    with pytest.raises(TypeError, match=f"extent '{extent}' of AlongFwdInterface is no integer field of ToyCall"):
        toys.op({"one": toys.kernel(bases=(Kernel, face))}, {"toy": face})()
