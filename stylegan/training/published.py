"""What a training takes on GPUs that are not at hand, by the official program's published times."""

import math

from stylegan.config import TrainConfig
from stylegan.messages import about, gib
from stylegan.schedule import coming
from stylegan.training.preflight import Cost, memory_estimate, seconds_left, step_flops

# The official program's trainings on FFHQ took 41.2 days on one V100 at 1024x1024 and 6.6 on eight,
# 14.9 and 3.3 at 256x256. By the operations of its plan that is, of one V100 and lost with more:
SMALL, LARGE = 256, 1024
RATES = {SMALL: 9.4e12, LARGE: 4.8e12}  # operations per second
LOSSES = {SMALL: 0.28, LARGE: 0.12}  # each of n GPUs has n ** -loss of the rate of one
MEMORY_OF_V100 = 16 * 2**30  # bytes, of the smaller ones, which the official program was run on


def published_rate(resolution: int, processes: int) -> float:
    """Operations per second of all V100s together, in a training for that resolution."""
    part = math.log2(min(max(resolution, SMALL), LARGE) / SMALL) / math.log2(LARGE / SMALL)
    rate = RATES[SMALL] * (RATES[LARGE] / RATES[SMALL]) ** part
    loss = LOSSES[SMALL] + (LOSSES[LARGE] - LOSSES[SMALL]) * part
    return rate * processes ** (1 - loss)


def published_costs(config: TrainConfig, processes: int) -> dict[int, Cost]:
    """Of a step at each resolution to come: nothing is tried."""
    rate = published_rate(config.network.resolution, processes)
    return {
        stage.resolution: Cost(
            step_flops(config, stage.resolution) / rate,
            memory_estimate(config, stage, processes),
            measured=False,
        )
        for stage in coming(config.schedule, 0)
    }


def published_outlook(
    config: TrainConfig, costs: dict[int, Cost], processes: int, begun: int
) -> list[str]:
    """How long the rest will take, and how much memory."""
    seconds = seconds_left(config.schedule, begun, lambda r: costs[r].seconds_per_image)
    gpus = f"{processes} V100s" if processes > 1 else "one V100"
    most = max(costs, key=lambda resolution: costs[resolution].memory_bytes)
    return [
        f"about {about(seconds)} on {gpus}, by the published times of the official program; an "
        "A100 or H100 was not measured and takes a part of that",
        f"memory of each GPU: about {gib(costs[most].memory_bytes)}, at {most}x{most}; kernels "
        "take more",
    ]
