"""What an installed package shows stands alone: it has no pages and no scripts of the clone."""

import ast
import re
import tomllib
from importlib import metadata

import pytest
from click.testing import CliRunner
from helpers import ROOT

from stylegan import __version__
from stylegan.cli import main

PAGE = re.compile(r"\b(docs|datasets|examples|tests|tools)/[\w-]+\.\w+|\b(train|generate)\.py\b")
SHIPPED = {"datasets/faces-64.zip"}


def shown(path):
    """The strings of a module that may be printed, with the docstrings that are help texts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        if not getattr(node, "decorator_list", [])
    }
    strings = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return [n.value for n in strings if isinstance(n.value, str) and id(n) not in docstrings]


def test_messages_and_help_texts_name_no_file_that_an_installed_package_lacks():
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / "stylegan").rglob("*.py")
        for text in shown(path)
        for match in PAGE.finditer(text)
        if match[0] not in SHIPPED
    }
    assert not found


def test_version_names_stylegan_torch_and_python_in_one_line():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0 and result.output.count("\n") == 1
    assert result.output.startswith(f"stylegan {__version__}, torch {metadata.version('torch')}, ")
    assert "Python" in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![a](docs/a.webp)", "![a](RAW/docs/a.webp)"),
        ('<img src="docs/a.webp" alt="b">', '<img src="RAW/docs/a.webp" alt="b">'),
        ("[a](docs/a.md#b)", "[a](BLOB/docs/a.md#b)"),
        ("[a\nb](https://c)", "[a\nb](https://c)"),
    ],
)
def test_a_package_index_gets_absolute_addresses(text, expected):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = project["project"]["urls"]["Repository"]
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    for word in ("raw", "blob"):
        text = text.replace(f"{address}/{word}/v$HFPR_VERSION", word.upper())
    assert text == expected
