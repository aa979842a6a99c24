"""The ops: ``from tileops.ops import LayerNormFwdOp, GQADenseFwdOp``."""

from tileops.ops.attention.gqa_dense import GQADenseFwdOp
from tileops.ops.norm.layer_norm import LayerNormFwdOp

__all__ = ["GQADenseFwdOp", "LayerNormFwdOp"]
