"""What a build depends on is in its identity, a length is not, and calls that differ get results of their own.

Every implementation of every op is looked at, those of the reference included. None is built here: what would be
compiled is written down instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from tileops_rules import Selector
from tileops_rules.archs import KNOWN_ARCHS
from tileops_solver import find_call

import tileops.ops
import tileops.reference
from tests.ops.row_norms import ROW_NORMS, listed
from tileops.kernels.attention.call_spec import AttentionCall
from tileops.kernels.call_spec import DEVICE_FACTS
from tileops.kernels.device_facts import DeviceFacts, faked
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.ops import GQADenseFwdOp
from tileops.ops.op_base import Op

CPU = torch.device("cpu")
OF_DEVICE = frozenset({"device", *DEVICE_FACTS})
"""What follows from the device, which the op adds to every identity."""


@dataclasses.dataclass(frozen=True)
class Place:
    """An implementation of an interface of an op."""

    op: type[Op]
    interface: str
    key: str
    kernel: type[Kernel]

    def __str__(self) -> str:
        return f"{self.op.__name__}.{self.interface}.{self.key}"


def with_references(op: type[Op]) -> type[Op]:
    """The op with the reference among its kernels, as installing it would have it."""
    added = {key: kernel for name, key, kernel in tileops.reference.REFERENCES if name == op.__name__}
    return type(op.__name__, (op,), {"kernel_types": {**op.kernel_types, **added}})


def places(*ops: type[Op]) -> Iterator[Place]:
    for op in ops:
        for name, interface in op.interfaces.items():
            for key, kernel in op.kernel_types.items():
                if issubclass(kernel, interface):
                    yield Place(op, name, key, kernel)


OPS = [with_references(getattr(tileops.ops, name)) for name in tileops.ops.__all__]
PLACES = list(places(*OPS))


def on_its_device(place: Place, call: Any) -> Any:
    """*call* with the device and facts that *place* runs on first."""
    if "cuda" not in place.kernel.devices:
        return dataclasses.replace(call, device=torch.device(min(place.kernel.devices)), arch=None)
    arch = max(place.kernel.supported_archs or [90])
    usual = KNOWN_ARCHS[arch]
    facts = {"arch": arch, "sm_count": usual.sm_count, "smem_budget": usual.smem_budget}
    return dataclasses.replace(call, device=torch.device("cuda"), **facts)


def other_values(value: Any) -> list[Any]:
    """Values that a field could have in place of *value*."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value + 16, 2 * value, 4 * value, value // 2, 0, 7]
    if isinstance(value, float) or value is None:
        return [0.25, 3.0, None]
    if isinstance(value, torch.dtype):
        return [torch.float32, torch.float16, torch.bfloat16]
    return []


def variants(place: Place) -> dict[str, list[Any]]:
    """Served calls that differ from the first in one field, by field; the first stands under no name."""
    selector = Selector.of(place.op, place.interface)
    claims = selector.claims(place.key)
    assert claims is not None
    base = on_its_device(place, find_call(claims & selector.valid).call)
    assert serves(selector, place.key, base), base
    found: dict[str, list[Any]] = {"": [base]}
    for field in dataclasses.fields(base):
        if field.name in OF_DEVICE:
            continue
        value = getattr(base, field.name)
        calls = [dataclasses.replace(base, **{field.name: each}) for each in other_values(value) if each != value]
        found[field.name] = [call for call in calls if serves(selector, place.key, call)]
    return found


def serves(selector: Selector, key: str, call: Any) -> bool:
    try:
        return selector.said(key, call).status == "serves"
    except (TypeError, ValueError):  # no such call
        return False


@dataclasses.dataclass(frozen=True)
class Written:
    """What would have been compiled."""

    asked: tuple[Any, ...]
    parameters: dict[str, Any]
    launch: None = None


def written(*asked: Any, **parameters: Any) -> Written:
    return Written(asked, parameters)


def plain(value: Any) -> Any:
    """*value*, or what it holds where it is only equal to itself."""
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    kind = type(value)
    if kind.__module__.startswith("tileops.kernels") and kind.__eq__ is object.__eq__:
        return kind, {name: plain(each) for name, each in vars(value).items()}
    return value


def built(kernel: type[Kernel], builder: Callable[[], Kernel]) -> dict[str, Any]:
    """What the built kernel holds; what it would have compiled stands there as the arguments."""
    compiling = [m for name, m in sorted(sys.modules.items()) if name.startswith("tileops.kernels.")]
    with contextlib.ExitStack() as patches:
        for module in compiling:
            if hasattr(module, "compile_program"):
                patches.enter_context(mock.patch.object(module, "compile_program", written))
        return {name: plain(each) for name, each in vars(builder()).items()}


