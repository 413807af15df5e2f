"""`stylegan configs`: the configurations that ship, and every option of one."""

import inspect
import re
import textwrap
from dataclasses import MISSING, dataclass, fields
from functools import cache
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
        network, plan, head = found[name].network, found[name].schedule, "\n".join(header(name))
        size, length = str(network.resolution), f"{plan.total_kimg:,g}"
        rows.append([name, size, length, labelled(head, "For"), labelled(head, "Data")])
    return [
        *aligned(rows, left=(0, 3, 4)),
        "",
        f"{KIMG};",
        "times on GPUs: published for the official program (V100), or scaled from them.",
        "auto is chosen for your pictures and machine: stylegan train --data PICTURES",
        "One in full: stylegan configs NAME. Train with it: stylegan train --config NAME",
    ]


def labelled(head: str, label: str) -> str:
    """The text after `# LABEL: ` in the comments at the top of a configuration."""
    found = re.search(rf"^# {label}: (.+)$", head, re.MULTILINE)
    return found[1] if found else ""


def header(name: str) -> list[str]:
    """The comments at the top of a configuration."""
    from stylegan.config import config_file

    lines = config_file(name).read_text(encoding="utf-8-sig").splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:end]


def described(name: str) -> list[str]:
    """A configuration with every option, each below its meaning and the paper's value."""
    from stylegan.config import flatten, load_config, to_dict
    from stylegan.toml import toml_value

    values = flatten(to_dict(load_config(name)))
    head = [*(text.lstrip("# ") for text in header(name)), f"Units are in brackets; {KIMG}."]
    lines, section = [line for text in head for line in commented(text)], ""
    for option in options():
        place, _, key = option.name.rpartition(".")
        if place != section:
            section = place
            lines += ["", f"[{section}]"]
        lines += commented(f"{option.meaning}; default {toml_value(option.default)}")
        lines.append(f"{key} = {toml_value(values[option.name])}")
    return lines


def commented(text: str) -> list[str]:
    """A comment of TOML in lines of a terminal's width."""
    marks = {"initial_indent": "# ", "subsequent_indent": "# "}
    return textwrap.wrap(text, WIDTH, **marks, break_on_hyphens=False)  # type: ignore[arg-type]


@cache
def options() -> list[Option]:
    """Every option, in the order of the dataclasses."""
    from stylegan.config import DERIVED, SECTIONS, TrainConfig

    found = []
    types: dict[str, Any] = {field.name: field.type for field in fields(TrainConfig)}
    for section, owner in [("", TrainConfig), *((name, types[name]) for name in SECTIONS)]:
        meanings = comments_of(owner)
        for field in fields(owner):
            name = f"{section}.{field.name}" if section else field.name
            if name not in SECTIONS and name != DERIVED:
                make = field.default_factory
                default = field.default if make is MISSING else make()
                found.append(Option(name, meanings[field.name] + choices(field.type), default))
    return found


def choices(kind: Any) -> str:
    """` (a, b or c)` for an option that is one of several words."""
    if get_origin(kind) is not Literal:
        return ""
    *most, last = get_args(kind)
    return f" ({', '.join(most)} or {last})"


def comments_of(owner: type) -> dict[str, str]:
    """The comment of each field of a dataclass: above it or behind it."""
    found, above = {}, []
    for line in inspect.getsource(owner).splitlines():
        if comment := re.fullmatch(r"    # (.+)", line):
            above.append(comment[1])
        elif field := re.match(r"    (\w+): .*? = .*?(?:  # (.+))?$", line):
            found[field[1]] = " ".join([*above, *([field[2]] if field[2] else [])])
            above = []
        else:
            above = []
    return found
