"""`stylegan configs`: the configurations that ship, and every option of one."""

import inspect
import itertools
import re
import textwrap
from dataclasses import fields
from typing import Literal, NamedTuple, get_args, get_origin

import click

from stylegan.cli import values
from stylegan.cli.common import Command, say
from stylegan.config import (
    DERIVED,
    SECTIONS,
    TrainConfig,
    config_file,
    config_names,
    flatten,
    load_config,
    to_dict,
    to_toml,
)
from stylegan.machine.messages import aligned
from stylegan.machine.toml import toml_value

KIMG = "kimg: thousands of real images shown, the measure of time"
FIELD = r"((?:^    # .+\n)*)^    (\w+): .*? = .*?(?:  # (.+))?$"  # with comments above and behind


class Option(NamedTuple):
    """One option of a configuration, and its comment."""

    name: str  # name, or section.name
    meaning: str  # with its choices, and its unit in brackets
    default: object


@click.command(cls=Command)
@click.argument("name", type=values.SOURCE, required=False)
def configs(name: str | None) -> None:
    """List the configurations that ship; with NAME, every option of one.

    NAME is one of the list, or a TOML file. What is printed for it is a configuration file, too.

    \b
    stylegan configs ffhq-256 > mine.toml
    stylegan train --data photos/ --config mine.toml
    """
    say(*(described(name) if name else listing()))


def listing() -> list[str]:
    """List the configurations that ship: resolution, length, hardware, data."""
    rows = [["name", "px", "kimg", "for", "data"]]
    configs = {name: load_config(name) for name in config_names()}
    for name in sorted(configs, key=lambda name: ("/" in name, configs[name].network.resolution)):
        size = configs[name].network.resolution
        length = configs[name].schedule.total_kimg
        notes = dict(re.findall(r"^# (For|Data): (.+)$", header(name), re.MULTILINE))
        rows.append([name, str(size), f"{length:,g}", notes["For"], notes["Data"]])
    return [
        *aligned(rows, left=(0, 3, 4)),
        "",
        f"{KIMG};",
        "times on GPUs: published for the official program (V100), or scaled from them.",
        "auto is chosen for your pictures and machine: stylegan train --data PICTURES",
        "One in full: stylegan configs NAME. Train with it: stylegan train --config NAME",
    ]


def header(name: str) -> str:
    text = config_file(name).read_text(encoding="utf-8-sig")
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))


def described(name: str) -> list[str]:
    """Print a configuration with every option below its meaning and the paper's value."""
    notes = {o.name: f"{o.meaning}; default {toml_value(o.default)}" for o in options()}
    body = to_toml(load_config(name), lambda option: commented(notes[option]))
    head = [line.removeprefix("#").lstrip(" ") for line in header(name).splitlines()]
    head.append(f"Units are in brackets; {KIMG}.")
    return [*(line for text in head for line in commented(text)), *body.splitlines()]


def commented(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 78, break_on_hyphens=False)]


def options() -> list[Option]:
    """List every option with its comment, in the order of the dataclasses."""
    config = TrainConfig()
    lines = []
    defaults = flatten(to_dict(config))
    owners = {"": config} | {f"{name}.": getattr(config, name) for name in SECTIONS}
    for section, owner in owners.items():
        source = inspect.getsource(type(owner))
        comments = {
            name: " ".join([*re.findall(r"# (.+)", above), *filter(None, [behind])])
            for above, name, behind in re.findall(FIELD, source, re.MULTILINE)
        }
        for field in fields(owner):
            name = f"{section}{field.name}"
            if name in defaults and name != DERIVED:
                meaning = comments[field.name]
                if get_origin(field.type) is Literal:
                    *most, last = get_args(field.type)
                    meaning += f" ({', '.join(most)} or {last})"
                lines.append(Option(name, meaning, defaults[name]))
    return lines