def recording(call: Any) -> tuple[Any, set[str]]:
    """A copy of *call* and the names of its fields that were read."""
    read: set[str] = set()
    names = frozenset(field.name for field in dataclasses.fields(call))

    def __getattribute__(self: Any, name: str) -> Any:  # noqa: N807
        if name in names:
            read.add(name)
        return object.__getattribute__(self, name)

    kind = type(type(call).__name__, (type(call),), {"__getattribute__": __getattribute__})
    copy = object.__new__(kind)
    copy.__dict__.update(call.__dict__)
    return copy, read


def faults(place: Place) -> Iterator[str]:
    """Where the identity of a build leaves out what the build depends on."""
    calls = variants(place)
    (base,) = calls.pop("")
    entry_for = place.kernel.entry_for
    identity, builder = entry_for(base)
    first = built(place.kernel, builder)
    assert built(place.kernel, entry_for(base)[1]) == first
    told_apart = set()
    for field, others in calls.items():
        for other in others:
            its_identity, its_builder = entry_for(other)
            if its_identity != identity:
                told_apart.add(field)
            elif built(place.kernel, its_builder) != first:
                yield f"{place}: {field} changes what is built and not the identity: {base!r} and {other!r}"
    copy, read = recording(base)
    _, builder = entry_for(copy)
    read.clear()
    built(place.kernel, builder)
    for field in sorted(read - OF_DEVICE - told_apart):
        yield f"{place}: the builder reads {field}, which is not in the identity"


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_a_build_depends_on_is_in_its_identity(place: Place) -> None:
    assert list(faults(place)) == []


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_parameter_that_no_tensor_shows_is_in_the_identity(place: Place) -> None:
    """Wherever an implementation serves several values of it: left out, it could not reach the kernel at all."""
    calls = variants(place)
    (base,) = calls.pop("")
    identity = place.kernel.entry_for(base)[0]
    served = {field for field in ("eps", "sm_scale", "softcap") if calls.get(field)}
    assert served
    if place.interface == "batch_norm_bwd":
        served.remove("eps")  # a tensor shows it: the reciprocal deviations are given
    for field in served:
        assert all(place.kernel.entry_for(other)[0] != identity for other in calls[field]), field


class TestPlantedFaults:
    def found(self, toys: Any, entry_for: Any) -> list[str]:
        kernel = toys.kernel("Planted", serves=lambda call: call.n < 100, entry_for=classmethod(entry_for))
        op = toys.op({"planted": kernel})
        return list(faults(Place(op, "toy", "planted", kernel)))

    def test_a_field_read_by_the_builder_alone_is_found(self, toys: Any) -> None:
        (fault,) = self.found(toys, lambda cls, call: (call.m, lambda: cls((call.m, call.n * 0))))
        assert "the builder reads n, which is not in the identity" in fault

    def test_a_field_that_is_read_early_and_kept_is_found(self, toys: Any) -> None:
        def entry_for(cls: Any, call: Any) -> Any:
            n = call.n
            return call.m, lambda: cls((call.m, n))

        first, *_ = self.found(toys, entry_for)
        assert "n changes what is built and not the identity" in first

    def test_a_whole_identity_and_a_field_that_changes_nothing_are_no_faults(self, toys: Any) -> None:
        assert self.found(toys, lambda cls, call: (call, lambda: cls(call))) == []
        assert self.found(toys, lambda cls, call: (call.n, lambda: cls((call.n, call.arch)))) == []


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("arch", [80, 89, 90, None])
def test_lengths_from_1_to_8192_need_one_build_a_kernel_or_two_where_clusters_end(
    op: type[Op], arch: int | None
) -> None:
    made = op()
    device = CPU if arch is None else torch.device("cuda")
    for name, interface in op.interfaces.items():
        if not issubclass(interface.request, AttentionCall):
            continue
        for batch, heads, heads_kv in ((1, 32, 4), (3, 5, 1)):
            entries, classes = set(), set()
            for length in range(1, 8193):
                call = AttentionCall(batch, heads, heads_kv, 128, seqlen_kv=length, device=device, arch=arch)
                kernel = op.kernel_types[made.key_for(name, call)]
                classes.add(kernel)
                entries.add((kernel, kernel.entry_for(made.resolve(call))[0]))
            clusters_end = arch == 90 and batch == 1
            assert len(entries) == len(classes) + clusters_end <= 3


