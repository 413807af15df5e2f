"""Losses and gradients of the training step against the official program's, see reference/."""

import numpy as np
import pytest
import torch
from helpers.reference import DEVICE, SLACK, load, to_test_device, under

from stylegan import interop, losses
from stylegan.config import build_config
from stylegan.schedule import Stage
from stylegan.training import Draws, PassDraws, TrainState
from stylegan.training.step import (
    enter_stage,
    frozen,
    training_images,
    update_discriminator,
    update_generator,
)
from stylegan.training.terms import (
    discriminator_images,
    discriminator_logits,
    discriminator_terms,
    penalty_weights,
)

LIMITS = {torch.float64: 1e-9, torch.float32: 5e-6}
FUNCTIONS = {  # official loss function -> which network, our loss, penalties by default
    "G_logistic_nonsaturating": ("generator", "nonsaturating", {}),
    "G_logistic_saturating": ("generator", "saturating", {}),
    "G_wgan": ("generator", "wgan", {}),
    "D_logistic": ("discriminator", "logistic", {}),
    "D_logistic_simplegp": ("discriminator", "logistic", {"r1_gamma": 10.0, "r2_gamma": 0.0}),
    "D_wgan": ("discriminator", "wgan", {}),
    "D_wgan_gp": ("discriminator", "wgan_gp", {}),
    "D_hinge": ("discriminator", "hinge", {}),
    "D_hinge_gp": ("discriminator", "hinge_gp", {}),
}


INPUTS, META = load("losses")
CASES = [(case, lod) for case in META["cases"] for lod in META["lods"]]
EXPECTED = {torch.float32: INPUTS, torch.float64: under("f64/", load("losses_f64")[0])}


def as_network(kind, variables):
    """The network whose weights are these official variables (or gradients of them)."""
    settings = META["common_kwargs"] | META[f"{kind}_kwargs"]
    if kind == "D":
        return interop.discriminator_from_official(variables, settings)
    return interop.generator_from_official(variables, settings)


def tensor(name, dtype):
    return to_test_device(INPUTS[name], dtype)


class Step:
    """One case of the reference data, set up as training sets it up; learning rates are 0."""

    def __init__(self, case, lod, dtype):
        spec = META["cases"][case]
        self.network, loss, penalties = FUNCTIONS[spec["function"]]
        config = build_config(
            {
                f"{self.network}_loss": loss,
                "precision": "fp32",
                "noise": "const",
                "style_mixing": 0.0,
                **({"r1_gamma": 0.0, "r2_gamma": 0.0} | penalties | spec["kwargs"]),
                "network": {"resolution": META["common_kwargs"]["resolution"]},
            }
        )
        networks = [as_network(kind, under(f"{kind}/", INPUTS)).to(dtype) for kind in "GD"]
        self.state = TrainState.create(config, *networks, device=DEVICE)
        alpha = 1 - float(np.float32(lod))
        self.stage = Stage(16, alpha, batch_size=4, g_lr=0.0, d_lr=0.0, tick_kimg=1)
        self.reals = tensor("reals", dtype)
        self.draws = PassDraws(tensor("latents", dtype))
        self.mix = tensor("mixing_factors", dtype).flatten()
        self.networks = enter_stage(self.state, self.stage)

    def fakes(self):
        with torch.no_grad():
            return training_images(self.state.generator, self.draws, self.stage)[0]

    def discriminator_loss(self):
        """Weighted sum of the terms, as `update_discriminator` propagates them."""
        config = self.state.config
        terms = []
        weights = penalty_weights(config, 0, self.stage)
        images_of = discriminator_images(config, self.reals, self.fakes(), self.mix)
        for kind, images in images_of.items():
            logits, leaf = self.logits_of(images, penalized=weights[kind] > 0)
            terms += discriminator_terms(config, kind, logits, leaf, self.stage, weights[kind])
        return sum(term.weight * term.value for term in terms if term.weight)

    def logits_of(self, images, *, penalized):
        config, network = self.state.config, self.state.discriminator
        return discriminator_logits(config, network, images, None, self.stage, penalized=penalized)

    def logits_and_norms(self, images):
        """Logits and squared gradient norms of every image."""
        logits, leaf = self.logits_of(images, penalized=True)
        return logits.detach(), losses.squared_gradient_norms(logits, leaf).detach()

    def terms(self):
        """What the reference calls terms, one value per image."""
        fakes = self.fakes()
        mixed = torch.lerp(self.reals, fakes, self.mix[:, None, None, None])
        names = {"real": self.reals, "fake": fakes, "mixed": mixed}
        found = {name: self.logits_and_norms(images) for name, images in names.items()}
        return {f"scores/{name}": logits for name, (logits, _) in found.items()} | {
            "r1_penalty": found["real"][1],
            "r2_penalty": found["fake"][1],
            "mixed_norms": found["mixed"][1].sqrt(),
            "epsilon_penalty": found["real"][0].square(),
        }

    def update(self):
        """The update itself, which leaves its gradients behind."""
        draws = Draws(self.draws, self.draws, self.mix)
        given = self.state, self.networks, self.reals, None, self.stage, draws
        if self.network == "generator":
            with frozen(self.networks.d_weights):
                return update_generator(*given)
        return update_discriminator(*given)


