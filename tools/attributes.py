"""How often samples show each attribute of the faces, and samples sorted by them.

A small network learns to answer yes-or-no questions about the pictures of `datasets/faces.py`, from
their `labels.csv`. Readers of single questions, saved as TorchScript, serve
`stylegan metrics --metrics ls --classifier FILE`; samples sorted by them serve
`stylegan directions`.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from stylegan.data import Preparation, Store, cached_store
from stylegan.files.loading import open_weights

BATCH = 64
HELD_OUT = 1000
CERTAIN = 1.5  # log odds from which a sample is sorted
Labels = Mapping[str, np.ndarray]  # column of labels.csv -> its number for each picture
QUESTIONS: dict[str, Callable[[Labels], np.ndarray]] = {
    "glasses": lambda labels: labels["glasses=none"] == 0,
    "dark glasses": lambda labels: labels["glasses=dark"] == 1,
    "beard": lambda labels: (
        labels["beard=goatee"] + labels["beard=short"] + labels["beard=full"] > 0
    ),
    "moustache": lambda labels: labels["beard=moustache"] == 1,
    "smile": lambda labels: labels["smile"] > 0.4,
    "open mouth": lambda labels: labels["mouth_open"] > 0,
    "male": lambda labels: labels["male"] > 0.5,
    "old": lambda labels: labels["years"] > 50,
    "child": lambda labels: labels["years"] < 15,
    "turned right": lambda labels: labels["yaw"] > 0,
    "lit from the right": lambda labels: labels["light_side"] > 0,
    "lipstick": lambda labels: labels["lipstick"] == 1,
    "blue eyes": lambda labels: labels["eye_color=blue"] == 1,
    "long hair": lambda labels: labels["hair_style=long"] + labels["hair_style=bob"] > 0,
    "afro": lambda labels: labels["hair_style=afro"] == 1,
    "bald": lambda labels: labels["hair_style=bald"] + labels["hair_style=buzz"] > 0,
    "black hair": lambda labels: labels["hair_color=black"] == 1,
    "blond hair": lambda labels: labels["hair_color=blond"] == 1,
    "red hair": lambda labels: labels["hair_color=red"] == 1,
    "gray hair": lambda labels: labels["hair_color=gray"] + labels["hair_color=white"] > 0,
}


class Reader(nn.Module):
    """Images (N, 3, 64, 64) in [-1, 1] -> log odds (N, answers) that the answers are yes."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise((3, 24, 48, 96, 128)):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU(), nn.Linear(256, answers)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


class Single(nn.Module):
    """Log odds of one answer."""

    def __init__(self, reader: Reader, column: int) -> None:
        super().__init__()
        self.reader = reader
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        odds: Tensor = self.reader(x)[:, self.column]
        return odds


def answers_of(store: Store) -> Tensor:
    """The true answers (N, questions) for all pictures of the data set: 0 or 1."""
    columns = dict(zip(store.label_names, store.require_labels().T, strict=True))
    answers = np.stack([question(columns) for question in QUESTIONS.values()], axis=1)
    return torch.from_numpy(answers.astype(np.float32))


def read(reader: Reader, images: np.ndarray) -> Tensor:
    """Log odds (N, questions) of uint8 images (N, 3, 64, 64)."""
    with torch.no_grad():
        chunks = [reader(floats(images[i : i + 250])) for i in range(0, len(images), 250)]
    return torch.cat(chunks)


def floats(images: np.ndarray) -> Tensor:
    return torch.tensor(images).float() / 127.5 - 1


def learn(images: np.ndarray, answers: Tensor, epochs: int) -> Reader:
    """A reader of these pictures, which are moved by up to two pixels each time."""
    torch.manual_seed(0)
    reader = Reader(answers.shape[1])
    optimizer = torch.optim.Adam(reader.parameters(), 1e-3)
    batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: batches * BATCH].split(BATCH):
            dy, dx = torch.randint(-2, 3, (2,)).tolist()
            odds = reader(floats(images[rows.numpy()]).roll((dy, dx), (2, 3)))
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(odds, answers[rows]).backward()
            optimizer.step()
            schedule.step()
    return reader.eval()


def sort_samples(images: np.ndarray, odds: Tensor, out: Path) -> None:
    """Write samples into OUT/yes and OUT/no, those about which the reader is certain, as many of
    one as of the other; their names say their seeds."""
    for name, certainty in (("yes", odds), ("no", -odds)):
        (out / name).mkdir(parents=True)
        both = min(int((odds > CERTAIN).sum()), int((-odds > CERTAIN).sum()))
        for seed in certainty.argsort(descending=True)[:both].tolist():
            Image.fromarray(images[seed]).save(out / name / f"seed{seed:04d}.png")


@click.command()
@click.argument("data", type=click.Path(exists=True))
@click.argument("source")
@click.option("--samples", default=2000, show_default=True, help="Number of samples to read.")
@click.option("--epochs", default=8, show_default=True, help="Times that every picture is shown.")
@click.option(
    "--sort",
    "sorted_by",
    type=click.Choice(list(QUESTIONS)),
    multiple=True,
    help="Write samples that answer yes and no into OUT/NAME/yes and OUT/NAME/no.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/attributes"))
def main(
    data: str, source: str, samples: int, epochs: int, sorted_by: tuple[str, ...], out: Path
) -> None:
    """Print how often pictures of DATA and samples of SOURCE at psi 1 answer yes."""
    folders = {name: out / name.replace(" ", "-") for name in sorted_by}
    if taken := [folder for folder in folders.values() if folder.exists()]:
        raise click.UsageError(f"{taken[0]} exists; choose another --out")
    store = cached_store(data, Preparation(resolution=64), labels=True)
    images = store.images(64)
    truth = answers_of(store)
    reader = learn(images[:-HELD_OUT], truth[:-HELD_OUT], epochs)
    right = (read(reader, images[-HELD_OUT:]) > 0) == (truth[-HELD_OUT:] > 0)
    guessed = torch.maximum(truth[-HELD_OUT:].mean(0), 1 - truth[-HELD_OUT:].mean(0))
    loaded = open_weights(source).require_loaded()
    made = loaded.generate(range(samples), psi=1, cutoff="all", noise="random")
    pictures = np.stack(list(made))
    odds = read(reader, pictures.transpose(0, 3, 1, 2))
    print("| | data % | read in the data % | samples % | held-out accuracy % (guessing) |")
    print("| --- | --: | --: | --: | --: |")
    seen = read(reader, images[-HELD_OUT:]) > 0
    out.mkdir(parents=True, exist_ok=True)
    for column, name in enumerate(QUESTIONS):
        shares = [truth[:, column], seen[:, column].float(), (odds[:, column] > 0).float()]
        cells = [f"{100 * share.mean():.0f}" for share in shares]
        accuracy = f"{100 * right[:, column].float().mean():.1f} ({100 * guessed[column]:.1f})"
        print(f"| {name} | {' | '.join(cells)} | {accuracy} |")
        single = torch.jit.trace(Single(reader, column).eval(), torch.zeros(2, 3, 64, 64))
        torch.jit.save(single, str(out / f"{name.replace(' ', '-')}.pt"))
    for name, folder in folders.items():
        sort_samples(pictures, odds[:, list(QUESTIONS).index(name)], folder)


if __name__ == "__main__":
    main()
