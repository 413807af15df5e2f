"""Films of a generator: walks through its latent space, morphs, a run's training."""

from stylegan.video.encoding import FORMATS, check_film, check_rate, write_video
from stylegan.video.films import (
    Film,
    FrameLayout,
    between,
    edit_film,
    film,
    mixing_walk,
    noise_loop,
    timelapse_film,
    truncation_film,
    walk_in_z,
)
