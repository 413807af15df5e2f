"""Sampling: images of seeds, centers for truncation, curves in latent space."""

from stylegan.data.images import to_pil

from .generation import (
    DEFAULT_CUTOFF,
    DEFAULT_PSI,
    MAX_SEED,
    Cutoff,
    Rectangle,
    Resolution,
    SamplingSettings,
    active_part,
    checked_rows,
    crop_padding,
    cyclic_one_hot,
    default_batch,
    deterministic_fp32,
    generate,
    generate_batches,
    latents,
    map_latents,
    mean_w,
    noise_from_seeds,
    over_checkerboard,
    quantize,
    sample_w,
    to_uint8,
    unpremultiply,
)
