from __future__ import annotations

import pytest
import torch

from tests.kernels.support import on_arch, serves
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.kernels.norm.layer_norm import MAX_ROW, MIN_ROW, LayerNormKernel, launch_shape


@pytest.mark.parametrize("arch", [80, 86, 89, 90])
@pytest.mark.parametrize("n", [1, 7, 769, 65537, 1 << 28])
def test_every_row_with_an_element_is_served(arch: int, n: int) -> None:
    assert serves(LayerNormKernel, LayerNormCall(n=n, dtype=torch.float32), arch)


@pytest.mark.parametrize("arch", [100, 120])
def test_archs_that_are_not_listed_are_not_run_on(arch: int) -> None:
    assert not serves(LayerNormKernel, LayerNormCall(n=8), arch)


@pytest.mark.parametrize("n", [0, MAX_ROW + 1])
def test_a_refused_row_is_named_with_its_limits(n: int) -> None:
    reason = LayerNormKernel.refusal(on_arch(LayerNormCall(n=n), 90))
    assert reason == f"n {n} is not from {MIN_ROW} to {MAX_ROW}"


def test_the_constructor_refuses_what_the_rule_refuses() -> None:
    with pytest.raises(ValueError, match="n 0 is not from 1 to"):
        LayerNormKernel(0, 1e-5, torch.float16, arch=90)


def test_the_build_identity_is_row_length_epsilon_and_dtype() -> None:
    call = LayerNormCall(n=768, eps=1e-6, dtype=torch.bfloat16)
    identity, _ = LayerNormKernel.entry_for(on_arch(call, 90))
    assert identity == (768, 1e-6, torch.bfloat16)


def test_a_launch_has_a_tile_of_a_power_of_two_and_holds_few_values_a_thread() -> None:
    for n in [*range(1, 1030), 4095, 4096, 4097, 8193, 16384, 16385, 65537, MAX_ROW]:
        shape = launch_shape(n)
        assert shape.tile & (shape.tile - 1) == 0, "other widths are reduced through a replicated layout"
        assert shape.rows * shape.tile // shape.threads <= 64, "more values a thread spill"
        assert n <= shape.tile or shape.rows == 1, "a longer row has a block to itself"
