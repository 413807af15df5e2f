"""Films of a generator: walks through its latent space, morphs, a run's training."""

from stylegan.video.encoding import check_frame, check_length, check_video, even, write_video
from stylegan.video.scenes import (
    Interpolation,
    Scene,
    filmed,
    mixing_scene,
    psi_at,
    timelapse_frames,
    truncation_scene,
    walk_in_w,
    walk_in_z,
)
from stylegan.video.stage import Stage

__all__ = [
    "Interpolation",
    "Scene",
    "Stage",
    "check_frame",
    "check_length",
    "check_video",
    "even",
    "filmed",
    "mixing_scene",
    "psi_at",
    "timelapse_frames",
    "truncation_scene",
    "walk_in_w",
    "walk_in_z",
    "write_video",
]
