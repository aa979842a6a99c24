"""Every way to normalize rows on a GPU against float64, for all six ops. ``row_support`` has the bound."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from tests.kernels.row_support import (
    DTYPES,
    ROW_NORMS,
    WAYS,
    RowNorm,
    Tensors,
    bounded,
    built,
    check,
    drawn,
    listed,
    row_call,
    same,
)
from tests.kernels.support import DEVICE, build, on_this_gpu

pytestmark = pytest.mark.gpu

LENGTHS = (1, 7, 8, 255, 256, 257, 512, 513, 768, 769, 1024, 1025, 3000, 3584)
LENGTHS += (8192, 8193, 12289, 16384, 16385, 65536, 65537, 262144)
FEW_LENGTHS = (1, 8, 257, 512, 1025, 3000, 8193, 12289, 16384, 16385, 65537, 262144)
"""For the rarer ops: each layout of each way, with the widest loads and the narrowest."""
GUARD = 256
"""Elements of NaN before and after: loads stay aligned behind them."""

NARROW_AND_WIDE = {
    "tiled": (769, 16384),
    "short": (255, 256),
    "held": (769, 12289, 16384),
    "cut": (12289, 16384, 65537),
}
ONE_EACH = {"tiled": 769, "short": 257, "held": 3000, "cut": 12289}


def ways_of(name: str, n: int, dtype: torch.dtype) -> list[str]:
    """The ways that serve rows of *n* elements on an arch that has them all."""
    return [way for way in WAYS if ROW_NORMS[name].kernel(way).refusal(row_call(n, dtype)) is None]


def all_cases() -> list[Any]:
    """Layer normalization in each dtype; the others in one of them, another one for each length."""
    cases = []
    for name in ROW_NORMS:
        lengths = LENGTHS if name in ("layer_norm", "rms_norm") else FEW_LENGTHS
        for i, n in enumerate(lengths):
            for dtype in DTYPES if name == "layer_norm" else [DTYPES[i % 3]]:
                cases += [(name, way, n, dtype) for way in ways_of(name, n, dtype)]
    wide = [("rms_norm", "held", n, dtype) for n in (16385, 32768, 65535, 65536) for dtype in DTYPES[1:]]
    return cases + [case for case in wide if case not in cases]


def each_way(lengths: dict[str, Any]) -> list[Any]:
    """Layer normalization at all *lengths* of each way, the others at one of them."""
    return [
        (name, way, n)
        for (i, name), way in itertools.product(enumerate(ROW_NORMS), WAYS)
        for n in (lengths[way] if name == "layer_norm" else lengths[way][i % len(lengths[way]) :][:1])
    ]


class Fenced:
    """A tensor between guards of NaN."""

    def __init__(self, like: torch.Tensor, *, filled: bool) -> None:
        size = like.numel()
        self.whole = torch.full((size + 2 * GUARD,), float("nan"), dtype=like.dtype, device=like.device)
        self.inside = self.whole[GUARD : GUARD + size].view(like.shape)
        if filled:
            self.inside.copy_(like)

    def guards_stand(self) -> bool:
        return bool(self.whole[:GUARD].isnan().all()) and bool(self.whole[-GUARD:].isnan().all())


@pytest.mark.parametrize(("name", "way", "n", "dtype"), all_cases())
def test_rows_match_float64_bit_by_bit_each_time_and_nothing_beside_them_is_read_or_written(
    name: str, way: str, n: int, dtype: torch.dtype
) -> None:
    kernel = built(name, way, n, dtype)
    for rows in (1, 5, 131):
        norm, tensors = drawn(name, rows, n, dtype)
        held = [Fenced(tensor, filled=True) for tensor in tensors]
        written = [Fenced(tensors[0], filled=False) for _ in range(1 + norm.summed)]
        kernel.launch(*(each.inside for each in held), *(each.inside for each in written))
        results = tuple(each.inside for each in written)
        check(norm, n, results if norm.summed else results[0], tensors)
        assert all(each.guards_stand() for each in (*held, *written))
        for each, tensor in zip(held, tensors, strict=True):
            assert torch.equal(each.inside, tensor), "no input is written"
        for _ in range(3):
            assert same(kernel(*tensors), results if norm.summed else results[0])


@pytest.mark.parametrize("n", [1025, 2048, 2056, 3000, 4096, 7001, 8192])
@pytest.mark.parametrize("name", ROW_NORMS)
def test_the_build_for_few_rows_matches_float64_for_any_number_of_them(name: str, n: int) -> None:
    dtype = DTYPES[n % 3]
    kernel = built(name, "held", n, dtype, few=True)
    assert kernel.few_rows
    for rows in (1, 16, 131):
        norm, tensors = drawn(name, rows, n, dtype)
        results = kernel(*tensors)
        check(norm, n, results, tensors)
        assert same(kernel(*tensors), results)


@pytest.mark.parametrize("n", [8, 256, 512, 3000, 8193, 12289, 16384, 16385, 65536, 262144])
@pytest.mark.parametrize("name", ROW_NORMS)
def test_the_ways_that_serve_a_call_agree(name: str, n: int) -> None:
    dtype = DTYPES[n % 3]
    call = on_this_gpu(row_call(n, dtype))
    kernels = [ROW_NORMS[name].kernel(way) for way in ways_of(name, n, dtype)]
    ways = [build(kernel, call) for kernel in kernels if call.arch in kernel.supported_archs]
    if len(ways) < 2:
        pytest.skip("one way alone serves this length on this GPU")
    norm, tensors = drawn(name, 40, n, dtype)
    found = [listed(kernel(*tensors)) for kernel in ways]
    for where, _, allowed, _ in bounded(norm, n, call.eps, tensors):
        for (out, *sums), (other, *totals) in itertools.combinations(found, 2):
            between = (out[:, where].double() - other[:, where].double()).abs()
            assert bool((between <= 2 * (allowed + torch.finfo(dtype).smallest_normal)).all())
            assert same(tuple(sums), tuple(totals))


@pytest.mark.parametrize(("name", "way", "n"), each_way(NARROW_AND_WIDE))
def test_a_mean_far_above_the_deviation_costs_no_digits(name: str, way: str, n: int) -> None:
    norm, tensors = drawn(name, 33, n, torch.float32, mean=1e4, std=1e-2)
    check(norm, n, built(name, way, n, torch.float32)(*tensors), tensors)


@pytest.mark.parametrize(("name", "way", "n"), each_way(NARROW_AND_WIDE))
@pytest.mark.parametrize("far", [1e4, -1e6])
def test_an_element_far_from_the_rest_costs_these_no_digits(name: str, way: str, n: int, far: float) -> None:
    """Distances are small beside it: one taken from it, or from a mean that is rounded, is some 50 bounds off."""
    kernel = built(name, way, n, torch.float32)
    for column in (0, n // 2):
        norm, tensors = drawn(name, 33, n, torch.float32)
        tensors[0][:, column] = far
        shift = norm.parts(*tensors).shift
        if isinstance(shift, torch.Tensor):
            shift.zero_()  # what is added would hide them
        check(norm, n, kernel(*tensors), tensors, own=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("way", "n"),
    [
        *ONE_EACH.items(),
        *(("held", n) for n in (769, 1023, 4096, 8191, 8192, 12289)),
        ("cut", 65536),
    ],
)
@pytest.mark.parametrize("name", ["layer_norm", "fused_add_layer_norm", "ada_layer_norm"])
def test_what_a_warp_holds_first_costs_no_digits_near_the_mean_or_far(
    name: str, way: str, n: int, dtype: torch.dtype
) -> None:
    """It is the point of those that are looked at once, unless it is more than four deviations from their mean."""
    kernel = built(name, way, n, dtype)
    for far in (0.0, 3.0, 5.0, 1e3, 3e4):
        norm, tensors = drawn(name, 33, n, dtype, mean=100.0, std=1.0)
        tensors[0][:, :: 32 if n % 2 else 128] = 100.0 + far
        check(norm, n, kernel(*tensors), tensors)


@pytest.mark.parametrize(("name", "way", "n"), each_way(NARROW_AND_WIDE))
def test_a_constant_row_gives_what_is_added_after_scaling(name: str, way: str, n: int) -> None:
    norm, tensors = drawn(name, 3, n, torch.float32)
    for tensor in tensors[: 1 + norm.summed]:
        tensor.fill_(1.5e38 if norm.centred else 3.0)
    found = built(name, way, n, torch.float32)(*tensors)
    if not norm.centred:
        check(norm, n, found, tensors)
        return
    made = norm.parts(*tensors)
    gate = torch.as_tensor(made.gate, dtype=torch.float32, device=DEVICE)
    assert torch.equal(listed(found)[0], (made.shift * gate).expand(3, n))


def poisoned_row(norm: RowNorm, n: int, tensors: Tensors, row: int) -> torch.Tensor:
    """What torch makes of a row that is not finite, before anything is scaled; a sum is rounded to the dtype first.

    On the CPU: the fused rms_norm of torch 2.11 for CUDA makes the whole row NaN where its own formula does not.
    """
    values = norm.parts(*tensors).values[row].double().cpu()
    if norm.centred:
        return torch.nn.functional.layer_norm(values, (n,)).to(DEVICE)
    return torch.nn.functional.rms_norm(values, (n,)).to(DEVICE)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("name", "way"), list(itertools.product(ROW_NORMS, WAYS)))
def test_one_bad_element_reaches_its_row_as_torch_has_it_and_no_other(name: str, way: str, poison: float) -> None:
    n = ONE_EACH[way]
    for dtype in (torch.float32, torch.float16) if name == "layer_norm" else (torch.float16,):
        kernel = built(name, way, n, dtype)
        norm, clean = drawn(name, 9, n, dtype)
        before = listed(kernel(*clean))
        for column, which in itertools.product((0, 6, n - 1), range(1 + norm.summed)):
            tensors = tuple(tensor.clone() for tensor in clean)
            tensors[which][4, column] = poison
            out, *sums = (each.clone() for each in listed(kernel(*tensors)))
            expected = poisoned_row(norm, n, tensors, 4)
            assert torch.equal(out[4].isnan(), expected.isnan())
            if norm.centred or math.isnan(poison):
                assert out[4].isnan().all()
            else:
                assert expected.isnan().nonzero().tolist() == [[column]], "an infinity alone is NaN"
                signed = expected * norm.parts(*tensors).scale.double()
                there = ~expected.isnan()
                assert (out[4][there] == 0).all()
                assert torch.equal(out[4][there].signbit(), signed[there].signbit()), (
                    "the others are zeros of their sign"
                )
            out[4] = before[0][4]
            assert torch.equal(out, before[0]), "no other row is reached"
            if norm.summed:
                assert same(sums[0], norm.parts(*tensors).values)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize(("name", "way"), list(itertools.product(["ada_layer_norm", "ada_layer_norm_zero"], WAYS)))
def test_a_bad_scale_shift_or_gate_reaches_its_own_element_alone(name: str, way: str, poison: float) -> None:
    n = ONE_EACH[way]
    kernel = built(name, way, n, torch.float16)
    norm, clean = drawn(name, 9, n, torch.float16)
    before = kernel(*clean)
    for which in range(1, norm.of_input):
        tensors = tuple(tensor.clone() for tensor in clean)
        tensors[which][4, 6] = poison
        out = kernel(*tensors)
        assert not out[4, 6].isfinite()
        out[4, 6] = before[4, 6]
        assert torch.equal(out, before)


@pytest.mark.parametrize("way", WAYS)
def test_a_gate_of_zero_hides_no_bad_row(way: str) -> None:
    n = ONE_EACH[way]
    kernel = built("ada_layer_norm_zero", way, n, torch.float16)
    _, (x, scale, shift, gate) = drawn("ada_layer_norm_zero", 9, n, torch.float16)
    gate.zero_()
    assert torch.equal(kernel(x, scale, shift, gate), torch.zeros_like(x))
    x[4, 6] = float("inf")
    assert kernel(x, scale, shift, gate)[4].isnan().all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name, norm in ROW_NORMS.items() if norm.summed])
def test_a_sum_that_overflows_is_an_infinity_and_a_residual_may_be_the_input_itself(name: str, way: str) -> None:
    n = ONE_EACH[way]
    kernel = built(name, way, n, torch.float16)
    norm, (x, _, *weights) = drawn(name, 9, n, torch.float16)
    check(norm, n, kernel(x, x, *weights), (x, x, *weights))
    x[4, 6] = 6e4
    out, total = kernel(x, x, *weights)
    assert total[4, 6] == float("inf")
    assert torch.equal(total, x + x)
    assert torch.equal(out[4].isnan(), poisoned_row(norm, n, (x, x, *weights), 4).isnan())
