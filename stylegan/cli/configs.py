"""`stylegan configs`: list the bundled configurations, or every option of one."""

import inspect
import itertools
import re
import textwrap
from dataclasses import fields
from typing import Literal, NamedTuple, get_args, get_origin

import click

from stylegan.cli import param_types
from stylegan.cli.common import Command, echo
from stylegan.config import (
    DERIVED,
    SECTIONS,
    TrainConfig,
    config_file,
    config_names,
    flatten,
    load_config,
    read_options,
    to_dict,
    to_toml,
)
from stylegan.utils.text import align_columns
from stylegan.utils.toml import read_text, toml_value

KIMG = "kimg: thousands of real images shown, the unit of training time"
FIELD = r"((?:^    # .+\n)*)^    (\w+): .*? = .*?(?:  # (.+))?$"  # comments above and beside
# options that follow from the machine and the weights at the start, unless a file sets them
AT_START = {
    "schedule.batch_size",
    "schedule.num_processes",
    "schedule.initial_resolution",
    "d_only_kimg",
    "data.crop",
}


class Option(NamedTuple):
    name: str  # or section.name
    meaning: str  # with the choices, and the unit in brackets
    default: object


@click.command(cls=Command)
@click.argument("name", type=param_types.SOURCE, required=False)
def configs(name: str | None) -> None:
    """List the bundled configurations; with NAME, every option of one.

    NAME is one of the list, or a TOML file. The output is itself a configuration file.

    \b
    stylegan configs ffhq-256 > mine.toml
    stylegan train --data photos/ --config mine.toml
    """
    echo(*(described(name) if name else listing()))


def listing() -> list[str]:
    rows = [["name", "px", "kimg", "for", "data"]]
    configs = {name: load_config(name) for name in config_names()}
    for name in sorted(configs, key=lambda name: ("/" in name, configs[name].network.resolution)):
        size = configs[name].network.resolution
        length = configs[name].schedule.total_kimg
        notes = dict(re.findall(r"^# (For|Data): (.+)$", header(name), re.MULTILINE))
        rows.append([name, str(size), f"{length:,g}", notes["For"], notes["Data"]])
    return [
        *align_columns(rows, left=(0, 3, 4)),
        "",
        f"{KIMG};",
        "GPU times: published for the official code (V100) or scaled; faces-64: H200.",
        "auto is chosen for your images and machine: stylegan train --data FOLDER",
        "All options: stylegan configs NAME. To train: stylegan train --config NAME",
    ]


def header(name: str) -> str:
    text = read_text(config_file(name))
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))


def described(name: str) -> list[str]:
    """Lines of a configuration file, each option below its meaning and the paper's value."""
    notes = {o.name: f"{o.meaning}; default {toml_value(o.default)}" for o in options()}
    body = to_toml(load_config(name), lambda option: commented(notes[option]))
    for option in AT_START - read_options(name).keys():  # written down, they would be fixed
        key = option.rpartition(".")[2]
        body = re.sub(rf"^(?={key} = )", "# follows: ", body, flags=re.MULTILINE)
    head = [line.removeprefix("#").lstrip(" ") for line in header(name).splitlines()]
    head.append(f"Units are in brackets; {KIMG}.")
    head.append("What follows from machine and weights at the start is marked so.")
    return [*(line for text in head for line in commented(text)), *body.splitlines()]


def commented(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 78, break_on_hyphens=False)]


def options() -> list[Option]:
    """All options in the order of the dataclasses; meanings are the comments in their source."""
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
