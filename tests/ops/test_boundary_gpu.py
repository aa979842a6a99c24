"""Every boundary call that an implementation accepts is built, run and compared with float64, on this card.

A predicate that accepts what its kernel cannot run shows here: calls just inside each face of each region, as the
device of this machine is. None is left out but those that no card has the memory for: one that needs more than this
one has, or than is worth the time, is made smaller in fields that are no face. Of which interfaces either may be is
asserted.
"""

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest
import torch
from tileops_rules import Selector, fields
from tileops_solver.testing import Case, boundary_calls

from tests.ops.boundary_channels import CHANNEL_RUNS
from tests.ops.boundary_runs import NeedsMoreMemoryError, fitting, on_device, run, serving_keys
from tileops.kernels.device_facts import DeviceFacts, device_facts
from tileops.ops import (
    AdaLayerNormFwdOp,
    AdaLayerNormZeroFwdOp,
    BatchNormBwdOp,
    BatchNormFwdOp,
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    GQADenseFwdOp,
    InstanceNormFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
)
from tileops.ops.op_base import Op

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
SPARE = 2**30
"""Bytes that the allocator, CUDA and the kernels themselves may take."""
MOST = 2**34
"""Bytes that a call takes where its faces let it: more would show no more, and take minutes."""
NO_CARD = 2**38
"""Bytes that no card has."""

OPS: dict[str, Any] = {
    "gqa_dense": GQADenseFwdOp,
    "layer_norm": LayerNormFwdOp,
    "rms_norm": RMSNormFwdOp,
    "fused_add_layer_norm": FusedAddLayerNormFwdOp,
    "fused_add_rms_norm": FusedAddRMSNormFwdOp,
    "ada_layer_norm": AdaLayerNormFwdOp,
    "ada_layer_norm_zero": AdaLayerNormZeroFwdOp,
    "batch_norm_fwd_train": BatchNormFwdOp,
    "batch_norm_fwd_infer": BatchNormFwdOp,
    "batch_norm_bwd": BatchNormBwdOp,
    "instance_norm_fwd": InstanceNormFwdOp,
    "instance_norm_fwd_train": InstanceNormFwdOp,
    "instance_norm_fwd_infer": InstanceNormFwdOp,
}
KEYS = [
    (name, key)
    for name, op in OPS.items()
    for key, kind in op.kernel_types.items()
    if issubclass(kind, op.interfaces[name])
]


@functools.cache
def op_of(interface: str) -> Op:
    made: Op = OPS[interface]()
    return made


def accepted(interface: str) -> tuple[Case, ...]:
    """The boundary calls of this device that some implementation accepts."""
    return accepted_on(interface, device_facts(CUDA))


@functools.cache
def accepted_on(interface: str, facts: DeviceFacts) -> tuple[Case, ...]:
    selector = Selector.of(OPS[interface], interface)
    c = fields(selector.spec, domain=selector.domain)
    here = (c.smem_budget == facts.smem_budget) & (c.sm_count == facts.sm_count)
    found = boundary_calls(OPS[interface], interface, archs=[facts.arch], within=here)
    return tuple(case for case in found if case.expected is not None)


@pytest.mark.parametrize("interface", OPS)
def test_the_chosen_key_on_this_card_is_the_expected_one(interface: str) -> None:
    found = {str(case): op_of(interface).key_for(interface, on_device(case.call, CUDA)) for case in accepted(interface)}
    assert found == {str(case): case.expected for case in accepted(interface)}
    assert found, "this card is served"


@pytest.mark.parametrize(("interface", "key"), KEYS)
def test_every_accepted_boundary_call_runs_and_is_right(interface: str, key: str) -> None:
    op = op_of(interface)
    archs = OPS[interface].kernel_types[key].supported_archs
    if archs is not None and device_facts(CUDA).arch not in archs:
        pytest.skip(f"{key} does not run on sm_{device_facts(CUDA).arch}")
    mine = [case for case in accepted(interface) if key in serving_keys(op, interface, on_device(case.call, CUDA))]
    assert mine
    ran, reduced, impossible, failed = set(), [], [], []
    for case in mine:
        torch.cuda.empty_cache()
        whole = on_device(case.call, CUDA)
        budget = torch.cuda.mem_get_info(CUDA)[0] - SPARE
        try:
            call = fitting(interface, whole, case, budget, lambda call: key in serving_keys(op, interface, call), MOST)
            reduced += [str(case)] if call != whole else []
            if call not in ran:
                run(op, interface, key, call)
            ran.add(call)
        except Exception as error:  # noqa: BLE001 - which calls fail is what is reported, all of them
            if isinstance(error, NeedsMoreMemoryError) and error.needed > NO_CARD:
                impossible.append(str(case))
            else:
                failed.append(f"{case}: {case.call!r}\n{traceback.format_exc(limit=-2)}")
    assert not failed, f"{len(failed)} of {len(mine)} accepted calls fail:\n" + "\n".join(failed)
    assert len(impossible) <= len(mine) // 4
    assert reduced + impossible == [] or interface in CHANNEL_RUNS, "the smallest calls of the others fit on any card"
