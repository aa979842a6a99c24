"""The inventory of ops: which hold kernels, and that each says which interfaces they implement."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import tileops.ops
from tileops.kernels.kernel_base import Kernel, KernelInterface
from tileops.kernels.norm.layer_norm import LayerNormKernel
from tileops.ops.dispatch import Dispatcher
from tileops.ops.op_base import Op


def op_classes(package: ModuleType) -> list[type[Op]]:
    """Every op class that a module of *package* defines."""
    modules = [package]
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        modules.append(importlib.import_module(found.name))
    classes = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Op) and each is not Op and each.__module__ == module.__name__
    }
    return sorted(classes, key=lambda each: each.__qualname__)


def holds_kernels(op: type[Any]) -> bool:
    """Whether an op has kernels: in ``kernel_types``, or in an attribute of its own."""
    if op.kernel_types:
        return True
    return any(_is_kernel(each) for name, each in inspect.getmembers_static(op) if name != "kernel_types")


def _is_kernel(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_kernel(each) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_is_kernel(each) for each in value)
    return isinstance(value, Kernel) or (isinstance(value, type) and issubclass(value, Kernel))


def inventory_faults(op: type[Any]) -> Iterator[str]:
    """What is wrong with how an op class holds its kernels."""
    if holds_kernels(op) and not op.interfaces:
        yield f"{op.__qualname__} holds kernels and no interfaces: declare interfaces instead"
    if "entry_for" in vars(op):
        yield f"{op.__qualname__} overrides entry_for, which is its kernels': declare interfaces instead"
    for name in ("kernel_for", "key_for", "_dispatcher"):
        if name in vars(op):
            yield f"{op.__qualname__} has a {name} of its own, a kernel cache: declare interfaces instead"


@pytest.mark.parametrize("op", op_classes(tileops.ops), ids=lambda op: op.__name__)
def test_every_op_that_holds_kernels_declares_their_interfaces(op: type[Op]) -> None:
    assert list(inventory_faults(op)) == []


@pytest.mark.parametrize("op", op_classes(tileops.ops), ids=lambda op: op.__name__)
def test_every_op_is_constructible_without_arguments_and_exported(op: type[Op]) -> None:
    made = op()
    assert isinstance(made._dispatcher, Dispatcher)
    assert getattr(tileops.ops, op.__name__) is op
    for name, interface in op.interfaces.items():
        assert issubclass(interface, KernelInterface)
        assert any(issubclass(kernel, interface) for kernel in op.kernel_types.values()), name


def test_the_inventory_is_not_empty() -> None:
    assert {"GQADenseFwdOp", "LayerNormFwdOp"} <= {op.__name__ for op in op_classes(tileops.ops)}


class _InKernelTypes(Op):
    kernel_types = {"layer_norm": LayerNormKernel}


class _InAnAttribute(Op):
    kernel = LayerNormKernel


class _InACache(Op):
    cache = {1: [LayerNormKernel]}


class _BuildsItself(Op):
    @classmethod
    def entry_for(cls, call: Any) -> Any:
        return call, LayerNormKernel


class _WithoutKernels(Op):
    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("op", [_InKernelTypes, _InAnAttribute, _InACache, _BuildsItself])
def test_a_planted_op_without_interfaces_is_told_to_declare_them(op: type[Op]) -> None:
    assert any("declare interfaces instead" in fault for fault in inventory_faults(op))


def test_an_op_without_kernels_needs_no_interfaces() -> None:
    assert list(inventory_faults(_WithoutKernels)) == []


def test_a_planted_op_is_found_in_a_package(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "planted_ops"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from tileops.ops.op_base import Op\n")
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "hidden.py").write_text(
        "from tileops.ops.op_base import Op\n"
        "from tileops.kernels.norm.layer_norm import LayerNormKernel\n"
        "class PlantedFwdOp(Op):\n"
        "    kernel_types = {'layer_norm': LayerNormKernel}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (op,) = op_classes(importlib.import_module("planted_ops"))
    assert op.__name__ == "PlantedFwdOp"
    assert any("declare interfaces instead" in fault for fault in inventory_faults(op))
