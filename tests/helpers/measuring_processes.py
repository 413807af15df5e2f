"""What each of several processes of `test_metrics.py` measures; also what one does alone."""

import dataclasses
from pathlib import Path

import torch
from processes import one_of

from stylegan import distributed
from stylegan.data import Store
from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.files import loading
from stylegan.metrics import FeatureNetwork, Moments, Subject, Tools, evaluate, parse
from stylegan.metrics.inception import FEATURES, LOGITS, look

IMAGES = 13  # does not divide by 2 or 3
WORLDS = (3, 2)


def projection():
    """A network as wide as Inception, which takes no time: of the pixels of 4x4 images."""
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(48, FEATURES + LOGITS, generator=random, dtype=torch.float64)

    def extract(images):
        return images.flatten(1).double() / 255 @ weight

    return FeatureNetwork("projection", "0", FEATURES + LOGITS, "none", extract)


def measured(folder):
    """Everything that must not depend on the number of processes; arrays of the first alone."""
    generator = loading.load_generator("emoji32")
    subject = Subject(generator, store=Store(folder / "store"), mirror=True, resolution=4, batch=4)
    rows = torch.randn(IMAGES, 5, generator=torch.Generator().manual_seed(1)) + 100
    moments = Moments(5)
    for indices in subject.batches(IMAGES, "rows"):
        moments.add(rows[indices.start : indices.stop])
    merged = moments.merged()
    needs = {"features", "logits"}
    both = (
        look(projection(), batches, IMAGES, needs, folder / "cache")
        for batches in (subject.fakes(IMAGES), subject.reals(IMAGES))
    )
    arrays = [
        a if a is None else torch.from_numpy(a).clone() for found in both for a in found.values()
    ]
    return {
        "count": merged.count,
        "mean": torch.from_numpy(merged.mean()),
        "covariance": torch.from_numpy(merged.covariance()),
        "arrays": arrays,
    }


def refused(make):
    try:
        make()
    except (ValueError, OSError) as error:
        return str(error)
    return None


def fails_in_the_last():
    if distributed.rank() == distributed.world_size() - 1:
        raise OSError("the last has no room")
    return distributed.rank()


def fails_in_the_first():
    raise ValueError("the first knows")


@dataclasses.dataclass(frozen=True, eq=False)
class FullDisk(Subject):
    """Its last process has room for one batch only."""

    def fakes(self, num):
        for i, images in enumerate(super().fakes(num)):
            if i and distributed.rank() == distributed.world_size() - 1:
                raise OSError("the last disk is full")
            yield images


def measured_with_a_full_disk(folder):
    """What all that was asked ends with, and what is still measured."""
    told = []
    subject = FullDisk(
        loading.load_generator("emoji32"), store=Store(folder / "store"), resolution=8, batch=1
    )
    results = evaluate(subject, parse("swd9"), Tools(folder / "cache"), tell=told.append)
    return [result.metric for result in results], told


def work(rank, ports, folder):
    """The whole life of one of three processes; its results go into `folder`."""
    for world, port in zip(WORLDS, ports, strict=True):
        if rank >= world:
            continue
        with one_of(world, rank, port):
            results = {
                **measured(Path(folder)),
                "in all": refused(lambda: on_all_ranks(fails_in_the_last)),
                "from first": refused(lambda: from_rank0(fails_in_the_first)),
                "ranks": on_all_ranks(distributed.rank),
                "first": from_rank0(distributed.rank),
                "full disk": measured_with_a_full_disk(Path(folder)),
            }
        torch.save(results, Path(folder) / f"{world}-{rank}.pt")
