"""The mathematics of the networks as functions, without parameters.

`formulas` is what the papers say. `convolution` and `epilogue` have faster functions of the same
names for every device, equal in values and derivatives up to round-off (except the slope of a GPU's
leaky ReLU at exactly 0); `cpu` has what only a CPU needs.
"""

from .convolution import blur, conv2d, conv2d_downsample, dense, upsample_conv2d
from .epilogue import activate, adain, epilogue, leaky_relu
from .formulas import (
    MAX_PSI,
    Activation,
    downsample,
    downsample_to,
    fade,
    minibatch_stddev,
    nearest,
    pixel_norm,
    truncate,
    upsample,
)
from .precision import (
    HALF,
    Precision,
    at_least_float32,
    autocast,
    autocast_dtype,
    has_fast_matmul,
    has_tf32,
    override_fp32_precision,
    resolve_precision,
    without_autocast,
    without_tf32,
)
