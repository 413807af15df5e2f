"""The mathematics of the networks as functions, without parameters.

`formulas` is what the papers say. Where a faster way is known, the function of the same name is
taken from `fast`, which gives the same numbers and derivatives up to round-off.
"""

from .fast import (
    activate,
    adain,
    blur,
    conv2d,
    conv2d_downsample,
    dense,
    epilogue,
    leaky_relu,
    upsample_conv2d,
)
from .formulas import (
    LARGEST_PSI,
    Activation,
    downsample,
    fade,
    minibatch_deviation,
    nearest,
    pixel_norm,
    truncate,
    upsample,
)
from .precision import (
    Precision,
    at_least_float32,
    autocast,
    autocast_dtype,
    float32_products,
    has_tf32,
    in_float32,
    resolved_precision,
    without_autocast,
)
