"""What will not work is found before the first step, and what is tried leaves nothing behind."""

import gc
import random
import re
import weakref

import numpy as np
import pytest
import torch
from helpers.meta_device import MetaTracker
from helpers.tiny_training import SCHEDULE, stage, tiny_config
from torch.utils.flop_counter import flop_registry

from stylegan.config import load_config
from stylegan.networks import Discriminator, Generator
from stylegan.run_folder import RunFolder
from stylegan.schedule import coming
from stylegan.training import Share, TrainState, draw, train_step
from stylegan.training.preflight import (
    Cost,
    disk_warning,
    plan_lines,
    published_costs,
    seconds_left,
    step_flops,
    try_out,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("images_seen", "expected"),
    [
        (0, [(4, 1.0), (8, 0.5), (16, 0.5)]),  # the heavier: while a resolution fades in
        (70, [(8, 1.0), (16, 0.5)]),  # 8x8 has faded in
        (100, [(16, 0.5)]),
        (140, [(16, 1.0)]),
        (160, []),
    ],
)
def test_the_stages_still_to_come(images_seen, expected):
    stages = coming(tiny_config().schedule, images_seen)
    assert [(stage.resolution, round(stage.alpha, 9)) for stage in stages] == expected


def test_a_plan_shows_the_rates_that_a_ramp_ends_in_and_the_batch_that_is_left():
    costs = {resolution: Cost(1.0, 1, measured=True) for resolution in (4, 8, 16)}
    changes = {"ramp_kimg": 0.1, "g_lr": {4: 0.004}, "max_batch_per_process": {8: 2}}
    _, *rows, ramp, _ = plan_lines(tiny_config(schedule=changes), costs, CPU)
    plan = [row.replace(" fades in", "").split()[1:5] for row in rows]
    assert plan == [
        ["4", "4", "0.004", "0.001"],
        *[["8", "2", "0.004", "0.001"]] * 2,
        *[["16", "2", "0.004", "0.001"]] * 2,
    ]
    assert ramp == "rates rise linearly from 0 over the first 0.1 kimg (ramp_kimg)"


def traces():
    """What a trial may change of the process."""
    generators = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()
    products = torch.backends.cudnn.conv.fp32_precision
    return generators, random.getstate(), products, torch.get_num_threads()


def test_a_preflight_tells_time_and_memory_and_leaves_nothing_behind(tmp_path, monkeypatch):
    states, create = [], TrainState.create

    def created(*arguments, **options):
        state = create(*arguments, **options)
        states.append(weakref.ref(state))
        return state

    monkeypatch.setattr(TrainState, "create", created)
    folder, before, told = RunFolder(tmp_path / "run"), traces(), []
    (line,) = try_out(tiny_config(), CPU, folder, told.append)
    assert re.fullmatch(
        r"about \d+ seconds? on this CPU( while other programs use its cores)?; "
        r"memory: about \d+\.\d\d GiB, at 16x16",
        line,
    )
    assert told == ["trying steps at every resolution to come, for their time and memory"]
    assert not folder.path.exists()
    assert traces() == before
    gc.collect()
    assert states and not any(state() for state in states)


def test_the_time_left_is_that_of_each_resolution_at_its_own_speed():
    seconds = {4: 1.0, 8: 2.0, 16: 4.0}.get
    plan = tiny_config().schedule  # 4x4 for 24 images, 8x8 for 64, 16x16 for 72
    for images_seen, left in [(0, 24 + 128 + 288), (20, 4 + 128 + 288), (150, 40), (170, 0)]:
        assert seconds_left(plan, images_seen, seconds) == pytest.approx(left)


def test_more_memory_than_is_installed_is_refused_with_what_helps(tmp_path):
    config = tiny_config(schedule=SCHEDULE | {"batch_size": {4: 2**28}})
    with pytest.raises(ValueError, match=r"not enough memory at resolution 16, batch 268435456"):
        try_out(config, CPU, RunFolder(tmp_path / "run"), print)


def test_states_that_do_not_fit_on_the_disk_are_told_of(tmp_path):
    assert disk_warning(tiny_config(), RunFolder(tmp_path / "run")) == []
    (warning,) = disk_warning(tiny_config(keep_states=10**12), RunFolder(tmp_path / "run"))
    assert re.search(rf"keep_states.*are free at {tmp_path}", warning)
    assert not (tmp_path / "run").exists()


class Products(MetaTracker):
    """Adds the operations of every convolution and matrix product inside. PyTorch's own mode does
    so in hooks of modules, which `torch.autograd.grad` does not allow."""

    flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if count := flop_registry.get(func.overloadpacket):
            self.flops += count(*args, **(kwargs or {}), out_val=result)
        return result


def test_the_operations_of_a_step_are_those_that_are_counted_to_a_tenth():
    """By every product of a step at the paper's widths, on the meta device."""
    config = load_config(None, ["network.resolution=32", "schedule.batch_size={4=4}"])
    with torch.device("meta"):
        networks = Generator(config.network), Discriminator(config.network)
    state, now = TrainState.create(config, *networks, device="meta"), stage(32)
    draws = draw(config, 0, now, None, Share(device="meta"), 0.0)
    with Products() as products:
        train_step(state, torch.empty(4, 3, 32, 32, device="meta"), None, now, draws)
    assert step_flops(config, 32) == pytest.approx(products.flops / 4, rel=0.1)


@pytest.mark.parametrize(
    ("resolution", "processes", "days"),
    [(1024, 1, 41.2), (1024, 8, 6.6), (256, 1, 14.9), (256, 8, 3.3)],
)
def test_the_official_plan_takes_the_time_that_was_published(resolution, processes, days):
    config = load_config("ffhq-1024", [f"network.resolution={resolution}"], processes)
    costs = published_costs(config, processes)
    seconds = seconds_left(config.schedule, 0, lambda r: costs[r].seconds_per_image)
    assert seconds / 86_400 == pytest.approx(days, rel=0.03)
    assert costs[resolution].memory_bytes < 16 * 2**30  # on which it was trained
