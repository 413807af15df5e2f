"""The opponent that our speed is measured against: `examples/one_file.py` with our options.

It is StyleGAN as a textbook would write it, one operation after the other in contiguous layout;
its numbers are ours (tests/test_one_file.py). Ratios quoted against it lose
their meaning if its computation changes.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from stylegan.config import TrainConfig
from stylegan.networks import NetworkConfig
from stylegan.schedule import Stage
from stylegan.training import Draws, PassDraws

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import one_file

LOSSES = ("generator_loss", "discriminator_loss", "r1_interval", "r2_gamma")
PRECISION = ("precision", "batch_gpu")
PARTS = ("styles", "constant_input", "pixel_norm", "instance_norm", "blur", "equalized")
INPUTS = ("label_dim", "activation", "mapping_activation", "normalize_latents")
BLURS = ("bias_before_blur", "activation_before_blur")
REFUSED = {*LOSSES, *PRECISION, *PARTS, *INPUTS, *BLURS, "channel_decay", "deviation_features"}
RENAMED = (  # parts of our names of weights and the one file's, in the order of replacement
    ("synthesis.input.const", "const"),
    ("synthesis.input.conv.", "blocks.4.conv1."),
    ("synthesis.input.", "blocks.4."),
    ("synthesis.", ""),
    (".noise.", "."),
    (".style.", "."),
    ("head.", ""),
    (".conv.", "."),
)


def one_file_options(config: TrainConfig | NetworkConfig) -> dict[str, object]:
    """The options that both have; ValueError for what only ours can do."""
    changed = {f.name for f in fields(config) if getattr(config, f.name) != f.default}
    if refused := changed & REFUSED:
        names = ", ".join(sorted(refused))
        raise ValueError(f"the textbook has only the paper's network and losses; leave out {names}")
    shared = {f.name for f in fields(config)} & {f.name for f in fields(one_file.Config)}
    return {name: getattr(config, name) for name in shared}


def textbook_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `state_dict` of our generator or discriminator under the one file's names.

    Our enlarging convolutions keep their kernels as (in, out, 3, 3), the others as (out, in).
    """
    renamed = {}
    for name, weight in weights.items():
        if name.startswith("synthesis.blocks.") and name.endswith(".conv0.weight"):
            weight = weight.transpose(0, 1).contiguous()
        for ours, theirs in RENAMED:
            name = name.replace(ours, theirs)
        renamed[name] = weight
    return renamed


def textbook_generator(config: NetworkConfig) -> one_file.Generator:
    return one_file.Generator(one_file.Config(**one_file_options(config)))  # type: ignore[arg-type]


def textbook_state(
    config: TrainConfig, generator: Mapping[str, Tensor], discriminator: Mapping[str, Tensor]
) -> one_file.State:
    """The state before the first step from weights of our networks, in their type."""
    options = one_file_options(config.network) | one_file_options(config)
    options["r1_gamma"] = config.r1_gamma_at(config.network.resolution)  # it has one for all stages
    theirs = one_file.Config(**options)  # type: ignore[arg-type]
    networks = one_file.Generator(theirs), one_file.Discriminator(theirs)
    for network, weights in zip(networks, (generator, discriminator), strict=True):
        network.to(next(iter(weights.values())))
        network.load_state_dict(textbook_weights(weights))
    return one_file.State(theirs, *networks)


def in_half_precision(state: one_file.State, device: str, dtype: torch.dtype) -> None:
    """Have the networks compute under autocast from now on, but for the mapping: as ours do."""
    autocast = torch.autocast(device, dtype)
    state.generator.synthesize = autocast(state.generator.synthesize)  # type: ignore[method-assign]
    state.discriminator.forward = autocast(state.discriminator.forward)  # type: ignore[method-assign]


def textbook_step(
    state: one_file.State, reals: Tensor, stage: Stage, draws: Draws
) -> dict[str, Tensor]:
    """`train_step` of ours: the discriminator, the average, the generator; returns the losses."""
    if stage.g_lr != stage.d_lr:
        raise ValueError("the textbook has one learning rate for both networks")
    now = one_file.Stage(stage.resolution, stage.alpha, stage.batch_size, stage.g_lr, stage.d_lr)
    passes = textbook_draws(draws.discriminator), textbook_draws(draws.generator)
    return one_file.train_step(state, reals, now, *passes)


def textbook_draws(draws: PassDraws) -> one_file.Draws:
    cutoff = int(draws.mixing_cutoff)
    return one_file.Draws(draws.latents, draws.mixing_latents, cutoff, draws.noise)