def close(found, expected, limit):
    """Within `limit`, or that fraction of values above 1: the official score of the fake at -4
    is itself 3e-6 from its float64 value."""
    expected = torch.from_numpy(np.asarray(expected, np.float64))
    difference = (found.detach().double().cpu().reshape(expected.shape) - expected).abs()
    return (difference < limit * expected.abs().clamp(min=1)).all().item()


def gradient_differences(step, case, lod, dtype):
    """Largest difference over all trainable variables, and how many there are."""
    kind = step.network[0].upper()
    network = getattr(step.state, step.network)
    official = under(f"{case}/lod{lod}/grad/{kind}/", EXPECTED[dtype])
    rest = {k: np.zeros_like(v) for k, v in under(f"{kind}/", INPUTS).items() if k not in official}
    expected = dict(as_network(kind, official | rest).named_parameters())
    assert len(expected) == len(official) == META["noise"][f"{case}/lod{lod}"]["num_grads"]
    return max(
        ((0 if p.grad is None else p.grad.cpu()) - expected[name]).abs().max().item()
        for name, p in network.named_parameters()
    )


def test_reference_has_ten_losses_at_two_levels_of_detail():
    assert len(CASES) == 20
    for arrays in EXPECTED.values():
        assert sum(name.endswith("/loss_mean") for name in arrays) == 20


@pytest.mark.parametrize("dtype", LIMITS, ids=["f64", "f32"])
@pytest.mark.parametrize(("case", "lod"), CASES)
def test_losses_and_gradients_equal_the_official_ones(case, lod, dtype):
    limit, expected = LIMITS[dtype] * SLACK[dtype], under(f"{case}/lod{lod}/", EXPECTED[dtype])
    step = Step(case, lod, dtype)
    before = [p.clone() for p in getattr(step.state, step.network).parameters()]
    metrics = step.update()
    if step.network == "generator":
        loss = metrics[f"g/{step.state.config.generator_loss}"]
    else:
        loss = step.discriminator_loss()
        assert close(metrics["d/real_logits"], expected["terms/scores/real"].mean(), limit)
        assert close(metrics["d/fake_logits"], expected["terms/scores/fake"].mean(), limit)
    assert close(loss, expected["loss_mean"], limit)
    found = step.terms()
    for name, values in under("terms/", expected).items():
        assert close(found[name], values, limit), name
    assert gradient_differences(step, case, lod, dtype) < limit
    for old, new in zip(before, getattr(step.state, step.network).parameters(), strict=True):
        assert torch.equal(old, new)  # the learning rate is 0
