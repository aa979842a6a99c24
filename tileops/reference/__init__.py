"""Reference implementations in plain torch, for CPU tensors: slow, and right.

They serve every kernel interface of the package on ``cpu`` devices and are what tests compare kernels with.
Nothing registers them by itself: :func:`install` does, through the same door as any other backend::

    import tileops.reference
    tileops.reference.install()
    LayerNormFwdOp()(x, weight, bias)   # CPU tensors
"""

from __future__ import annotations

import threading

from tileops.backend import register_kernel_type
from tileops.backend.registry import registrations
from tileops.kernels.kernel_base import Kernel
from tileops.reference.attention import GQADenseReferenceKernel
from tileops.reference.batch_norm import (
    BatchNormBwdReferenceKernel,
    BatchNormInferReferenceKernel,
    BatchNormTrainReferenceKernel,
    InstanceNormInferReferenceKernel,
    InstanceNormReferenceKernel,
    InstanceNormTrainReferenceKernel,
)
from tileops.reference.norm import (
    AdaLayerNormReferenceKernel,
    AdaLayerNormZeroReferenceKernel,
    FusedAddLayerNormReferenceKernel,
    FusedAddRMSNormReferenceKernel,
    LayerNormReferenceKernel,
    RMSNormReferenceKernel,
)

__all__ = [
    "REFERENCES",
    "AdaLayerNormReferenceKernel",
    "AdaLayerNormZeroReferenceKernel",
    "BatchNormBwdReferenceKernel",
    "BatchNormInferReferenceKernel",
    "BatchNormTrainReferenceKernel",
    "FusedAddLayerNormReferenceKernel",
    "FusedAddRMSNormReferenceKernel",
    "GQADenseReferenceKernel",
    "InstanceNormInferReferenceKernel",
    "InstanceNormReferenceKernel",
    "InstanceNormTrainReferenceKernel",
    "LayerNormReferenceKernel",
    "RMSNormReferenceKernel",
    "install",
]

REFERENCES: tuple[tuple[str, str, type[Kernel]], ...] = (
    ("LayerNormFwdOp", "reference_layer_norm", LayerNormReferenceKernel),
    ("RMSNormFwdOp", "reference_rms_norm", RMSNormReferenceKernel),
    ("FusedAddLayerNormFwdOp", "reference_fused_add_layer_norm", FusedAddLayerNormReferenceKernel),
    ("FusedAddRMSNormFwdOp", "reference_fused_add_rms_norm", FusedAddRMSNormReferenceKernel),
    ("AdaLayerNormFwdOp", "reference_ada_layer_norm", AdaLayerNormReferenceKernel),
    ("AdaLayerNormZeroFwdOp", "reference_ada_layer_norm_zero", AdaLayerNormZeroReferenceKernel),
    ("BatchNormFwdOp", "reference_batch_norm_train", BatchNormTrainReferenceKernel),
    ("BatchNormFwdOp", "reference_batch_norm_infer", BatchNormInferReferenceKernel),
    ("BatchNormBwdOp", "reference_batch_norm_bwd", BatchNormBwdReferenceKernel),
    ("InstanceNormFwdOp", "reference_instance_norm", InstanceNormReferenceKernel),
    ("InstanceNormFwdOp", "reference_instance_norm_train", InstanceNormTrainReferenceKernel),
    ("InstanceNormFwdOp", "reference_instance_norm_infer", InstanceNormInferReferenceKernel),
    ("GQADenseFwdOp", "reference_gqa_dense", GQADenseReferenceKernel),
)
"""Op name, key and kernel of each reference."""

_lock = threading.Lock()


def install() -> None:
    """Register the references with their ops; ops constructed from then on serve CPU tensors.

    Calling it again does nothing.

    Raises:
        BackendError: Somebody else has registered one of the keys.
    """
    with _lock:
        for op_name, key, kernel in REFERENCES:
            if not any(each.key == key and each.kernel is kernel for each in registrations(op_name)):
                register_kernel_type(op_name, key, kernel)
