"""The ops: ``from tileops.ops import LayerNormFwdOp, GQADenseFwdOp``."""

from tileops.ops.attention.gqa_dense import GQADenseFwdOp
from tileops.ops.norm.ada_layer_norm import AdaLayerNormFwdOp
from tileops.ops.norm.ada_layer_norm_zero import AdaLayerNormZeroFwdOp
from tileops.ops.norm.batch_norm import BatchNormBwdOp, BatchNormFwdOp
from tileops.ops.norm.fused_add_layer_norm import FusedAddLayerNormFwdOp
from tileops.ops.norm.fused_add_rms_norm import FusedAddRMSNormFwdOp
from tileops.ops.norm.instance_norm import InstanceNormFwdOp
from tileops.ops.norm.layer_norm import LayerNormFwdOp
from tileops.ops.norm.rms_norm import RMSNormFwdOp

__all__ = [
    "AdaLayerNormFwdOp",
    "AdaLayerNormZeroFwdOp",
    "BatchNormBwdOp",
    "BatchNormFwdOp",
    "FusedAddLayerNormFwdOp",
    "FusedAddRMSNormFwdOp",
    "GQADenseFwdOp",
    "InstanceNormFwdOp",
    "LayerNormFwdOp",
    "RMSNormFwdOp",
]
