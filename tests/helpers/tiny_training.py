"""A training run that takes a second: tiny networks, a few random images, three resolutions."""

import resource
import signal
from contextlib import contextmanager

import numpy as np
import torch

from helpers.consoles import RecordingConsole
from helpers.pictures import save_picture
from helpers.tiny_generators import ODD_OPTIONS
from stylegan.config import build_config, flatten, unflatten
from stylegan.data import Preparation, cached_store
from stylegan.schedule import Stage
from stylegan.training import Share, Stopped, draw, start, train_step

SCHEDULE = {  # 4x4 to image 24, 8x8 growing in to 64, grown to 88, 16x16 growing in to 128
    "initial_resolution": 4,
    "stable_kimg": 0.024,
    "fade_kimg": 0.040,
    "total_kimg": 0.160,
    "batch_size": {4: 4},
    "tick_kimg": {4: 0.040},
    "minibatch_repeats": 3,
}
SHORT = {  # a batch of 8x8, one of 16x16 half grown in, one of 16x16
    "initial_resolution": 8,
    "stable_kimg": 0.002,
    "fade_kimg": 0.004,
    "total_kimg": 0.012,
    "tick_kimg": {4: 0.008},
    "minibatch_repeats": 1,
}
OPTIONS = {
    "r1_gamma": 1.0,
    "log_kimg": 0.004,  # every step
    "snapshot_ticks": 2,
    "network": ODD_OPTIONS,
    "schedule": SCHEDULE,
    "data": {"mirror": True},
}
BASELINE = {"styles": False, "constant_input": False, "instance_norm": False, "pixel_norm": True}
WGAN_GP = {"discriminator_loss": "wgan_gp", "generator_loss": "wgan", "r1_gamma": 0.0}
RELATIVISTIC = {"discriminator_loss": "relativistic", "generator_loss": "relativistic"}
KINDS = {  # of training: tests choose which must be exact alone, resumed, in several processes
    "plain": {},
    "r2": {"r2_gamma": 2.0},
    "lazy r1": {"r1_interval": 2},
    "wgan_gp": WGAN_GP,
    "hinge_gp": WGAN_GP | {"discriminator_loss": "hinge_gp"},
    "relativistic": RELATIVISTIC | {"r2_gamma": 2.0, "batch_gpu": 2},
    "first moments": {"adam_beta1": 0.5},
    "labels": {"network": {"label_dim": 3}},
    "stored noise, no mixing": {"noise_mode": "const", "style_mixing": 0.0},
    "traditional": {"network": BASELINE | {"mapping_layers": 1, "noise": False}},
    "deviation": {"network": {"deviation_group": 2}},
    "micro-batches": {"batch_gpu": 2, "network": {"deviation_group": 2}},
    "recomputation": {"checkpoint_activations": True, "r2_gamma": 2.0},
    "frozen": {"freeze_d_from": 8},
    "ada": {"augment": {"kind": "ada", "ada_kimg": 0.05}, "batch_gpu": 2},
    "all of ada": {
        "augment": {"kind": "ada", "transforms": ["bgc", "imgfilter", "noise", "cutout"]}
    },
    "diffaugment": {"augment": {"kind": "diffaugment"}, "batch_gpu": 2, "r2_gamma": 2.0},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
}
QUIET = {"device": "cpu", "tensorboard": False, "preflight": False}  # for `start`


def merge(options, changes):
    """Nested `options` with those of `changes` in place of their own."""
    return unflatten(flatten(options) | flatten(changes))


def tiny_config(num_processes=1, **changes):
    return build_config(merge(OPTIONS, changes), num_processes)


def write_pictures(folder, n=14, size=16, seed=0):
    """Random images in two sub-folders."""
    random = np.random.default_rng(seed)
    for i in range(n):
        pixels = random.integers(0, 256, (size, size, 3), np.uint8)
        save_picture(folder / "ab"[i % 2] / f"{i}.png", pixels)
    return folder


def tiny_store(folder, **options):
    """A store of random images below `folder`."""
    pictures = write_pictures(folder / "pictures", **options)
    return cached_store(pictures, Preparation(resolution=16), cache_dir=folder / "cache")


def train_tiny(config, store, out, stop_at=None, told=None, **options):
    """Train in `out`, as the command does, until finished or image `stop_at`; the state."""

    def stop(progress):
        if progress.images_seen == stop_at:
            signal.raise_signal(signal.SIGINT)

    try:
        state = start(
            config, store, out, **QUIET | {"console": RecordingConsole(told, act=stop)} | options
        )
    except Stopped as stopped:
        assert (stopped.signal_number, stopped.state.images_seen) == (signal.SIGINT, stop_at)
        return stopped.state
    assert stop_at is None
    return state


def flat(payload, prefix=""):
    """Every number of a nested payload by its path."""
    if isinstance(payload, dict):
        items = payload.items()
    elif isinstance(payload, list | tuple):
        items = enumerate(payload)
    else:
        return {prefix: payload}
    return {k: v for name, value in items for k, v in flat(value, f"{prefix}/{name}").items()}


def differing(a, b):
    """Paths at which two payloads are not bit for bit the same."""
    a, b = flat(a), flat(b)
    return sorted(a.keys() ^ b.keys()) + [
        path
        for path in a.keys() & b.keys()
        if (
            not torch.equal(a[path], b[path])
            if isinstance(a[path], torch.Tensor)
            else a[path] != b[path]
        )
    ]


def resumed(config, store, folder, stop_at, **options):
    """The end of a run that was stopped at an image and continued in another call: bit for bit that
    of one that nothing interrupted."""
    whole = train_tiny(config, store, folder / "whole", **options)
    train_tiny(config, store, folder / "run", stop_at, **options)
    state = train_tiny(config, store, folder / "run")
    assert differing(state.to_payload(), whole.to_payload()) == []
    for scaler in ("g_scaler", "d_scaler"):  # also if no payload has them
        assert getattr(state, scaler).state_dict() == getattr(whole, scaler).state_dict()
    return state


def stage(resolution=8, alpha=0.5, batch_size=4, lr=1e-3):
    return Stage(resolution, alpha, batch_size, g_lr=lr, d_lr=lr, tick_kimg=1)


def reals_for(stage, dtype=torch.float32, seed=0):
    rng = torch.Generator().manual_seed(seed)
    size = stage.resolution
    return torch.randn(stage.batch_size, 3, size, size, generator=rng).to(dtype)


def step(state, now, share=None, labels=None, pool=None):
    """One step on random images with the draws of its position."""
    share = share or Share(dtype=state.generator.w_avg.dtype)
    draws = draw(state.config, state.images_seen, now, pool, share)
    return train_step(state, reals_for(now, share.dtype), labels, now, draws)


def counts(state):
    """Updates since the optimizers were cleared: the generator's, the discriminator's."""
    return [o.param_groups[0]["updates"] for o in (state.g_optimizer, state.d_optimizer)]


def skips(state):
    """Updates that were skipped: the generator's, the discriminator's."""
    found = state.skipped()
    return [found["skipped_g"], found["skipped_d"]]


@contextmanager
def largest_file(size):
    """The system refuses to write beyond `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
