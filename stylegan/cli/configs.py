"""`stylegan configs`: the configurations that ship, and every option of one."""

import inspect
import itertools
import re
import textwrap
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

import click

from stylegan.cli.common import Command
from stylegan.cli.terminal import say

WIDTH = 80  # columns of a terminal
KIMG = "kimg: thousands of real images shown, the measure of time"


@dataclass(frozen=True)
class Option:
    """One option of a configuration and what its comment says."""

    name: str  # name, or section.name
    meaning: str  # with its choices, and its unit in brackets
    default: Any


@click.command(cls=Command)
@click.argument("name", required=False)
def configs(name: str | None) -> None:
    """List the configurations that ship; with NAME, every option of one.

    NAME is one of the list, or a TOML file. What is printed for it is a configuration file, too.

    \b
    stylegan configs ffhq-256 > mine.toml
    stylegan train --data photos/ --config mine.toml
    """
    say(*(described(name) if name else listing()))


def listing() -> list[str]:
    """A line for each configuration that ships: resolution, length, hardware, data."""
    from stylegan.config import config_names, load_config
    from stylegan.messages import aligned

    rows = [["name", "px", "kimg", "for", "data"]]
    found = {name: load_config(name) for name in config_names()}
    for name in sorted(found, key=lambda name: ("/" in name, found[name].network.resolution)):
        size, length = found[name].network.resolution, found[name].schedule.total_kimg
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
    """The comments at the top of a configuration."""
    from stylegan.config import config_file

    text = config_file(name).read_text(encoding="utf-8-sig")
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))


def described(name: str) -> list[str]:
    """A configuration with every option, each below its meaning and the paper's value."""
    from stylegan.config import load_config, to_toml
    from stylegan.toml import toml_value

    notes = {o.name: f"{o.meaning}; default {toml_value(o.default)}" for o in options()}
    body = to_toml(load_config(name), lambda option: commented(notes[option]))
    head = [
        *re.findall(r"^# *(.*)$", header(name), re.MULTILINE),
        f"Units are in brackets; {KIMG}.",
    ]
    return [*(line for text in head for line in commented(text)), *body.splitlines()]


def commented(text: str) -> list[str]:
    """A comment of TOML in lines of a terminal's width."""
    marks = {"initial_indent": "# ", "subsequent_indent": "# "}
    return textwrap.wrap(text, WIDTH, **marks, break_on_hyphens=False)  # type: ignore[arg-type]


def options() -> list[Option]:
    """Every option, in the order of the dataclasses."""
    from stylegan.config import DERIVED, SECTIONS, TrainConfig, flatten, to_dict

    config, found = TrainConfig(), []
    defaults = flatten(to_dict(config))
    owners = {"": config} | {name: getattr(config, name) for name in SECTIONS}
    for section, owner in owners.items():
        meanings = comments_of(type(owner))
        for field in fields(owner):
            name = f"{section}.{field.name}".lstrip(".")
            if name in defaults and name != DERIVED:
                meaning = meanings[field.name] + choices(field.type)
                found.append(Option(name, meaning, defaults[name]))
    return found


def choices(kind: Any) -> str:
    """` (a, b or c)` for an option that is one of several words."""
    if get_origin(kind) is not Literal:
        return ""
    *most, last = get_args(kind)
    return f" ({', '.join(most)} or {last})"


def comments_of(owner: type) -> dict[str, str]:
    """The comment of each field of a dataclass: above it or behind it."""
    pattern = r"((?:^    # .+\n)*)^    (\w+): .*? = .*?(?:  # (.+))?$"
    found = re.findall(pattern, inspect.getsource(owner), re.MULTILINE)
    return {
        name: " ".join([*re.findall(r"# (.+)", above), *([behind] if behind else [])])
        for above, name, behind in found
    }
