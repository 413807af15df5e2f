"""The architecture: a module imports only from the rooms before its own in docs/architecture.md."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from helpers import ROOT

LINE = re.compile(r" *(\d+) (?:\w+ )+ +(\S.*)")  # number, title, rooms

BESIDE = "datasets", "benchmarks", "tools"  # the package


def rooms() -> dict[str, int]:
    """Room -> its place; a room is a module or folder of the package, or what lies beside it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = []
    for line in reversed(page.split("```")[1].strip("\n").splitlines()):
        for room in LINE.fullmatch(line)[2].split():
            name = room.rstrip("/")
            # beside the package files keep their ending
            names.append(name if (ROOT / name).is_file() else name.removesuffix(".py"))
    return {name: place for place, name in enumerate(names)}


PLACE = rooms()


def room_of(path: Path) -> str:
    """The room of a file."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] != "stylegan" else parts[1].removesuffix(".py")


def sources() -> list[Path]:
    package = sorted((ROOT / "stylegan").rglob("*.py"))
    beside = [path for room in BESIDE for path in sorted((ROOT / room).rglob("*.py"))]
    return [*package, *sorted(ROOT.glob("*.py")), *beside]


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything imported anywhere in a file, also in functions."""
    yield from imported_of(ast.parse(path.read_text(encoding="utf-8")), path)


def imported_of(tree: ast.AST, path: Path) -> Iterator[str]:
    """Dotted names of everything imported in a part of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = [*folder, *([node.module] if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def our_imports(path: Path) -> set[str]:
    """Rooms of the package that a file imports from."""
    names = [name.split(".") for name in imported(path)]
    inner = [(name[1:] or ["__init__"])[0] for name in names if name[0] == "stylegan"]
    return {name if name in PLACE else "__init__" for name in inner}


def test_architecture_page_lists_every_package_once():
    assert {room_of(path) for path in sources()} == set(PLACE)


def test_imports_come_only_from_earlier_packages():
    wrong = []
    for path in sources():
        here = room_of(path)
        if after := {name for name in our_imports(path) - {here} if PLACE[name] >= PLACE[here]}:
            wrong.append(f"{path.relative_to(ROOT)} imports from {after}")
    assert not wrong


def test_dataset_recipes_are_not_a_package_and_never_imported():
    assert not list((ROOT / "datasets").rglob("__init__.py"))
    own = {"datasets", "train", "generate", "hubconf", "tests", "configs", "examples"}
    for path in sources():
        assert not own & {name.split(".")[0] for name in imported(path)}


def test_modules_import_optional_dependencies_only_in_functions():
    """A library of an extra is imported where it is used, so that all else works without it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plain = {re.split("[><=]", line)[0] for line in project["dependencies"]}
    allowed = plain | {"PIL", "pydantic_core", "stylegan"} | set(sys.stdlib_module_names)
    for path in sorted((ROOT / "stylegan").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {name.split(".")[0] for name in imported_of(node, path)}
                assert names <= allowed, f"{path.relative_to(ROOT)}: {names - allowed}"
