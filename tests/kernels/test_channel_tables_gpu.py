"""Every layout that is tried where a kernel of channels is tuned, on a GPU against float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops.ops
from tests.kernels.support import build, on_this_gpu
from tests.kernels.tuned_channels import TUNED
from tests.kernels.tuning_support import forget
from tests.ops.boundary_channels import CHANNEL_RUNS

pytestmark = pytest.mark.gpu


def interface_of(kind: Any, tracked: bool) -> str:
    """The interface by which a kernel is asked, with running statistics or without."""
    names = [
        name
        for op in map(vars(tileops.ops).get, tileops.ops.__all__)
        for name, interface in getattr(op, "interfaces", {}).items()
        if issubclass(kind, interface) and kind in op.kernel_types.values()
    ]
    return next(name for name in names if len(names) == 1 or ("train" in name) is tracked)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", TUNED, ids=lambda kind: kind.__name__)
def test_every_layout_gives_what_float64_gives_and_the_same_twice(kind: Any, dtype: torch.dtype) -> None:
    call = on_this_gpu(dataclasses.replace(TUNED[kind], dtype=dtype))
    if kind.refusal(call) is not None:
        pytest.skip(f"{kind.refusal(call)}")
    runs = CHANNEL_RUNS[interface_of(kind, call.running_dtype is not None)]
    kernel = kind.entry_for(call)[1]()
    for layout in kernel.table.layouts:
        kernel.change_to(layout)
        tensors, again = runs.inputs(call), runs.inputs(call)
        found, twice = kernel(*tensors), kernel(*again)
        runs.check(call, found, tensors)
        pairs = zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, twice)), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), layout


@pytest.mark.parametrize("kind", TUNED, ids=lambda kind: kind.__name__)
def test_a_kernel_is_tuned_on_the_card(kind: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEOPS_TUNING", str(tmp_path))
    forget()
    kernel = build(kind, TUNED[kind])
    kernel.request_tune()
    assert kernel.laid in kernel.table.layouts
    assert list(tmp_path.iterdir()), "what was found is on file"
    forget()
