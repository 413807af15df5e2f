"""Drives the explorer's page in a browser without a window: its pictures for docs, its speed."""

import contextlib
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from stylegan.directions import known_directions
from stylegan.explore import Scene
from stylegan.explore.server import serving
from stylegan.files.loading import LoadedGenerator, load_source
from stylegan.networks import Generator, NetworkConfig

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync")
MOVE = """(element, value) => {
  element.value = value;
  element.dispatchEvent(new Event("input", {bubbles: true}));
}"""
TIMED_MOVE = """async ([name, value]) => {
  const picture = () => document.querySelector("#picture img");
  const before = picture().src;
  const slider = document.querySelector("#" + name + " input[type=range]");
  const start = performance.now();
  slider.value = value;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
  while (picture().src === before) await new Promise(resolve => setTimeout(resolve, 1));
  await picture().decode();
  return performance.now() - start;
}"""
PAUSE = 0.1  # seconds between moves


@contextlib.contextmanager
def opened(scene: Scene, width: int = 1280, height: int = 860) -> Iterator[Page]:
    """The page of a scene in a browser."""
    browsers = [path for path in map(shutil.which, BROWSERS) if path]
    if not browsers:
        raise click.ClickException(f"there is no browser; one of {', '.join(BROWSERS)} is needed")
    with serving(scene) as address, sync_playwright() as playwright:
        arguments = [f"--{flag}" for flag in FLAGS]
        browser = playwright.chromium.launch(executable_path=browsers[0], args=arguments)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(address)
        page.wait_for_selector("#seeds button:nth-child(12)", timeout=120_000)
        yield page
        browser.close()


def random_scene(resolution: int) -> Scene:
    """A network of the paper's widths with random weights."""
    torch.manual_seed(0)
    generator = Generator(NetworkConfig(resolution=resolution)).eval()
    return Scene(LoadedGenerator(generator, "memory", resolution=resolution))


def milliseconds(page: Page, name: str, values: Sequence[float]) -> list[float]:
    """From each move of a slider to the new picture; the first ones warm up."""
    times = []
    for value in values:
        times.append(float(page.evaluate(TIMED_MOVE, [name, str(value)])))
        time.sleep(PAUSE)
    return times[3:]


def shoot(page: Page, path: Path) -> None:
    """What the page shows, as WebP."""
    page.wait_for_timeout(500)  # pictures are decoded
    with TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        page.screenshot(path=shot)
        with Image.open(shot) as image:
            image.convert("RGB").save(path, "WEBP", quality=90, method=6)


@click.group()
def main() -> None:
    """The explorer's page, driven from outside."""


@main.command()
@click.argument("sources", nargs=-1)
@click.option("--moves", default=20, show_default=True)
@click.option("--threads", type=int, help="Number of PyTorch's threads.  [default: one per core]")
def speed(sources: Sequence[str], moves: int, threads: int | None) -> None:
    """Time from moving a slider to the picture, of SOURCES and of random networks named by size.

    \b
    python tools/explorer.py speed emoji32 64 256
    """
    if threads:
        torch.set_num_threads(threads)
    click.echo(f"{'':<12} {'seed, median':>14} {'psi, median':>14} {'least':>8}")
    for source in sources or ("emoji32", "64", "256"):
        scene = random_scene(int(source)) if source.isdecimal() else Scene(load_source(source))
        with opened(scene) as page:
            seeds = milliseconds(page, "seed", range(1, moves + 4))
            psis = milliseconds(page, "psi", [round(-1.1 + 0.05 * i, 2) for i in range(moves + 3)])
        medians = statistics.median(seeds), statistics.median(psis)
        least = min(seeds + psis)
        click.echo(f"{source:<12} {medians[0]:>11.0f} ms {medians[1]:>11.0f} ms {least:>5.0f} ms")


@main.command()
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/explore"))
@click.option("--seed", default=5, show_default=True)
def shots(source: str, out: Path, seed: int) -> None:
    """Write the pictures of docs/explore.md that show the page.

    \b
    python tools/explorer.py shots emoji32
    """
    out.mkdir(parents=True, exist_ok=True)
    loaded = load_source(source)
    with opened(Scene(loaded, known_directions(source, loaded), source)) as page:

        def slide(name: str, value: float) -> None:
            page.eval_on_selector(f"#{name} input[type=range]", MOVE, str(value))
            page.wait_for_timeout(500)

        def show(name: str) -> None:
            page.click(f"summary:text-is('{name}')")
            page.wait_for_timeout(500)

        shoot(page, out / "picture.webp")
        for number in range(4):
            slide("seed", seed + number)
            page.click("#save")
        show("Seed plane")
        slide("plane_x", 0.6)
        slide("plane_y", 0.35)
        shoot(page, out / "plane.webp")
        page.click("#plane_zero")
        show("Edits")
        slide("pca_1", 2)
        shoot(page, out / "directions.webp")
        page.click("#reset")
        show("Saved points")
        slide("between", 0.4)
        shoot(page, out / "points.webp")
        page.check("#start input[value=seed]")
        show("Activations")
        shoot(page, out / "activations.webp")
        page.set_viewport_size({"width": 500, "height": 860})
        show("Picture")
        shoot(page, out / "narrow.webp")


if __name__ == "__main__":
    main()
