from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tileops_rules.archs import KNOWN_ARCHS

from tileops.kernels import tilelang_build
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.attention.gqa.decode import GQADecodeKernel
from tileops.kernels.attention.gqa.decode_layout import DecodeLayout
from tileops.kernels.attention.gqa.decode_shape import DecodeShape
from tileops.kernels.tilelang_build import (
    KernelBuildError,
    Program,
    aligned,
    compile_program,
    load_program,
    target_for,
)

DECODE = "tileops.kernels.attention.gqa.decode_program"
SMALL = {
    "lay": DecodeLayout(8, 2, 64, "float16", "float16", DecodeShape(2, 1, 2)),
    "sm_scale": 0.125,
    "softcap": 0.0,
}


def test_choosing_and_refusing_import_no_tilelang(fresh_python: Callable[..., Any]) -> None:
    program = """
        import dataclasses, sys, torch
        from tileops.kernels.attention.call_spec import AttentionCall
        from tileops.kernels.attention.gqa import decode
        from tileops.kernels.norm.call_spec import LayerNormCall
        from tileops.kernels.norm.layer_norm import LayerNormKernel
        facts = dict(arch=90, sm_count=132, smem_budget=232448)
        call = LayerNormCall(n=8, **facts)
        LayerNormKernel.refusal(call), LayerNormKernel.entry_for(call)
        call = AttentionCall(heads=32, heads_kv=4, dim=128, **facts)
        for kernel in (decode.GQADecodeKernel, decode.GQADecodeBs1Kernel, decode.GQADecodeLongContextKernel):
            kernel.refusal(call), kernel.entry_for(call)
        loaded = [name for name in sys.modules if name.partition(".")[0] in ("tilelang", "tvm", "z3")]
        raise SystemExit(f"imported {loaded}" if loaded else 0)
    """
    done = fresh_python("-c", textwrap.dedent(program))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("arch", "name"), [(80, "sm_80"), (86, "sm_86"), (89, "sm_89"), (90, "sm_90a")])
def test_the_target_is_stated_in_full(arch: int, name: str) -> None:
    assert target_for(arch) == {"kind": "cuda", "arch": name}


def test_every_known_arch_has_a_target() -> None:
    assert set(tilelang_build.TARGET_NAMES) == set(KNOWN_ARCHS)


def test_an_unknown_arch_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(KernelBuildError, match="no kernel is built for arch 75; known are 80, 86") as caught:
        target_for(75)
    assert caught.value.missing == "target"


def test_a_missing_nvcc_is_named_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilelang_build, "nvcc_path", lambda: None)
    with pytest.raises(KernelBuildError, match="needs nvcc") as caught:
        compile_program(DECODE, "decode", 90, lay=None)
    assert caught.value.missing == "nvcc"


def test_a_missing_tilelang_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tilelang", None)
    with pytest.raises(KernelBuildError, match="pip install tilelang") as caught:
        load_program("tileops.kernels.attention.gqa.decode_program")
    assert caught.value.missing == "tilelang"
    assert isinstance(caught.value.__cause__, ImportError)


def test_nvcc_is_found_under_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert tilelang_build.nvcc_path() == str(tmp_path / "bin" / "nvcc")


def test_a_call_whose_facts_are_not_filled_in_has_no_entry() -> None:
    with pytest.raises(TypeError, match=r"AttentionCall\(heads=2\) states no arch"):
        GQADecodeKernel.entry_for(AttentionCall(heads=2))


def test_only_a_tensor_off_a_boundary_is_copied() -> None:
    storage = torch.arange(64, dtype=torch.float16)
    assert aligned(storage) is storage
    assert aligned(storage[8:]).data_ptr() == storage[8:].data_ptr()
    view = storage[1:]
    copy = aligned(view)
    assert copy.data_ptr() % 16 == 0
    assert torch.equal(copy, view)


class Library:
    """Stands for a compiled library, whose entry notes what it is called with."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def main(self, *tensors: Any) -> None:
        self.launched.append(tensors)


class Unlinked:
    """Stands for modules that are yet to be linked into a library."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.linked = 0

    def jit(self) -> Library:
        self.linked += 1
        return self.library


class Compiled:
    """Stands for TileLang's kernel."""

    def __init__(self, *, outputs: Any = (), **adapter: Any) -> None:
        self.adapter = types.SimpleNamespace(result_idx=list(outputs), **adapter)
        self.called: list[tuple[Any, ...]] = []

    def __call__(self, *tensors: Any) -> None:
        self.called.append(tensors)


def test_a_launch_goes_past_tilelang_to_the_entry_of_the_library() -> None:
    library = Library()
    compiled = Compiled(get_exportable_executable=lambda: library)
    program = Program(compiled)
    program("x", "out")
    program.launch("y", "out")
    assert library.launched == [("x", "out"), ("y", "out")]
    assert compiled.called == []


def test_what_is_not_a_library_yet_is_linked_when_it_is_built_and_not_at_a_launch() -> None:
    library = Library()
    unlinked = Unlinked(library)
    program = Program(Compiled(get_exportable_executable=lambda: unlinked))
    assert unlinked.linked == 1
    program("x")
    program("x")
    assert unlinked.linked == 1
    assert library.launched == [("x",), ("x",)]


@pytest.mark.parametrize(
    "compiled",
    [Compiled(), Compiled(outputs=[1], get_exportable_executable=Library)],
    ids=["runs by other means", "TileLang allocates the outputs"],
)
def test_where_the_entry_does_not_take_what_the_caller_passes_tilelang_is_called(compiled: Compiled) -> None:
    Program(compiled)("x")
    assert compiled.called == [("x",)]


@pytest.mark.compile
def test_the_entry_checks_what_it_is_given_and_the_sources_are_at_hand() -> None:
    program = compile_program(DECODE, "decode", 90, **SMALL)
    assert type(program.launch).__module__.startswith("tvm_ffi")
    with pytest.raises(RuntimeError, match="num_args should be"):
        program(torch.zeros(1))
    assert "__global__" in program.get_kernel_source()
    assert "num_args should be" in program.get_host_source()


@pytest.mark.compile
def test_kernels_that_differ_in_their_launch_alone_share_what_is_compiled() -> None:
    first = compile_program(DECODE, "decode", 90, **SMALL)
    assert compile_program(DECODE, "decode", 90, **SMALL) is first
    assert compile_program(DECODE, "decode", 80, **SMALL) is not first
