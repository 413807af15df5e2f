"""Videos of a generator: walks through its latent space, morphs, training runs."""

from stylegan.video.encoding import FORMATS, check_film, write_video
from stylegan.video.films import (
    Film,
    between,
    edit_film,
    film,
    mixing_walk,
    noise_loop,
    timelapse_film,
    truncation_film,
    walk_in_z,
)
