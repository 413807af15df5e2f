"""Takes the pictures of docs/explore.md: `python tools/explorer.py faces64`."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from stylegan.directions import load_or_find_directions
from stylegan.explore.controls import moves_along
from stylegan.explore.page import Page as Explorer
from stylegan.explore.server import serving
from stylegan.files.loading import open_weights

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MOVE = """(element, value) => {
  element.value = value;
  element.dispatchEvent(new Event("input", {bubbles: true}));
}"""


def shoot(page: Page, path: Path) -> None:
    """What the page shows, as WebP."""
    page.wait_for_timeout(1000)  # pictures are decoded
    with TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        page.screenshot(path=shot)
        with Image.open(shot) as image:
            image.convert("RGB").save(path, "WEBP", quality=90, method=6)


@click.command()
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/explore"))
def main(source: str, out: Path) -> None:
    """Write picture.webp and plane.webp."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise click.ClickException(f"there is no browser; one of {', '.join(BROWSERS)} is needed")
    loaded = open_weights(source).require_loaded()
    explorer = Explorer(loaded, moves_along(load_or_find_directions(source, loaded)), source)
    with serving(explorer) as address, sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=browser, args=arguments)
        page = chromium.new_page(viewport={"width": 1280, "height": 860})
        page.goto(address)
        shoot(page, out / "picture.webp")
        page.click("summary:text-is('Picture')")
        page.click("summary:text-is('Seed plane')")
        for name, value in (("plane_x", 0.6), ("plane_y", 0.35)):
            page.eval_on_selector(f"#{name} input[type=range]", MOVE, str(value))
        shoot(page, out / "plane.webp")
        chromium.close()


if __name__ == "__main__":
    main()
