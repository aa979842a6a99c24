"""Batch and instance normalization on CPU tensors, through the references, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileops.reference
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.ops import BatchNormBwdOp, BatchNormFwdOp, InstanceNormFwdOp
from tileops.ops.inputs import InputError

SHAPES = [(4, 3), (2, 5, 7), (3, 4, 5, 6), (2, 3, 2, 3, 4)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def reference(no_backends: Any) -> None:
    tileops.reference.install()


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def doubled(*tensors: torch.Tensor | None) -> list[Any]:
    return [None if each is None else each.double() for each in tensors]


def assert_rounded(result: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(result.dtype).eps, atol=1e-6, equal_nan=True)


def statistics(c: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(c, dtype=dtype, seed=11), tensor(c, seed=12).abs().to(dtype) + 0.1


# ---------------------------------------------------------------------------------------------------------- batch norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_it_is_what_torch_computes_and_moves_what_torch_moves(
    shape: tuple[int, ...], dtype: torch.dtype, training: bool
) -> None:
    x, weight, bias = tensor(*shape, dtype=dtype), tensor(shape[1], seed=1), tensor(shape[1], seed=2)
    running, expected_running = statistics(shape[1]), doubled(*statistics(shape[1]))
    result = BatchNormFwdOp(training, momentum=0.3, eps=1e-3)(x, *running, weight, bias)
    exact = F.batch_norm(x.double(), *expected_running, *doubled(weight, bias), training, 0.3, 1e-3)
    assert (result.dtype, result.shape, result.is_contiguous()) == (dtype, x.shape, True)
    assert_rounded(result, exact)
    for moved, wanted in zip(running, expected_running, strict=True):
        assert_rounded(moved, wanted)


def test_the_running_variance_is_unbiased_and_the_output_is_not() -> None:
    x = torch.tensor([[1.0], [3.0]])
    mean, var = torch.zeros(1), torch.zeros(1)
    result = BatchNormFwdOp(True, momentum=1.0, eps=1e-12)(x, mean, var)
    assert_rounded(result, torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
    assert (mean.item(), var.item()) == (2.0, 2.0)


@pytest.mark.parametrize("running_dtype", [torch.float32, torch.float16])
def test_running_statistics_keep_their_dtype(running_dtype: torch.dtype) -> None:
    x, running = tensor(8, 3, 5, dtype=torch.float16), statistics(3, running_dtype)
    wanted = doubled(*running)
    F.batch_norm(x.double(), *wanted, training=True)
    BatchNormFwdOp(True)(x, *running)
    for moved, exact in zip(running, wanted, strict=True):
        assert moved.dtype == running_dtype
        assert_rounded(moved, exact)


def test_running_statistics_that_are_views_are_moved_where_they_lie() -> None:
    storage = torch.zeros(6)
    x, mean, var = tensor(8, 3), storage[::2], torch.ones(3)
    BatchNormFwdOp(True)(x, mean, var)
    assert_rounded(mean, 0.1 * x.double().mean(dim=0))
    assert storage[1::2].tolist() == [0.0, 0.0, 0.0]
    InstanceNormFwdOp()(tensor(2, 3, 9), mean, var)
    assert storage[1::2].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("given", [("weight",), ("bias",), ()])
@pytest.mark.parametrize("parameters", [torch.float32, torch.float16])
def test_what_is_left_out_is_ones_and_zeros(given: tuple[str, ...], parameters: torch.dtype) -> None:
    x = tensor(4, 3, 5, dtype=torch.float16)
    affine = {name: tensor(3, seed=3, dtype=parameters) for name in given}
    exact = F.batch_norm(x.double(), None, None, **{k: v.double() for k, v in affine.items()}, training=True)
    assert_rounded(BatchNormFwdOp(True)(x, **affine), exact)


@pytest.mark.parametrize("training", [True, False])
def test_one_value_a_channel_is_refused_in_training_alone(training: bool) -> None:
    op, x = BatchNormFwdOp(training), tensor(1, 3)
    if training:
        with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
            F.batch_norm(x, None, None, training=True)
        with pytest.raises(InputError, match="more than 1 value per channel"):
            op(x)
    else:
        running = statistics(3)
        assert_rounded(op(x, *running), F.batch_norm(x.double(), *doubled(*running)))


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4), (2, 3, 0)])
@pytest.mark.parametrize("training", [True, False])
def test_an_empty_batch_gives_an_empty_result_and_moves_nothing(shape: tuple[int, ...], training: bool) -> None:
    op, running = BatchNormFwdOp(training), statistics(3)
    result = op(tensor(*shape, dtype=torch.bfloat16), *running)
    assert (result.shape, result.dtype) == (shape, torch.bfloat16)
    assert op.cache_info().misses == 0
    assert [a.tolist() for a in running] == [b.tolist() for b in statistics(3)]
    wanted = statistics(3)
    F.batch_norm(tensor(*shape), *wanted, training=training)
    assert [a.tolist() for a in running] == [b.tolist() for b in wanted], "as torch has it"


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_a_bad_value_makes_its_channel_nan_and_no_other(poison: float) -> None:
    x = tensor(4, 3, 5)
    x[2, 1, 3] = poison
    result, wanted = BatchNormFwdOp(True)(x), F.batch_norm(x.double(), None, None, training=True)
    assert torch.equal(result.isnan(), wanted.isnan())
    assert result[:, 1].isnan().all()
    assert not result[:, ::2].isnan().any()


def test_statistics_for_the_gradient_are_those_of_the_batch() -> None:
    x = tensor(6, 3, 4)
    result, mean, rstd = BatchNormFwdOp(True, eps=1e-3).with_statistics(x)
    assert_rounded(result, F.batch_norm(x.double(), None, None, training=True, eps=1e-3))
    assert_rounded(mean, x.double().mean(dim=(0, 2)))
    assert_rounded(rstd, 1 / torch.sqrt(x.double().var(dim=(0, 2), correction=0) + 1e-3))


def test_statistics_are_for_training_and_of_something() -> None:
    with pytest.raises(RuntimeError, match="training=True"):
        BatchNormFwdOp().with_statistics(tensor(2, 3))
    with pytest.raises(InputError, match="no element"):
        BatchNormFwdOp(True).with_statistics(tensor(0, 3))


@pytest.mark.parametrize(
    "view",
    [
        lambda: tensor(3, 4, 5).transpose(0, 1),
        lambda: tensor(4, 3, 10)[:, :, ::2],
        lambda: tensor(61)[1:].view(4, 3, 5),
        lambda: tensor(4, 3, 5, 6).contiguous(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "offset", "channels_last"],
)
def test_views_give_the_right_answer_and_stay_as_they_are(view: Any) -> None:
    x = view()
    before = x.clone()
    exact = F.batch_norm(x.double(), None, None, training=True)
    assert_rounded(BatchNormFwdOp(True)(x), exact)
    assert torch.equal(x, before)


BAD_BATCH_NORM: list[tuple[Any, str]] = [
    ((tensor(3),), r"x has shape \(3,\): it needs an axis of samples"),
    ((tensor(2, 3), torch.zeros(3)), "running_var is None and the other"),
    ((tensor(2, 3), None, torch.zeros(3)), "running_mean is None and the other"),
    ((tensor(2, 3), torch.zeros(2), torch.ones(3)), r"running_mean has shape \(2,\), not \(3,\)"),
    ((tensor(2, 3), None, None, torch.ones(4)), r"weight has shape \(4,\), not \(3,\)"),
    ((tensor(2, 3), None, None, torch.ones(3).half()), "weight is torch.float16: convert it to torch.float32$"),
    ((tensor(2, 3).half(), None, None, torch.ones(3), torch.ones(3).half()), "bias is torch.float16 and weight is"),
    ((tensor(2, 3), None, None, torch.ones(3).to("meta")), "weight is on meta and x on cpu"),
]


@pytest.mark.parametrize(("arguments", "fragment"), BAD_BATCH_NORM)
@pytest.mark.parametrize("op", [lambda: BatchNormFwdOp(True), InstanceNormFwdOp])
def test_tensors_that_do_not_go_together_are_named_with_their_values(op: Any, arguments: Any, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment):
        op()(*arguments)


@pytest.mark.parametrize("op", [BatchNormFwdOp, lambda: InstanceNormFwdOp(use_input_stats=False)])
def test_without_running_statistics_there_is_nothing_to_normalize_by(op: Any) -> None:
    with pytest.raises(InputError, match="running_mean is None, and it is what is normalized by"):
        op()(tensor(2, 3, 4))


@pytest.mark.parametrize("argument", [1.0, [1.0]])
def test_what_is_no_tensor_is_a_type_error(argument: Any) -> None:
    for arguments in ((argument,), (tensor(2, 3, 4), None, None, argument)):
        with pytest.raises(TypeError, match=r"pass a torch\.Tensor"):
            BatchNormFwdOp(True)(*arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_a_dtype_without_kernels_is_refused(dtype: torch.dtype) -> None:
    x = tensor(4, 3).to(dtype)
    for op in (BatchNormFwdOp(True), InstanceNormFwdOp()):
        with pytest.raises(InputError, match=f"x is {dtype}: convert it to one of torch.float32, "):
            op(x)
    with pytest.raises(InputError, match=f"BatchNormBwdOp: x is {dtype}"):
        BatchNormBwdOp()(x, x, None, torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("eps", [-1e-5, float("nan"), float("inf")])
def test_epsilon_is_finite_and_not_negative(eps: float) -> None:
    for op in (BatchNormFwdOp, InstanceNormFwdOp):
        with pytest.raises(ValueError, match="eps"):
            op(eps=eps)


def test_training_needs_an_epsilon_above_zero_and_a_momentum_that_is_a_number() -> None:
    with pytest.raises(ValueError, match="above 0"):
        BatchNormFwdOp(True, eps=0.0)
    assert BatchNormFwdOp(eps=0.0).eps == 0.0
    with pytest.raises(TypeError, match="momentum is None"):
        BatchNormFwdOp(True, momentum=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="momentum is 'half', a str: pass a float"):
        BatchNormFwdOp(True, momentum="half")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="eps is '1e-5', a str: pass a float"):
        BatchNormFwdOp(eps="1e-5")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- instance norm


@pytest.mark.parametrize("kind", [BatchNormFwdOp, InstanceNormFwdOp])
@pytest.mark.parametrize("value", [64, 1, "yes", None])
def test_a_number_of_channels_is_not_taken_for_a_switch(kind: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=f"is {value!r}, not True or False; the number of channels is not stated"):
        kind(value)


def test_nothing_is_recorded_for_gradients_on_a_cpu_either() -> None:
    x, weight = tensor(4, 3).requires_grad_(), torch.ones(3, requires_grad=True)
    assert not BatchNormFwdOp(True)(x, weight=weight).requires_grad
    assert not InstanceNormFwdOp()(tensor(2, 3, 5).requires_grad_()).requires_grad


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("kind", ["without", "following", "from"])
def test_instances_are_normalized_as_torch_does(shape: tuple[int, ...], dtype: torch.dtype, kind: str) -> None:
    x, weight, bias = tensor(*shape, dtype=dtype), tensor(shape[1], seed=1), tensor(shape[1], seed=2)
    running: Any = (None, None) if kind == "without" else statistics(shape[1])
    wanted = doubled(*running)
    result = InstanceNormFwdOp(kind != "from", momentum=0.3, eps=1e-3)(x, *running, weight, bias)
    exact = F.instance_norm(x.double(), *wanted, *doubled(weight, bias), kind != "from", 0.3, 1e-3)
    assert (result.dtype, result.shape, result.is_contiguous()) == (dtype, x.shape, True)
    assert_rounded(result, exact)
    if kind != "without":
        for moved, one in zip(running, wanted, strict=True):
            assert_rounded(moved, one)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0)])
@pytest.mark.parametrize("use_input_stats", [True, False])
def test_no_instances_leave_running_statistics_as_torch_leaves_them(
    shape: tuple[int, ...], use_input_stats: bool
) -> None:
    running, wanted = statistics(3), statistics(3)
    assert InstanceNormFwdOp(use_input_stats)(tensor(*shape), *running).shape == shape
    F.instance_norm(tensor(*shape), *wanted, use_input_stats=use_input_stats)
    for moved, one in zip(running, wanted, strict=True):
        torch.testing.assert_close(moved, one, equal_nan=True)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 1)])
def test_one_value_an_instance_is_refused_by_its_own_statistics_alone(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Expected more than 1 spatial element"):
        F.instance_norm(tensor(*shape))
    with pytest.raises(InputError, match="more than 1 spatial element"):
        InstanceNormFwdOp()(tensor(*shape))
    running = statistics(3)
    exact = F.instance_norm(tensor(*shape).double(), *doubled(*running), use_input_stats=False)
    assert_rounded(InstanceNormFwdOp(False)(tensor(*shape), *running), exact)


def test_a_constant_instance_gives_the_bias_even_without_an_epsilon() -> None:
    bias = tensor(3, seed=4)
    result = InstanceNormFwdOp(eps=0.0)(torch.full((2, 3, 5), 7.0), bias=bias)
    assert torch.equal(result, bias[None, :, None].expand(2, 3, 5))


# ------------------------------------------------------------------------------------------------------------ backward


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_autograd_in_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, grad, weight = tensor(*shape, dtype=dtype), tensor(*shape, dtype=dtype, seed=5), tensor(shape[1], seed=6)
    leaves = [each.requires_grad_() for each in doubled(x, weight, torch.zeros(shape[1]))]
    F.batch_norm(leaves[0], None, None, *leaves[1:], training=True, eps=1e-3).backward(grad.double())
    _, mean, rstd = BatchNormFwdOp(True, eps=1e-3).with_statistics(x, weight=weight)
    results = BatchNormBwdOp()(grad, x, weight, mean, rstd)
    assert [each.dtype for each in results] == [dtype, torch.float32, torch.float32]
    for result, leaf in zip(results, leaves, strict=True):
        torch.testing.assert_close(result.double(), leaf.grad, rtol=2 * torch.finfo(result.dtype).eps, atol=5e-6)


def test_gradients_of_no_values_are_empty_and_zeros() -> None:
    op, c = BatchNormBwdOp(), torch.ones(3)
    grad, grad_weight, grad_bias = op(tensor(0, 3, 4), tensor(0, 3, 4), None, c, c)
    assert (grad.shape, grad_weight.tolist(), grad_bias.tolist()) == ((0, 3, 4), [0.0] * 3, [0.0] * 3)
    assert op.cache_info().misses == 0


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((tensor(2, 3), tensor(2, 4), None, torch.ones(4), torch.ones(4)), r"grad has shape \(2, 3\), not \(2, 4\)"),
        ((tensor(2, 3).half(), tensor(2, 3), None, torch.ones(3), torch.ones(3)), "grad is torch.float16 and x is"),
        ((tensor(2, 3), tensor(2, 3), None, torch.ones(2), torch.ones(3)), r"mean has shape \(2,\), not \(3,\)"),
        (
            (tensor(2, 3).half(), tensor(2, 3).half(), None, torch.ones(3), torch.ones(3).half()),
            "rstd is torch.float16, not torch.float32",
        ),
    ],
)
def test_gradients_name_what_does_not_go_together(arguments: Any, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment):
        BatchNormBwdOp()(*arguments)


# ----------------------------------------------------------------------------------------------------------- selection

TRAIN = "batch_norm_fwd_train"
HALF, FULL = torch.float16, torch.float32


@pytest.mark.parametrize(
    ("n", "c", "spatial", "dtype", "key"),
    [
        (32, 64, 1, HALF, "fwd_train_whole"),
        (4, 64, 8, HALF, "fwd_train_whole"),
        (33, 64, 1, HALF, "fwd_train_wide"),
        (4, 256, 784, FULL, "fwd_train_wide"),
        (512, 64, 1, HALF, "fwd_train_wide"),
        (513, 64, 1, HALF, "fwd_train_kernel"),
        (16, 64, 1024, HALF, "fwd_train_wide"),
        (16, 512, 1025, HALF, "fwd_train_split"),
        (16, 513, 1025, HALF, "fwd_train_kernel"),
        (3, 5, 90300, HALF, "fwd_train_split"),
        (8192, 8192, 1, HALF, "fwd_train_split"),
        (8191, 8192, 1, HALF, "fwd_train_kernel"),
        (8192, 8193, 1, HALF, "fwd_train_kernel"),
        (4096, 1024, 64, HALF, "fwd_train_kernel"),
    ],
)
@pytest.mark.parametrize("arch", [80, 86, 89, 90])
def test_training_goes_by_values_and_channels(
    n: int, c: int, spatial: int, dtype: torch.dtype, key: str, arch: int
) -> None:
    assert BatchNormFwdOp().key_for(TRAIN, BatchNormCall(n, c, spatial, dtype=dtype, arch=arch)) == key


@pytest.mark.parametrize("running", [None, FULL])
@pytest.mark.parametrize(
    ("n", "c", "spatial", "dtype", "key", "elsewhere"),
    [
        (32, 64, 1, HALF, "whole", "whole"),
        (4, 256, 784, FULL, "wide", "wide"),
        (3, 5, 90300, HALF, "split", "split"),
        (4096, 1024, 64, HALF, "kernel", "kernel"),
        (32, 256, 3136, HALF, "cluster", "split"),
        (32, 64, 112 * 112, HALF, "cluster", "split"),
        (64, 600, 900, FULL, "cluster", "kernel"),
        (8, 32, 114_688, HALF, "cluster", "split"),
        (8, 32, 57_344, FULL, "cluster", "split"),
        (8, 32, 114_696, HALF, "split", "split"),
        (8, 32, 57_348, FULL, "split", "split"),
        (16, 64, 1025, HALF, "split", "split"),
        (600, 64, 256, HALF, "cluster", "split"),
        (600, 64, 248, HALF, "split", "split"),
        (600, 64, 128, FULL, "cluster", "split"),
        (600, 64, 124, FULL, "split", "split"),
    ],
)
def test_on_sm90_clusters_keep_channels_that_a_block_does_not(
    n: int, c: int, spatial: int, dtype: torch.dtype, key: str, elsewhere: str, running: torch.dtype | None
) -> None:
    for arch, chosen in ((90, key), (89, elsewhere), (80, elsewhere)):
        call = BatchNormCall(n, c, spatial, dtype=dtype, running_dtype=running, arch=arch)
        assert BatchNormFwdOp().key_for(TRAIN, call) == f"fwd_train_{chosen}"


@pytest.mark.parametrize(("interface", "running"), [("instance_norm_fwd", None), ("instance_norm_fwd_train", FULL)])
@pytest.mark.parametrize(
    ("spatial", "dtype", "key", "elsewhere"),
    [
        (512 * 512, HALF, "instance_norm_cluster", "instance_norm_split"),
        (16_384, HALF, "instance_norm_wide", "instance_norm_wide"),
        (16_392, HALF, "instance_norm_cluster", "instance_norm_split"),
        (16_388, HALF, "instance_norm_split", "instance_norm_split"),
        (16_388, FULL, "instance_norm_cluster", "instance_norm_split"),
        (917_504, HALF, "instance_norm_cluster", "instance_norm_split"),
        (917_512, HALF, "instance_norm_split", "instance_norm_split"),
        (458_752, FULL, "instance_norm_cluster", "instance_norm_split"),
        (458_756, FULL, "instance_norm_split", "instance_norm_split"),
    ],
)
def test_on_sm90_clusters_keep_instances_that_a_block_does_not(
    spatial: int, dtype: torch.dtype, key: str, elsewhere: str, interface: str, running: torch.dtype | None
) -> None:
    for arch, chosen in ((90, key), (89, elsewhere), (80, elsewhere)):
        call = BatchNormCall(8, 32, spatial, dtype=dtype, running_dtype=running, arch=arch)
        assert InstanceNormFwdOp().key_for(interface, call) == chosen


def test_other_interfaces_are_served_by_values_and_channels_too() -> None:
    batch = [("bwd_wide", (8, 64, 1024)), ("bwd_split", (8, 64, 1025)), ("bwd_kernel", (8, 513, 1025))]
    for key, (n, c, spatial) in batch:
        assert BatchNormBwdOp().key_for("batch_norm_bwd", BatchNormCall(n, c, spatial, arch=90)) == key
    instances = [("instance_norm_wide", (4, 5, 16384)), ("instance_norm_split", (4, 5, 16385))]
    for key, (n, c, spatial) in [*instances, ("instance_norm", (27, 19, 16385))]:
        for interface, running in (("instance_norm_fwd", None), ("instance_norm_fwd_train", torch.float32)):
            call = BatchNormCall(n, c, spatial, running_dtype=running, arch=90)
            assert InstanceNormFwdOp().key_for(interface, call) == key
    call = BatchNormCall(4, 5, 6, running_dtype=torch.float32, arch=90)
    assert BatchNormFwdOp().key_for("batch_norm_fwd_infer", call) == "fwd_infer_kernel"
    assert InstanceNormFwdOp().key_for("instance_norm_fwd_infer", call) == "instance_norm_infer"


@pytest.mark.parametrize(
    ("n", "c", "spatial", "fragment"),
    [
        (0, 3, 4, "n 0 is not from 1 to 1073741824"),
        (2, 0, 4, "c 0 is not from 1"),
        (2, 3, 0, "spatial 0 is not from 1"),
        (2, 3, 2**30 + 1, "spatial 1073741825 is not from 1 to 1073741824"),
    ],
)
def test_extents_that_no_kernel_counts_are_refused_with_their_values(
    n: int, c: int, spatial: int, fragment: str
) -> None:
    with pytest.raises(ValueError, match=fragment):
        BatchNormFwdOp().key_for(TRAIN, BatchNormCall(n, c, spatial, arch=90))


def test_a_gradient_without_its_statistics_is_a_type_error() -> None:
    x = tensor(4, 3)
    with pytest.raises(TypeError, match=r"BatchNormBwdOp: mean is None: pass a torch\.Tensor"):
        BatchNormBwdOp()(x, x, None, None, torch.ones(3))  # type: ignore[arg-type]
