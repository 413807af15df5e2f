"""The command `stylegan`, whose subcommands are imported when used."""

import importlib
import platform
from importlib import metadata

import click

from stylegan import __version__
from stylegan.cli.common import ending_at_signals

COMMANDS = {  # name -> module, and the line in the list of commands
    "train": ("train", "Train on a folder of images, or continue a run."),
    "generate": ("generate", "Write images from a trained generator."),
    "figure": ("figure", "Draw the figures of the paper."),
    "video": ("video", "Make videos of walks through latent space, or of a training run."),
    "convert": ("files", "Convert another program's checkpoint to a file of this project."),
    "export": ("files", "Write a generator for other programs."),
    "metrics": ("metrics", "Measure how good a generator is."),
    "report": ("metrics", "Write one page about a run: report.html."),
    "configs": ("configs", "List configurations, or every option of one."),
    "prepare": ("data", "Convert a folder or zip of images to a store."),
    "check": ("data", "Check images before training on them."),
    "cache": ("data", "List or remove cached stores and features."),
    "explore": ("explore", "Explore a generator on a local page."),
    "directions": ("directions", "Find directions of w that change images, or learn one."),
    "blend": ("files", "Combine the layers of two generators."),
    "project": ("project", "Find the latents of given images."),
    "align": ("data", "Crop faces as FFHQ does."),
    "info": ("files", "Describe a file or folder, and what it can be used for."),
}


class LazyGroup(click.Group):
    """Group of the functions that `COMMANDS` names, each imported when used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"stylegan.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        with ending_at_signals():  # also during imports
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def print_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print what a report of an error needs, in one line."""
    if wanted:
        torch = metadata.version("torch")  # without its import, which takes seconds
        python = f"{platform.python_implementation()} {platform.python_version()}"
        click.echo(f"stylegan {__version__}, torch {torch}, {python}, {platform.platform()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    commands={name: click.Command(name) for name in COMMANDS},  # names; imported when used
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Show the versions of stylegan, PyTorch and Python, and exit.",
)
def main() -> None:
    """StyleGAN (Karras, Laine, Aila 2019), version 1: train, generate, look inside.

    \b
    stylegan train --data photos/ --out runs/mine
    stylegan generate runs/mine --seeds 0-35 --out samples/
    """
