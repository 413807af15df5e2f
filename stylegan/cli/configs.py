"""`stylegan configs`: list the bundled configurations, or every option of one."""

import inspect
import itertools
import re
import textwrap
from dataclasses import fields
from typing import Literal, get_args, get_origin

import click

from stylegan.cli import param_types
from stylegan.cli.common import Command, echo
from stylegan.config import (
    SECTIONS,
    TrainConfig,
    config_file,
    config_names,
    flatten,
    load_config,
    option_names,
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
    defaults = flatten(to_dict(TrainConfig()))
    notes = {n: f"{text}; default {toml_value(defaults[n])}" for n, text in meanings().items()}
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


def meanings() -> dict[str, str]:
    """Option -> the comments in its source, with its choices, in the order of the dataclasses."""
    config = TrainConfig()
    found = {}
    for section in ("", *SECTIONS):
        owner = type(getattr(config, section) if section else config)
        kinds = {field.name: field.type for field in fields(owner)}
        for above, key, beside in re.findall(FIELD, inspect.getsource(owner), re.MULTILINE):
            words = [*re.findall(r"# (.+)", above), *filter(None, [beside])]
            if get_origin(kinds[key]) is Literal:
                *most, last = get_args(kinds[key])
                words.append(f"({', '.join(most)} or {last})")
            found[f"{section}.{key}".removeprefix(".")] = " ".join(words)
    return {name: found[name] for name in option_names()}
