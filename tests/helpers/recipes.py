"""The recipes of `datasets/`, a folder that nothing imports from."""

import importlib.util
import sys
from types import ModuleType

from helpers import ROOT


def recipe(name: str) -> ModuleType:
    """The module of this name; those of faces import each other by their names."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "datasets" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
