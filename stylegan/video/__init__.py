"""Videos of a generator: walks through its latent space, morphs, training runs."""

from stylegan.video.clips import (
    Clip,
    between,
    edit_clip,
    make_clip,
    mixing_walk,
    noise_loop,
    timelapse_clip,
    truncation_clip,
    walk_in_z,
    with_truncated,
)
from stylegan.video.encoding import FORMATS, check_clip, write_video
