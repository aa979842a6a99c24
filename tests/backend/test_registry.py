"""Registering kernels directly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tileops.ops
from tileops.backend import BackendError, register_kernel_type, registry, unclaimed
from tileops.kernels.kernel_base import Kernel
from tileops.ops.op_base import Op


class OneKernel(Kernel):
    def forward(self, x: Any) -> Any:
        return x


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    with registry.sandbox(empty=True):
        yield


def test_a_registration_tells_who_where_and_what() -> None:
    register_kernel_type("SomeFwdOp", "mine", OneKernel)
    (found,) = registry.registrations("SomeFwdOp")
    assert (found.op_name, found.key, found.kernel, found.source) == ("SomeFwdOp", "mine", OneKernel, None)
    assert found.place.startswith(f"{__file__}:")
    assert registry.registrations("OtherFwdOp") == ()


def test_the_same_key_twice_is_an_error_that_names_both_places() -> None:
    register_kernel_type("SomeFwdOp", "mine", OneKernel)
    with pytest.raises(BackendError, match="already") as error:
        register_kernel_type("SomeFwdOp", "mine", OneKernel)
    first, second = error.value.places
    assert first != second
    assert all(place.startswith(f"{__file__}:") and place in str(error.value) for place in (first, second))
    assert (error.value.op_name, error.value.key) == ("SomeFwdOp", "mine")
    assert len(registry.registrations("SomeFwdOp")) == 1


def test_one_key_may_stand_under_two_ops() -> None:
    register_kernel_type("SomeFwdOp", "mine", OneKernel)
    register_kernel_type("OtherFwdOp", "mine", OneKernel)


@pytest.mark.parametrize("kernel", [OneKernel(), lambda: OneKernel(), "OneKernel", None])
def test_what_is_no_class_is_refused(kernel: Any) -> None:
    with pytest.raises(TypeError, match="register the class"):
        register_kernel_type("SomeFwdOp", "mine", kernel)
    assert registry.registrations("SomeFwdOp") == ()


def test_the_op_is_named_by_a_string() -> None:
    with pytest.raises(TypeError, match="'OneKernel'"):
        register_kernel_type(OneKernel, "mine", OneKernel)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key is 5"):
        register_kernel_type("SomeFwdOp", 5, OneKernel)  # type: ignore[arg-type]


def test_a_block_that_raises_registers_nothing_and_keeps_what_was_there() -> None:
    register_kernel_type("SomeFwdOp", "before", OneKernel)

    def half() -> None:
        with registry.registering_as("plug-in"):
            register_kernel_type("SomeFwdOp", "half", OneKernel)
            register_kernel_type("OtherFwdOp", "half", OneKernel)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert [each.key for each in registry.registrations("SomeFwdOp")] == ["before"]
    assert registry.registrations("OtherFwdOp") == ()


def test_what_is_registered_is_the_same_tuple_until_it_changes() -> None:
    register_kernel_type("SomeFwdOp", "one", OneKernel)
    first = registry.registrations("SomeFwdOp")
    register_kernel_type("OtherFwdOp", "one", OneKernel)
    with registry.sandbox():
        register_kernel_type("SomeFwdOp", "two", OneKernel)
        assert registry.registrations("SomeFwdOp") is not first
    assert registry.registrations("SomeFwdOp") is first


class TestUnclaimed:
    def test_a_registration_for_a_name_that_no_op_has_is_listed(self) -> None:
        assert unclaimed() == ()
        register_kernel_type("NobodysFwdOp", "mine", OneKernel)
        register_kernel_type("LayerNormFwdOpp", "mine", OneKernel)
        assert [(each.op_name, each.key) for each in unclaimed()] == [
            ("LayerNormFwdOpp", "mine"),
            ("NobodysFwdOp", "mine"),
        ]
        assert all(each.place.startswith(f"{__file__}:") for each in unclaimed())

    def test_it_is_claimed_as_soon_as_an_op_of_that_name_is_defined(self) -> None:
        register_kernel_type("LateFwdOp", "mine", OneKernel)
        assert len(unclaimed()) == 1
        type("LateFwdOp", (Op,), {})
        assert unclaimed() == ()

    def test_the_ops_of_the_package_are_known_once_they_are_imported(self) -> None:
        for name in tileops.ops.__all__:
            register_kernel_type(name, "mine", OneKernel)
        assert unclaimed() == ()


def test_threads_lose_no_registration() -> None:
    def register(i: int) -> None:
        for j in range(50):
            register_kernel_type("SomeFwdOp", f"key_{i}_{j}", OneKernel)

    threads = [threading.Thread(target=register, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.registrations("SomeFwdOp")) == 400
