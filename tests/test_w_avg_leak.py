"""The leak of an average of w that is passed through `forward`, and that ours has none."""

import itertools

import pytest
import torch
from helpers.tiny_training import stage, tiny_config
from torch import nn

from stylegan.networks import Generator
from stylegan.training import Share, draw
from stylegan.training.step import GeneratorPass, update_w_avg

CALLS = 60
EVERY = 20
DECAY = 0.95


class Averaging(nn.Module):
    """How others do it: `forward` takes the average, un-detached, and returns the next one."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def forward(self, z, w_avg):
        w = self.generator.mapping(z)
        images = self.generator.synthesis(self.generator.broadcast(w), resolution=4)
        return images, torch.lerp(w_avg, w.mean(dim=0), 1 - DECAY)


@pytest.fixture
def generator():
    torch.manual_seed(0)
    return Generator(tiny_config().network)


def latents(generator, n=4):
    return torch.randn(n, generator.config.z_dim)


def replica_of(module):
    """What `nn.DataParallel` runs on each GPU but the first, made on the CPU: copies of every
    parameter (whose gradients flow back) and buffer, in replicas of every part."""
    replica = module._replicate_for_data_parallel()
    for name, parameter in module._parameters.items():
        setattr(replica, name, None if parameter is None else parameter.clone())
    for name, buffer in module._buffers.items():
        replica._buffers[name] = buffer.clone()
    for name, part in module._modules.items():
        replica._modules[name] = None if part is None else replica_of(part)
    return replica


def graph_nodes(tensor):
    """The autograd nodes that a tensor came through, which its graph keeps alive."""
    found = set()
    todo = [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [following for following, _ in node.next_functions]
    return found


def test_w_avg_passed_through_forward_undetached_keeps_every_graph(generator):
    module = Averaging(generator)
    w_avg = generator.w_avg
    nodes = []
    for call in range(CALLS):
        images, w_avg = replica_of(module)(latents(generator), w_avg)
        images.square().mean().backward()
        if (call + 1) % EVERY == 0:
            nodes.append(len(graph_nodes(w_avg)))
    (growth,) = {after - before for before, after in itertools.pairwise(nodes)}
    assert growth >= EVERY * 10  # each call leaves a whole pass through the mapping network behind


def test_update_w_avg_keeps_no_graph_and_equals_the_closed_form(generator):
    generator = generator.double()
    now = stage(4, 1.0)
    config = tiny_config()
    place = generator.w_avg.data_ptr()
    means = []
    nodes = []
    for call in range(CALLS):
        draws = draw(config, 4 * call, now, None, Share(dtype=torch.float64)).generator
        images, w_mean = replica_of(GeneratorPass(generator))(draws, now)
        images.square().mean().backward()
        update_w_avg(generator, w_mean, DECAY)
        nodes.append(len(graph_nodes(w_mean)) + len(graph_nodes(generator.w_avg)))
        means.append(generator.mapping(draws.latents).detach().mean(dim=0))
    assert nodes == [0] * CALLS
    assert generator.w_avg.data_ptr() == place
    assert "w_avg" in dict(generator.named_buffers())
    weights = (1 - DECAY) * DECAY ** torch.arange(CALLS - 1, -1, -1, dtype=torch.float64)
    expected = (torch.stack(means) * weights[:, None]).sum(dim=0)
    assert (generator.w_avg - expected).abs().max() < 1e-12


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_data_parallel_keeps_memory_flat_and_w_avg_in_place(generator):
    """On one GPU a replica made as above: there `DataParallel` calls the module itself."""
    devices = list(range(torch.cuda.device_count()))
    generator = generator.to("cuda")
    place = generator.w_avg.data_ptr()
    parallel = nn.DataParallel(generator, devices)
    used = []
    for _ in range(CALLS):
        z = latents(generator, 4 * len(devices)).to("cuda")
        replicated = parallel if len(devices) > 1 else replica_of(generator)
        replicated(z, resolution=8, alpha=0.5).square().mean().backward()
        with torch.no_grad():
            update_w_avg(generator, generator.mapping(z).mean(dim=0), DECAY)
        generator.zero_grad(set_to_none=True)
        used.append(sum(torch.cuda.memory_allocated(device) for device in devices))
    assert used[-1] == used[EVERY - 1]
    assert generator.w_avg.grad_fn is None
    assert generator.w_avg.data_ptr() == place
