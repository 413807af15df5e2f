"""What each of the two processes of `test_distributed.py` does; also what one does alone."""

import signal
from pathlib import Path

import torch
import torch.distributed as dist

from helpers.consoles import RecordingConsole
from helpers.linear_generator import measured
from helpers.measuring import measured_with_a_full_disk, scores
from helpers.processes import one_of
from helpers.tiny_training import KINDS, QUIET, merge, tiny_config
from stylegan.data import Store
from stylegan.networks import Discriminator, Generator
from stylegan.schedule import Stage
from stylegan.training import Share, Stopped, TrainState, draw, start, train_step
from stylegan.training.loop import real_batches
from stylegan.utils import distributed

BATCH = 8
COMPARED = (  # each between one process and two
    *("wgan_gp", "micro-batches", "labels", "deviation", "recomputation"),
    *("ada", "frozen", "diffaugment", "relativistic"),
)
STAGES = [  # of six steps: growing twice
    *[Stage(4, 1.0, BATCH, 1e-3, 1e-3, 1)] * 2,
    Stage(8, 0.3, BATCH, 1e-3, 1e-3, 1),
    Stage(8, 1.0, BATCH, 1e-3, 1e-3, 1),
    *[Stage(16, 0.5, BATCH, 1e-3, 1e-3, 1)] * 2,
]


def config_of(kind, **changes):
    """Of a kind of training; with stored noise, and deviations only where the kind has them."""
    whole = {"noise_mode": "const", "network": {"deviation_group": 0}}
    if kind == "micro-batches":
        changes = {"network": {"deviation_group": 0}} | changes
    return tiny_config(**merge(merge(whole, KINDS[kind]), changes))


MOVED = config_of("deviation", batch_gpu=2, schedule={"total_kimg": 0.1})  # ends at image 108


def float64_state(config):
    """Biases, noise strengths and the constant are random, as in the reference data.

    At their initial values the first feature maps are constant. Normalization then divides by
    nothing but epsilon, and the constant's gradient, zero but for round-off, becomes a step.
    """
    torch.manual_seed(0)
    networks = Generator(config.network).double(), Discriminator(config.network).double()
    with torch.no_grad():
        for name, parameter in (pair for n in networks for pair in n.named_parameters()):
            if parameter.ndim == 1 or name.endswith("const"):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return TrainState.create(config, *networks)


def trained(config):
    """Train on random images; what is left of it."""
    state = float64_state(config)
    share = Share(distributed.rank(), distributed.world_size(), "cpu", torch.float64)
    pool = torch.eye(3) if config.network.label_dim else None
    rng = torch.Generator().manual_seed(1)
    for stage in STAGES:
        size = stage.resolution
        reals = torch.randn(BATCH, 3, size, size, generator=rng)
        labels = None if pool is None else pool[torch.randint(3, (BATCH,), generator=rng)]
        probability = state.strength.probability
        draws = draw(config, state.images_seen, stage, pool, share, probability)
        labels = None if labels is None else share.floats(labels)
        train_step(state, share.floats(reals), labels, stage, draws)
        state.strength.adapt()
    return state.to_payload()


class Brightness(Discriminator):
    """Its logits are the mean of an image, so that their signs are known."""

    def forward(self, images, labels=None, **growth):
        return images.mean(dim=(1, 2, 3)) + 0 * super().forward(images, labels, **growth)


def fixed_signs():
    """Of D(real), (20 steps, images): many positive ones first, fewer later."""
    chance = torch.linspace(1.0, 0.6, 20)[:, None]
    rng = torch.Generator().manual_seed(2)
    return 1 - 2 * (torch.rand(20, BATCH, generator=rng, dtype=torch.float64) > chance).double()


def strengths(resume_before=()):
    """The probability of the published rule after each of 20 steps with those signs; the state is
    saved and restored before some."""
    published = {"kind": "ada", "transforms": ["blit"], "ada_kimg": 500.0}
    config = config_of("ada", augment=published)
    share = Share(distributed.rank(), distributed.world_size(), "cpu", torch.float64)

    def new_state():
        networks = Generator(config.network).double(), Brightness(config.network).double()
        return TrainState.create(config, *networks)

    state, stage, found = new_state(), STAGES[0], []
    for i, signs in enumerate(fixed_signs()):
        if i in resume_before:
            payload, state = state.to_payload(), new_state()
            state.restore(payload)
        reals = share.floats(signs)[:, None, None, None].expand(-1, 3, 4, 4)
        draws = draw(config, state.images_seen, stage, None, share, state.strength.probability)
        train_step(state, reals, None, stage, draws)
        state.strength.adapt()
        found.append(state.strength.probability)
    return found


def fed(store, steps=4):
    """Brightness of each image that this process is given; image i of the store has i."""
    state = TrainState.create(
        tiny_config(data={"mirror": False}, schedule={"batch_size": {4: BATCH}})
    )
    share = Share.of_process(state.device)
    feed, batches = real_batches(state, store, share, workers=0), []
    for _ in range(steps):
        images, _ = next(feed)
        batches.append(images)
        state.position.advance(BATCH)
    return [((images[:, 0, 0, 0] + 1) * 127.5).round().int().tolist() for images in batches]


def stopped_by_the_second(store, out):
    """A run that only the second process is asked to stop, at image 48, and then its rest."""
    config, seen = tiny_config(network={"deviation_group": 2}), []
    for stop_at in (48, None):

        def stop(progress, stop_at=stop_at):
            if distributed.rank() == 1 and progress.images_seen == stop_at:
                signal.raise_signal(signal.SIGINT)

        stopped_by = 0
        try:
            state = start(config, store, out, **QUIET, console=RecordingConsole(act=stop))
        except Stopped as stopped:
            stopped_by, state = stopped.signal_number, stopped.state
        seen.append((stopped_by, state.images_seen))
    return seen, state.to_payload()


def continued_by_two(store, out):
    """What is told when two processes continue a run that one began, and where it ends."""
    told = []
    state = start(MOVED, store, out, **QUIET, console=RecordingConsole(told))
    return told, state.images_seen


def agreed_in_a_group_of_a_script(rank, folder):
    """What two processes agree on that a script has joined, and whether in a group of CPUs beside
    its own, which may know GPUs only; then the same in the next group."""
    agreed = []
    for meeting in ("first", "second"):
        place = f"file://{folder}/{meeting}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
        with distributed.process_group(torch.device("cpu")):
            group = distributed.control_group()
            beside = group is not dist.group.WORLD and dist.get_backend(group) == "gloo"
            agreed.append((distributed.max_over_ranks(rank), distributed.all_gather(rank), beside))
        assert dist.is_initialized()  # it is the script's to leave
        dist.destroy_process_group()
    return agreed


def work(rank, port, folder):
    """The whole life of one of two processes; its results go into `folder`."""
    store = Store(Path(folder) / "store")
    with one_of(2, rank, port):
        results = {
            "steps": {name: trained(config_of(name)) for name in COMPARED},
            "strengths": strengths(),
            "fed": fed(store),
            "continued": continued_by_two(store, Path(folder) / "moved"),
            "stopped": stopped_by_the_second(store, Path(folder) / "run"),
            "lengths": measured(Path(folder), 4),  # of a linear generator
            "scores": scores(Path(folder), "cache of two"),
            "full disk": measured_with_a_full_disk(Path(folder)),
        }
    results["agreed"] = agreed_in_a_group_of_a_script(rank, folder)
    torch.save(results, Path(folder) / f"{rank}.pt")
