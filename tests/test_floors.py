"""The architecture: a module imports only from lower floors. The diagram is in the README."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = [
    {"ops", "losses", "schedule", "streams", "paths", "recompute"},
    {"atomic", "destination", "distributed", "messages", "version"},
    {"agreement", "records"},
    {"layers", "data"},
    {"networks"},
    {"config", "sampling"},
    {"run_folder"},
    {"files"},
    {"figures"},
    {"metrics", "video"},
    {"directions", "projection"},
    {"report"},
    {"explore"},
    {
        "training",
        "__init__",
        "interop",
    },  # `__init__` is the package's own door, for the surface alone
    {"ablation"},
    {"cli"},
    {"__main__", "train.py", "generate.py", "hubconf.py", "datasets"},  # doors to the commands
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}


def place(path: Path) -> str:
    """The name on the map: of a module or folder of the package, or of what lies beside it."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] != "stylegan" else parts[1].removesuffix(".py")


def sources() -> list[Path]:
    package = sorted((ROOT / "stylegan").rglob("*.py"))
    return [*package, *sorted(ROOT.glob("*.py")), *sorted((ROOT / "datasets").rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything imported anywhere in a file, also in functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = [*folder, *([node.module] if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def our_imports(path: Path) -> set[str]:
    """Places of the package that a file imports from."""
    names = [name.split(".") for name in imported(path)]
    inner = [(name[1:] or ["__init__"])[0] for name in names if name[0] == "stylegan"]
    return {name if name in FLOOR else "__init__" for name in inner}


def test_every_module_has_a_floor():
    assert {place(path) for path in sources()} == set(FLOOR)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_come_from_lower_floors(path):
    here = place(path)
    above = {name for name in our_imports(path) - {here} if FLOOR[name] >= FLOOR[here]}
    assert not above, f"{here} (floor {FLOOR[here]}) imports from {above}"


def test_the_recipes_are_no_package_and_nobody_imports_them():
    assert not list((ROOT / "datasets").rglob("__init__.py"))
    own = {"datasets", "train", "generate", "hubconf", "tests", "configs"}
    for path in sources():
        assert not own & {name.split(".")[0] for name in imported(path)}


def test_import_stylegan_needs_only_torch_and_numpy():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import stylegan; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "click", "tqdm", "torchvision", "tensorboard", "PIL"}
    assert "stylegan" in found.stdout.split()
    assert not heavy & set(found.stdout.split())
