"""What a second process brings, and how much of the exchange of gradients is hidden."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist
from contest import (
    Contender,
    Result,
    Spread,
    Trial,
    conditions,
    contest,
    environment_for,
    markdown,
    number,
    options,
    save,
    spread,
)
from torch.nn.parallel import DistributedDataParallel

from stylegan import distributed
from stylegan.cli.common import Command
from stylegan.config import load_config
from stylegan.schedule import Stage
from stylegan.training import Share, TrainState, draw, train_step
from stylegan.training.step import enter_stage

STEP, EXCHANGE, END = 1, 2, 0  # what the first process asks of the others
PATIENCE_MINUTES = 10  # until a process that does not come is an error


class Process:
    """One of several processes that train together."""

    def __init__(self, settings: dict[str, Any]) -> None:
        batch, resolution = settings["batch"], settings["resolution"]
        own = [f"network.resolution={settings['network']}", f"schedule.batch_size={{4={batch}}}"]
        config = load_config(None, [*own, *settings["options"]])
        self.state = TrainState.create(config)
        self.share = Share(distributed.rank(), distributed.world_size())
        self.stage = Stage(resolution, 1.0, batch, g_lr=1e-3, d_lr=1e-3, tick_kimg=1)
        self.reals = torch.rand(batch // self.share.world_size, 3, resolution, resolution)
        self.exchange = settings["exchange"]
        self.gradients: list[torch.Tensor] = []

    def step(self) -> None:
        """Without exchange the processes grow apart, which costs no time."""
        draws = draw(self.state.config, self.state.images_seen, self.stage, None, self.share)
        with contextlib.ExitStack() as stack:
            networks = enter_stage(self.state, self.stage)
            for module in (networks.generator, networks.discriminator):
                if not self.exchange and isinstance(module, DistributedDataParallel):
                    stack.enter_context(module.no_sync())
            train_step(self.state, self.reals, None, self.stage, draws)

    def only_exchange(self) -> None:
        """As many bytes as the gradients of both networks have, in two pieces."""
        if not self.gradients:
            for network in (self.state.generator, self.state.discriminator):
                active = network.active_parameters(self.stage.resolution, self.stage.alpha)
                self.gradients.append(torch.zeros(sum(p.numel() for p in active)))
        for gradients in self.gradients:
            dist.all_reduce(gradients)

    def do(self, what: int) -> int:
        """Do what the first process asks for; only there `what` counts."""
        word = torch.tensor(what)
        if self.share.world_size > 1:
            dist.broadcast(word, 0)
        if word == STEP:
            self.step()
        elif word == EXCHANGE:
            self.only_exchange()
        return int(word)


def first(settings: dict[str, Any]) -> Trial:
    """Starts the other processes and leads them."""
    count = settings["processes"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    for rank in range(1, count):
        command = [sys.executable, __file__, "follow", json.dumps(settings)]
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)})
    os.environ |= {**place, "RANK": "0"}
    stack = contextlib.ExitStack()
    stack.enter_context(distributed.process_group(torch.device("cpu"), PATIENCE_MINUTES))
    process = Process(settings)
    what = EXCHANGE if settings["only_exchange"] else STEP
    stack.callback(process.do, END)
    return Trial(lambda: process.do(what), close=stack.close)


def follow(settings: dict[str, Any]) -> None:
    with distributed.process_group(torch.device("cpu"), PATIENCE_MINUTES):
        process = Process(settings)
        while process.do(END) != END:
            pass


def contenders(settings: dict[str, Any], processes: int, threads: int) -> dict[str, Contender]:
    """By what they show."""
    each = max(threads // processes, 1)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    alone = {"processes": 1, "exchange": True, "only_exchange": False}
    together = {**alone, "processes": processes}
    cases = {
        "one": (f"1 process, {threads} threads", alone, threads),
        "several": (f"{processes} processes, {each} threads each", together, each),
        "apart": ("the same without exchange", {**together, "exchange": False}, each),
        "limit": (
            f"1 process, {each} threads, its share of the batch",
            {**alone, "batch": settings["batch"] // processes},
            each,
        ),
        "exchange": ("only the exchange", {**together, "only_exchange": True}, each),
    }
    return {
        key: Contender(
            name,
            "scaling:first",
            {**settings, **changes},
            environment=dict.fromkeys(names, str(count)),
        )
        for key, (name, changes, count) in cases.items()
    }


def conclusions(results: dict[str, Result], processes: int) -> dict[str, float]:
    """Conclusions from the medians, as shares of 1; what is lost in noise is 0."""
    seconds = {key: Spread.of(result.seconds).median for key, result in results.items()}
    visible = max(seconds["several"] - seconds["apart"], 0.0)
    return {
        f"speed of {processes} processes, times that of one": seconds["one"] / seconds["several"],
        "efficiency against a process that is alone": seconds["limit"] / seconds["several"],
        "lost to sharing cores, caches and memory": 1 - seconds["limit"] / seconds["apart"],
        "exchange, as a share of the step": seconds["exchange"] / seconds["several"],
        "of the exchange hidden behind the backward pass": max(
            1 - visible / seconds["exchange"], 0
        ),
    }


@click.command(cls=Command)
@click.argument("resolution", type=int, default=32)
@click.option("--batch", type=int, default=8, show_default=True, help="Global batch size.")
@click.option("--processes", type=click.IntRange(min=2), default=2, show_default=True)
@click.option(
    "--network", type=int, default=64, show_default=True, help="Resolution of the whole network."
)
@click.option(
    "-o", "settings", multiple=True, metavar="KEY=VALUE", help="Option of the configuration."
)
@options("threads", "malloc", "seconds", "out")
def main(
    resolution: int,
    batch: int,
    processes: int,
    network: int,
    settings: Sequence[str],
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:
    """Time a step at RESOLUTION on one process and on several (gloo) with the same global batch.

    One process alone with a single process's threads and images is the limit: it has no exchange
    and shares cores' caches and memory with nobody.

    \b
    python benchmarks/scaling.py 32 --batch 8
    """
    environment = environment_for(threads, malloc)
    own = {"resolution": resolution, "batch": batch, "network": network, "options": settings}
    todo = contenders(own, processes, threads)
    found = contest(list(todo.values()), environment, seconds=seconds)
    results = dict(zip(todo, found, strict=True))
    if failed := [f"{r.name}: {r.error}" for r in found if r.error]:
        raise ValueError("; ".join(failed))
    rows = []
    for key, result in results.items():
        time = Spread.of(result.seconds)
        images = todo[key].settings["batch"] * (key != "exchange")
        rows.append({"": result.name, "s/step": spread(time)})
        rows[-1]["img/s"] = number(images / time.median) if images else ""
    found_shares = conclusions(results, processes)
    record = {"conditions": conditions(environment), "results": found, "conclusions": found_shares}
    title = f"A step at {resolution} px, batch {batch}, on {os.cpu_count()} cores"
    text = save(out, "scaling", title, record, rows)
    click.echo(text)
    click.echo(
        markdown([{"": name, "value": f"{value:.2f}"} for name, value in found_shares.items()])
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(json.loads(sys.argv[2]))
    else:
        main()
