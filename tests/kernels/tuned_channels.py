"""The kernels of channels that have a choice of layouts, with a call of each."""

from __future__ import annotations

import torch

from tileops.kernels.norm.batch_norm_bwd import BatchNormBwdClusterKernel, BatchNormBwdKernel, BatchNormBwdWideKernel
from tileops.kernels.norm.batch_norm_infer import BatchNormFwdInferKernel
from tileops.kernels.norm.batch_norm_train import (
    BatchNormFwdTrainClusterKernel,
    BatchNormFwdTrainKernel,
    BatchNormFwdTrainWideKernel,
)
from tileops.kernels.norm.call_spec import BatchNormCall
from tileops.kernels.norm.channel_tuning import TunedChannels
from tileops.kernels.norm.instance_norm import (
    InstanceNormFwdClusterKernel,
    InstanceNormFwdInferKernel,
    InstanceNormFwdKernel,
    InstanceNormFwdWideKernel,
)

__all__ = ["TUNED"]

HALF, FULL = torch.float16, torch.float32
TUNED: dict[type[TunedChannels], BatchNormCall] = {
    BatchNormFwdTrainWideKernel: BatchNormCall(4, 6, 784, dtype=HALF, running_dtype=FULL),
    BatchNormFwdTrainClusterKernel: BatchNormCall(32, 8, 784, dtype=HALF),
    BatchNormFwdTrainKernel: BatchNormCall(7, 600, 1600, dtype=FULL, running_dtype=FULL),
    BatchNormFwdInferKernel: BatchNormCall(3, 5, 4096, dtype=HALF, running_dtype=FULL),
    BatchNormBwdWideKernel: BatchNormCall(4, 6, 784, dtype=HALF),
    BatchNormBwdClusterKernel: BatchNormCall(32, 8, 784, dtype=HALF),
    BatchNormBwdKernel: BatchNormCall(7, 600, 1600, dtype=FULL),
    InstanceNormFwdWideKernel: BatchNormCall(2, 8, 3136, dtype=HALF, running_dtype=FULL),
    InstanceNormFwdClusterKernel: BatchNormCall(2, 3, 65536, dtype=HALF),
    InstanceNormFwdKernel: BatchNormCall(40, 16, 12100, dtype=FULL),
    InstanceNormFwdInferKernel: BatchNormCall(600, 128, 49, dtype=HALF, running_dtype=FULL),
}
"""A call of each kernel that has a table."""
