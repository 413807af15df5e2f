"""Films of a generator: walks through its latent space, morphs, a run's training."""

from stylegan.video.encoding import (
    check_frame,
    check_holds_sound,
    check_length,
    check_video,
    write_video,
)
from stylegan.video.scenes import (
    Film,
    Interpolation,
    Moves,
    Scene,
    Take,
    between,
    editing,
    film,
    filmed,
    keyframe_walk,
    loops_in_z,
    mixing_scene,
    noise_loop,
    timelapse_film,
    truncation,
    truncation_scene,
    walk_in_w,
    walk_in_z,
)
from stylegan.video.sound import FEATURES, Sound, feature, features, read_sound
from stylegan.video.stage import Stage
