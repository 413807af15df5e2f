"""What the documents name exists: files, links, commands and their options, rooms and functions."""

import ast
import importlib.util
import itertools
import re
import shlex
from pathlib import Path

import click
import pytest
from helpers import ROOT
from helpers.documents import FOLDERS, PAGES, blocks, text_of
from helpers.tables import kept_tables

from stylegan.cli import main
from stylegan.config import config_names

PATH = re.compile(rf"(?<![\w/.])(?<!--figure )(?<!--out )(?:{FOLDERS})/[\w./-]*\w")
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def lines_of(page: Path) -> list[str]:
    """What is between backticks, in prose and in blocks without a language."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    lines = [line.replace("\n", " ") for line in re.findall(r"`([^`]+)`", prose)]
    return lines + [
        line
        for block in blocks(page)
        if block.language in ("", "sh")
        for line in block.text.splitlines()
    ]


def commands(page: Path) -> list[list[str]]:
    """Our command lines: the command's name and its arguments."""
    found = []
    for line in lines_of(page):
        line = re.sub(r"^.*-m (?=stylegan )|^torchrun .*(?=train\.py )", "", line)
        line = re.sub(r"^(python )?(train|generate)\.py ", r"stylegan \2 ", line.strip())
        if line.startswith("stylegan "):
            found.append(shlex.split(line.removeprefix("stylegan "), comments=True))
    return found


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page ends in."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pages
def test_documents_name_existing_files_and_links(page):
    text = text_of(page)
    for path in PATH.findall(text):
        assert list(ROOT.glob(path)) or list(ROOT.glob(f"{path}.*")), path
    for link in re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", text):
        target, _, anchor = "".join(link).partition("#")
        if ":" not in target:
            file = page.parent / target if target else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@pages
def test_documents_name_existing_commands_and_options(page):
    context = click.Context(main)
    for words in commands(page):
        command = main
        while isinstance(command, click.Group) and words and re.fullmatch("[a-z]+", words[0]):
            name, *words = words
            command = command.get_command(context, name)
            assert command, f"stylegan {name}"
        if isinstance(command, click.Group):
            continue  # a placeholder such as KIND
        options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        for word, value in itertools.pairwise([*words, ""]):
            if re.match("--[a-z]", word):
                assert word.partition("=")[0] in options, f"stylegan {name} {word}"
            if word == "--config" and not value.endswith(".toml"):
                assert value in config_names()


def command_of(script: Path) -> click.Command:
    """The command that a script is; what it adds to our tables is gone afterwards."""
    with kept_tables(), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(script.parent))
        return importlib.import_module(script.stem).main


@pages
def test_documents_name_existing_options_of_scripts(page):
    for line in lines_of(page):
        words = shlex.split(line, comments=True) if line.startswith("python ") else []
        if len(words) < 2 or not re.fullmatch(rf"({FOLDERS})/\w+\.py", words[1]):
            continue
        _, script, *words = words
        options = [word.partition("=")[0] for word in words if re.match("--?[a-z]", word)]
        if options:
            command = command_of(ROOT / script)
            while isinstance(command, click.Group):
                name, *words = words
                command = command.get_command(click.Context(command), name)
            known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            assert set(options) <= known, f"{script} {set(options) - known}"


def names_of_the_package() -> set[str]:
    """The names of all functions, classes, arguments, fields and constants."""
    nodes = [
        node
        for path in (ROOT / "stylegan").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    defined = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return defined | stored | {n.arg for n in nodes if isinstance(n, ast.arg)}


def test_contributing_names_existing_identifiers():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text.partition("\n## How to add")[2].partition("\n## ")[0]
    codes = [
        code for code in re.findall(r"`([^`]+)`", recipes) if not re.search(r"[/.]\w|^-", code)
    ]
    found = {n for code in codes for n in re.findall(r"[A-Za-z]\w+", re.sub(r'".*?"', "", code))}
    assert len(found) > 20 and found <= names_of_the_package(), found - names_of_the_package()


def test_architecture_describes_every_package_of_the_layers():
    page = ROOT / "docs" / "architecture.md"
    layers = blocks(page)[0]
    for line in layers.text.splitlines()[1:]:  # the first are doors
        for room in re.split("  +", line.strip())[1:]:
            for name in room.split():
                assert f"`{name}`" in text_of(page), name


def test_architecture_invariants_name_existing_tests():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (K\d+) \| .* \| (.*) \|$", text, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [f"K{number}" for number in range(1, 22)]
    for name, cell in rows:
        tests = re.findall(r"`(test_\w+\.py)(?::(test_\w+))?`", cell)
        assert ", ".join(re.findall("`[^`]+`", cell)) == cell
        assert len(tests) == cell.count("`") / 2, f"{name}: {cell}"
        for file, test in tests:
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            found = re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE)
            assert test in found if test else found, f"{name}: {file}:{test}"


def test_architecture_walkthroughs_name_existing_functions():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    stops = re.findall(r"`((?!test_)[\w/]+\.py):([\w.]+)`", text)
    assert len(stops) > 30
    for path, name in stops:
        node: ast.AST = ast.parse((ROOT / "stylegan" / path).read_text(encoding="utf-8"))
        for part in name.split("."):
            inner = {getattr(n, "name", None): n for n in node.body}
            assigned = [n for n in node.body if isinstance(n, ast.Assign)]  # as streams are
            inner |= {getattr(n.targets[0], "id", None): n for n in assigned}
            assert part in inner, f"{path}:{name}"
            node = inner[part]