def norm_result(kernel: Any, call: LayerNormCall) -> tuple[torch.Tensor, torch.Tensor]:
    (case,) = (case for case in ROW_NORMS if isinstance(kernel, case.reference))
    tensors = case.tensors(3, call.n, dtype=call.dtype, seed=call.n)
    return listed(kernel(*tensors))[0], case.expected((call.n,), call.eps, *tensors)[0]


def attention_result(kernel: Any, call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(call.seqlen_kv)

    def drawn(seqlen: int, heads: int) -> torch.Tensor:
        return torch.randn(call.batch, seqlen, heads, call.dim, generator=draw).to(call.dtype)

    q, k = drawn(call.max_seqlen_q, call.heads), drawn(call.seqlen_kv, call.heads_kv)
    v = drawn(call.seqlen_kv, call.heads_kv)
    position = torch.arange(call.seqlen_kv - call.max_seqlen_q, call.seqlen_kv)[:, None]
    distance = torch.arange(call.seqlen_kv)[None, :] - position
    hidden = torch.zeros(distance.shape, dtype=torch.bool)
    if call.is_causal:
        hidden |= distance > 0
    if call.window_size_left >= 0:
        hidden |= distance < -call.window_size_left
    if call.window_size_right >= 0:
        hidden |= distance > call.window_size_right
    keys, values = (t.double().repeat_interleave(call.heads // call.heads_kv, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), keys)
    scores = scores * (call.dim**-0.5 if call.sm_scale is None else call.sm_scale)
    if call.softcap:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return kernel(q, k, v), torch.einsum("bhqk,bkhd->bqhd", weights, values)


NORM = LayerNormCall(n=24, eps=1e-5, dtype=torch.float32, device=CPU)
ATTENTION = AttentionCall(2, 4, 2, 16, 3, 9, torch.float32, device=CPU)
ONE_FIELD = [
    *(
        (case.op, NORM, name, value)
        for case in ROW_NORMS
        for name, value in [("n", 25), ("eps", 0.5), ("dtype", torch.bfloat16)]
    ),
    *(
        (GQADenseFwdOp, ATTENTION, name, value)
        for name, value in [
            ("batch", 1),
            ("heads", 6),
            ("heads_kv", 4),
            ("dim", 17),
            ("max_seqlen_q", 1),
            ("seqlen_kv", 10),
            ("dtype", torch.float16),
            ("is_causal", True),
            ("sm_scale", 0.5),
            ("softcap", 1.5),
            ("window_size_left", 2),
            ("window_size_right", 0),
        ]
    ),
]


@pytest.mark.parametrize(
    ("kind", "call", "field", "value"), ONE_FIELD, ids=[f"{kind.__name__}-{field}" for kind, _, field, _ in ONE_FIELD]
)
def test_calls_that_differ_in_one_field_and_the_first_again_are_each_right(
    kind: type[Op], call: Any, field: str, value: Any
) -> None:
    """Through one op object and its caches, each against float64; also when every call is a hit."""
    tileops.reference.install()
    op = kind()
    (interface,) = op.interfaces
    result = norm_result if isinstance(call, LayerNormCall) else attention_result
    other = dataclasses.replace(call, **{field: value})
    answers = []
    for each in (call, other, call, other, call):
        found, expected = result(op.kernel_for(interface, each), each)
        tolerance = 4 * torch.finfo(each.dtype).eps
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
        answers.append(expected)
    if field != "dtype":
        assert answers[0].shape != answers[1].shape or not torch.allclose(answers[0], answers[1], rtol=1e-3)
    assert (op.cache_info().misses, op.cache_info().hits) == (2, 3)


def test_devices_that_differ_and_the_first_again_get_what_was_built_for_them(toys: Any) -> None:
    cards = {torch.device("cuda", i): DeviceFacts(arch, 100 + i, 1000 * i) for i, arch in enumerate((90, 80, 90))}
    kernel = toys.kernel(forward=lambda self, x: (self.call.arch, self.call.sm_count, self.launch_device))
    kernel.entry_for = classmethod(lambda cls, call: (call.n, lambda: cls(call)))
    op = toys.op({"one": kernel})()
    with faked(cards):
        for device in (*cards, *reversed(cards), *cards):
            found = op.kernel_for("toy", toys.Call(n=1, device=device))(None)
            assert found == (cards[device].arch, cards[device].sm_count, device)
    assert (op.cache_info().builds, op.cache_info().misses) == (3, 3)
