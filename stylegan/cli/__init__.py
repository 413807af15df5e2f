"""The command `stylegan`. Commands are imported when used, so that each needs only its own."""

import importlib
from typing import NamedTuple

import click

from stylegan import __version__


class Entry(NamedTuple):
    """Where a command is, and its line in `stylegan --help`."""

    module: str
    help: str


COMMANDS = {
    "train": Entry("stylegan.cli.train", "Train on a folder of images, or continue a run."),
    "generate": Entry("stylegan.cli.generate", "Write pictures from a trained generator."),
    "figure": Entry("stylegan.cli.figure", "Draw the figures of the paper."),
    "video": Entry("stylegan.cli.video", "Film walks through latent space, or a training."),
    "convert": Entry("stylegan.cli.convert", "Make a file of ours of another program's."),
    "export": Entry("stylegan.cli.export", "Write a generator for other programs."),
    "metrics": Entry("stylegan.cli.metrics", "Measure how good a generator is."),
    "report": Entry("stylegan.cli.report", "Write one page about a run: report.html."),
    "schedule": Entry("stylegan.cli.schedule", "Show what a configuration trains when."),
    "prepare": Entry("stylegan.cli.data", "Make a store of a folder or zip of images."),
    "check": Entry("stylegan.cli.data", "Look at images before training on them."),
    "explore": Entry("stylegan.cli.explore", "Play with a generator on a local page."),
    "directions": Entry("stylegan.cli.directions", "Find directions of w to move pictures along."),
    "project": Entry("stylegan.cli.project", "Find the latents of given pictures."),
    "info": Entry("stylegan.cli.info", "Say what a file or folder is and what it is good for."),
}


class LazyGroup(click.Group):
    """A group whose commands are the functions of `COMMANDS`, of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name].module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stylegan")
def main() -> None:
    """StyleGAN (Karras, Laine, Aila 2019), version 1: train, generate, look inside.

    \b
    stylegan train --data photos/ --config ffhq-256 --out runs/mine
    stylegan generate runs/mine --seeds 0-35 --out pictures/
    """
