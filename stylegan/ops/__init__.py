"""The mathematics of the networks as functions, without parameters.

`formulas` is what the papers say. Where a faster way is known, the function of the same name is
taken from `fast`, which gives the same numbers and derivatives up to round-off.
"""

from .fast import activate as activate
from .fast import adain as adain
from .fast import blur as blur
from .fast import conv2d as conv2d
from .fast import conv2d_downsample as conv2d_downsample
from .fast import dense as dense
from .fast import epilogue as epilogue
from .fast import instance_norm as instance_norm
from .fast import leaky_relu as leaky_relu
from .fast import upsample_conv2d as upsample_conv2d
from .formulas import LARGEST_PSI as LARGEST_PSI
from .formulas import Activation as Activation
from .formulas import downsample as downsample
from .formulas import fade as fade
from .formulas import minibatch_deviation as minibatch_deviation
from .formulas import nearest as nearest
from .formulas import pixel_norm as pixel_norm
from .formulas import style_modulation as style_modulation
from .formulas import truncate as truncate
from .formulas import upsample as upsample
from .precision import at_least_float32 as at_least_float32
from .precision import autocast as autocast
from .precision import autocast_dtype as autocast_dtype
from .precision import in_float32 as in_float32
from .precision import without_autocast as without_autocast
