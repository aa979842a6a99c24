"""Ops under torch.compile with fullgraph=True: one node a call, and the kernel chosen when it runs."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch

import tileops.reference
from tests.ops.row_norms import ROW_NORMS, WEIGHTED, RowNormCase, listed
from tileops.kernels.kernel_base import Kernel
from tileops.kernels.norm.call_spec import LayerNormCall
from tileops.ops import GQADenseFwdOp, LayerNormFwdOp, compiling
from tileops.ops.inputs import InputError
from tileops.ops.op_base import Op

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def reference(no_backends: Any) -> None:
    tileops.reference.install()


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiling, "_held", {})
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Counter:
    """A backend that counts the graphs it is given and keeps them."""

    def __init__(self, backend: str = "eager") -> None:
        self.compile = torch._dynamo.lookup_backend(backend)
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs.append(graph)
        return self.compile(graph, inputs)

    def calls(self) -> list[str]:
        """The ops that the graphs call, by the name they give them."""
        nodes = [node for graph in self.graphs for node in graph.graph.nodes]
        return [node.args[0] for node in nodes if node.target is torch.ops.tileops.run]


def compiled(function: Callable[..., Any], backend: Any = "eager", **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend=backend, fullgraph=True, **options)
    return made


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def kv(length: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(batch, length, 2, 16, seed=length), tensor(batch, length, 2, 16, seed=length + 1)


QUERY = tensor(2, 1, 4, 16, seed=7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_layer_norm_of_any_length_is_one_graph_and_one_build_a_length(backend: str) -> None:
    counter = Counter(backend)
    op = LayerNormFwdOp()
    function = compiled(lambda x, w: op(x, w) + 1, counter, dynamic=True)
    for n in (2, 3, 17, 256, 769):
        x, weight = tensor(4, n), tensor(n, seed=1)
        assert torch.equal(function(x, weight), LayerNormFwdOp()(x, weight) + 1)
    assert len(counter.graphs) == 1
    assert len(counter.calls()) == 1
    assert op.cache_info().builds == 5


@pytest.mark.parametrize("case", ROW_NORMS, ids=str)
def test_a_row_norm_is_one_graph_for_some_rows_few_many_and_none(case: RowNormCase) -> None:
    counter = Counter("aot_eager")
    op = case.made(normalized_shape=8, eps=0.25)
    function = compiled(lambda *tensors: [each * 2 for each in listed(op(*tensors))], counter, dynamic=True)
    graphs = []
    for rows in (5, 40, 3, 0, 6):
        tensors = case.tensors(2, rows, 8, seed=rows)
        for found, expected in zip(function(*tensors), listed(op(*tensors)), strict=True):
            assert torch.equal(found, expected * 2)
            assert found.stride() == (expected * 2).stride()
        graphs.append(len(counter.graphs))
    assert graphs == [1, 1, 1, 2, 2], "torch makes one of its own for sizes of 0"
    assert len(counter.calls()) == 2
    assert op.cache_info().builds == 1


@pytest.mark.parametrize("case", ROW_NORMS, ids=str)
def test_rows_of_no_element_give_what_they_give_in_eager(case: RowNormCase) -> None:
    op = case.made(normalized_shape=0)
    tensors = case.tensors(4, 0, dtype=torch.bfloat16)
    found, expected = (listed(each(*tensors)) for each in (compiled(lambda *each: op(*each), "aot_eager"), op))
    assert [(t.shape, t.dtype, t.stride()) for t in found] == [(t.shape, t.dtype, t.stride()) for t in expected]


@pytest.mark.parametrize("case", WEIGHTED, ids=str)
def test_a_row_norm_takes_transposed_inputs_and_weights_by_name_or_not_at_all(case: RowNormCase) -> None:
    op = case.made(normalized_shape=8)
    tensors = [each.t().contiguous().t() for each in case.tensors(6, 8)]
    inputs, weights = tensors[: len(case.of_input)], tensors[len(case.of_input) :]

    def function(*inputs: torch.Tensor) -> Any:
        return *listed(op(*inputs)), *listed(op(*inputs, **dict(zip(case.of_row, weights, strict=True))))

    for found, expected in zip(compiled(function, "aot_eager")(*inputs), function(*inputs), strict=True):
        assert torch.equal(found, expected)
        assert found.is_contiguous()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decode_loop_is_one_graph_and_one_build(backend: str) -> None:
    counter = Counter(backend)
    op = GQADenseFwdOp(is_causal=True, softcap=2.0)
    function = compiled(lambda q, k, v: op(q, k, v).relu(), counter, dynamic=True)
    eager = GQADenseFwdOp(is_causal=True, softcap=2.0)
    for length in (31, 3, 32, 33, 200, 201):
        assert torch.equal(function(QUERY, *kv(length)), eager(QUERY, *kv(length)).relu())
    assert len(counter.graphs) == 1
    info = op.cache_info()
    assert (info.builds, info.misses, info.hits) == (1, 1, 5)
    function(QUERY, *kv(33))
    assert (op.cache_info().misses, op.cache_info().hits) == (1, 6)


EMPTY = {
    "norm, no row": (lambda: LayerNormFwdOp(8), lambda: (tensor(0, 8, dtype=torch.float16),)),
    "norm, no column": (lambda: LayerNormFwdOp(0), lambda: (tensor(4, 0, dtype=torch.bfloat16),)),
    "norm, no middle": (lambda: LayerNormFwdOp(8), lambda: (tensor(3, 0, 8),)),
    "gqa, no sequence": (GQADenseFwdOp, lambda: (QUERY[:0], *kv(5, batch=0))),
    "gqa, no query": (GQADenseFwdOp, lambda: (QUERY[:, :0], *kv(5))),
    "gqa, no key": (GQADenseFwdOp, lambda: (QUERY, *kv(0))),
}


@pytest.mark.parametrize(("backend", "dynamic"), [("eager", True), ("aot_eager", None), ("aot_eager", True)])
@pytest.mark.parametrize(("make", "inputs"), EMPTY.values(), ids=EMPTY)
def test_empty_inputs_give_what_they_give_in_eager(
    make: Callable[[], Op], inputs: Callable[[], tuple[torch.Tensor, ...]], dynamic: bool | None, backend: str
) -> None:
    op = make()
    result = compiled(lambda *args: op(*args), backend, dynamic=dynamic)(*inputs())
    expected = make()(*inputs())
    assert (result.shape, result.dtype, result.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert torch.equal(result, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_for_some_rows_serves_none_and_some_again(backend: str) -> None:
    op = LayerNormFwdOp(8)
    function = compiled(lambda x: op(x) * 2, backend, dynamic=True)
    for rows in (5, 0, 3, 0, 1):
        x = tensor(rows, 8, seed=rows)
        assert torch.equal(function(x), op(x) * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_ops_of_one_class_in_one_graph_keep_their_parameters(backend: str) -> None:
    counter = Counter(backend)
    fine, coarse = LayerNormFwdOp(8), LayerNormFwdOp(8, eps=0.5)
    function = compiled(lambda x: coarse(fine(x) * 1e-3), counter)
    x = tensor(4, 8)
    expected = torch.nn.functional.layer_norm(x.double(), (8,))
    expected = torch.nn.functional.layer_norm(expected * 1e-3, (8,), eps=0.5)
    torch.testing.assert_close(function(x).double(), expected, rtol=1e-5, atol=1e-8)
    assert len(counter.graphs) == 1
    first, second = counter.calls()
    assert first != second
    assert "eps=1e-05" in first
    assert "eps=0.5" in second


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_copies_share_the_graph_of_the_op_and_outlive_it(duplicate: Callable[[Op], Op]) -> None:
    counter = Counter()
    original = LayerNormFwdOp(8, eps=0.5)
    op: Op = duplicate(original)

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    x = tensor(4, 8)
    expected = LayerNormFwdOp(8, eps=0.5)(x)
    run = compiled(function, counter)
    assert torch.equal(run(original, x), expected)
    del original
    gc.collect()
    assert torch.equal(run(op, x), expected)
    assert len(counter.graphs) == 1


def test_layers_with_equal_ops_share_one_graph_however_many_there_are() -> None:
    class Block(torch.nn.Module):
        def __init__(self, eps: float) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))
            self.norm = LayerNormFwdOp(8, eps=eps)

        def forward(self, x: torch.Tensor) -> Any:
            return x + self.norm(x, self.weight)

    counter = Counter("aot_eager")
    blocks = [Block(0.5) for _ in range(24)]
    layers = [torch.compile(block, backend=counter, fullgraph=True) for block in blocks]
    x = expected = tensor(4, 8)
    for block, layer in zip(blocks, layers, strict=True):
        expected = block(expected).detach()
        x = layer(x).detach()
    assert torch.equal(x, expected)
    assert len(counter.graphs) == 1
    assert blocks[0].norm.cache_info().builds == 1


def test_a_parameter_that_is_changed_is_seen(no_backends: Any) -> None:
    op, other = LayerNormFwdOp(8), LayerNormFwdOp(8)

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    run = compiled(function)
    x = tensor(4, 8) * 1e-3
    before = run(op, x)
    op.eps = 0.5
    assert torch.equal(run(op, x), LayerNormFwdOp(8, eps=0.5)(x))
    assert torch.equal(run(other, x), before)
    del op.eps
    op.eps = 1e-5
    assert torch.equal(run(op, x), before)


class _Scaled(Op):
    """Multiplies by a factor that stands in a list."""

    kernel_types: ClassVar[Any] = {}
    interfaces: ClassVar[Any] = {}

    def __init__(self, *factors: float) -> None:
        self.factors = list(factors)

    def forward(self, x: torch.Tensor) -> Any:
        return tuple(x * factor for factor in self.factors)

    def empty_result(self, x: torch.Tensor) -> Any:
        return tuple(torch.empty_like(x) for _ in self.factors)


def test_an_op_with_mutable_parameters_has_a_graph_of_its_own() -> None:
    counter = Counter()

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    run = compiled(function, counter)
    op, other = _Scaled(2.0, 3.0), _Scaled(2.0, 3.0)
    x = tensor(4)
    assert all(map(torch.equal, run(op, x), (2 * x, 3 * x)))
    assert all(map(torch.equal, run(other, x), (2 * x, 3 * x)))
    assert len(counter.graphs) == 2
    op.factors[1] = 5.0
    assert all(map(torch.equal, run(op, x), (2 * x, 5 * x)))
    assert all(map(torch.equal, run(other, x), (2 * x, 3 * x)))
    op.factors = [7.0, 7.0]
    assert all(map(torch.equal, run(op, x), (7 * x, 7 * x)))


class _NormTwice(Op):
    """Calls another op, and says nothing of its result."""

    kernel_types: ClassVar[Any] = {}
    interfaces: ClassVar[Any] = {}

    def __init__(self) -> None:
        self.norm = LayerNormFwdOp(8)

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(self.norm(x))


def test_an_op_that_only_calls_ops_is_traced_through() -> None:
    counter = Counter()
    op = _NormTwice()
    x = tensor(4, 8)
    assert torch.equal(compiled(lambda x: op(x), counter)(x), op(x))
    assert len(counter.calls()) == 2


def test_arguments_by_name_and_left_out_reach_the_op() -> None:
    op = LayerNormFwdOp(8)
    x, weight, bias = tensor(4, 8), tensor(8, seed=1), tensor(8, seed=2)
    run = compiled(lambda x, w, b: (op(x, bias=b, weight=w), op(x, None, b), op(bias=None, x=x)))
    for found, expected in zip(run(x, weight, bias), (op(x, weight, bias), op(x, None, bias), op(x)), strict=True):
        assert torch.equal(found, expected)


def test_an_op_object_itself_can_be_compiled() -> None:
    x = tensor(4, 8)
    assert torch.equal(torch.compile(LayerNormFwdOp(8), backend="eager", fullgraph=True)(x), LayerNormFwdOp(8)(x))


def test_it_can_be_exported_and_run_when_the_op_is_gone() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = LayerNormFwdOp(8, eps=0.25)

        def forward(self, x: torch.Tensor) -> Any:
            return self.norm(x) + 1

    x = tensor(4, 8)
    program = torch.export.export(Model(), (x,))
    gc.collect()
    assert torch.equal(program.module()(x), LayerNormFwdOp(8, eps=0.25)(x) + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_stop_at_an_op_and_hinder_no_compilation(backend: str) -> None:
    op = LayerNormFwdOp(8)
    x, weight = tensor(4, 8).requires_grad_(), torch.nn.Parameter(tensor(8, seed=1))
    result = compiled(lambda x, w: op(x, w) * w, backend)(x, weight)
    result.sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, op(x.detach(), weight.detach()).sum(0))


def test_an_error_of_the_op_comes_out_as_it_is() -> None:
    op = LayerNormFwdOp(7)
    with pytest.raises(InputError, match=r"does not end in the normalized shape \(7,\)"):
        compiled(lambda x: op(x))(tensor(4, 8))


def test_what_is_no_tensor_is_named_when_it_is_traced() -> None:
    op = LayerNormFwdOp(8)
    with pytest.raises(Exception, match=r"was given a float under torch\.compile"):
        compiled(lambda x: op(x, 2.0))(tensor(4, 8))


def test_tuned_mode_reaches_compiled_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[Kernel] = []
    monkeypatch.setattr(tileops.reference.LayerNormReferenceKernel, "request_tune", lambda self: tuned.append(self))

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    run = compiled(function)
    plain, op = LayerNormFwdOp(8), LayerNormFwdOp(8)
    run(plain, tensor(4, 8))
    op.request_tune()
    run(op, tensor(4, 8))
    assert tuned == [op.kernel_for("layer_norm", LayerNormCall(8, 1e-5, torch.float32, device=torch.device("cpu")))]


def test_an_op_that_may_not_fall_to_the_general_kernel_leaves_its_like_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileops.backend import register_kernel_type
    from tileops.ops.general import FellToGeneral

    class Short(tileops.reference.LayerNormReferenceKernel):
        general = False

        @classmethod
        def refusal(cls, call: Any) -> str | None:
            return super().refusal(call) if call.n < 8 else f"n {call.n} is not below 8"

    monkeypatch.setattr(LayerNormFwdOp, "kernel_types", {})  # its general kernel makes way for this one
    monkeypatch.setattr(tileops.reference.LayerNormReferenceKernel, "general", True)
    register_kernel_type("LayerNormFwdOp", "short", Short)

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    run = compiled(function)
    x = tensor(4, 8)
    op, other = LayerNormFwdOp(8), LayerNormFwdOp(8)
    expected = run(op, x)
    op.when_general = "error"
    with pytest.raises(FellToGeneral):
        run(op, x)
    assert torch.equal(run(other, x), expected)


def test_an_op_constructed_with_other_kernels_has_another_graph() -> None:
    from tileops.backend import register_kernel_type

    class Doubled(tileops.reference.LayerNormReferenceKernel):
        preferred_over = frozenset({"reference_layer_norm"})

        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x, weight, bias)

    def function(op: Op, x: torch.Tensor) -> Any:
        return op(x)

    run = compiled(function)
    x = tensor(4, 8)
    before = LayerNormFwdOp(8)
    register_kernel_type("LayerNormFwdOp", "doubled", Doubled)
    after = LayerNormFwdOp(8)
    assert torch.equal(run(after, x), 2 * run(before, x))
    assert torch.equal(run(before, x), before(x))


def test_a_graph_whose_op_is_gone_and_forgotten_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(compiling.NotTraceable, match=r"LayerNormFwdOp#0\(\).*construct it with the same parameters"):
        torch.ops.tileops.run("LayerNormFwdOp#0()", [tensor(4, 8)], [])


def test_what_is_held_for_graphs_is_bounded_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MOST_HELD", 2)
    ops = [LayerNormFwdOp(8, eps=0.1 * i) for i in range(5)]
    x = tensor(4, 8)
    for op in (*ops, *reversed(ops)):
        assert torch.equal(torch.ops.tileops.run(op._identity, [x], [])[0], op(x))
        assert len(compiling._held) <= 2


def test_parameters_that_print_alike_but_differ_are_told_apart() -> None:
    def identity(**parameters: Any) -> str:
        return compiling.identity_of(LayerNormFwdOp, 1, parameters)

    alike = [1, 1.0, True, "1", (1,), ((1,),), -0.0, 0.0, None, "None", torch.float16, "torch.float16"]
    assert len({identity(a=value) for value in alike}) == len(alike)
    assert identity(a=1, b=(2.0, "x")) == identity(b=(2.0, "x"), a=1)
    assert identity(a=torch.Size([1, 2])) == identity(a=(1, 2))
    assert identity(a="1, b=2") != identity(a="1", b=2)
    assert identity(a=[1]) != identity(a=[1])
    assert identity(a=([1],)) != identity(a=([1],))


def test_importing_the_ops_loads_nothing_of_the_compiler(fresh_python: Any) -> None:
    code = (
        "import sys, tileops.ops, tileops.reference\n"
        "tileops.reference.install(); tileops.ops.LayerNormFwdOp()\n"
        "sys.stdout.write(str([name for name in ('torch._dynamo', 'torch._inductor', 'sympy') if name in sys.modules]))"
    )
    done = fresh_python("-c", code)
    assert done.stdout == "[]", done.stderr
