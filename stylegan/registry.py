"""Things by the names that a configuration gives them: the package's, and those of a script."""

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

Thing = TypeVar("Thing")
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Registry(Generic[Thing]):
    """What an option of the configuration may name, by name; a script adds to it."""

    def __init__(self, option: str, register: str, built_in: Mapping[str, Thing]) -> None:
        self.option, self.register = option, register  # the function that adds to it
        self.built_in, self.own = built_in, dict[str, Thing]()

    def add(self, name: str, thing: Thing) -> None:
        """ValueError for a name that the package uses, or that logs and TOML files cannot hold."""
        if name in self.built_in:
            raise ValueError(f"{name!r} is of the package; choose another name for yours")
        check_name(self.option, name)
        self.own[name] = thing

    def __getitem__(self, name: str) -> Thing:
        """ValueError if it is not known in this process."""
        known = {**self.built_in, **self.own}
        if name not in known:
            raise ValueError(
                f"{self.option} is {name!r}, not one of {', '.join(known)}; one of your own must "
                f"be registered ({self.register}) by the Python script that uses it"
            )
        return known[name]


def check_name(option: str, name: object) -> None:
    """ValueError for what names nothing."""
    if not (isinstance(name, str) and NAME.fullmatch(name) and len(name) <= 100):
        raise ValueError(
            f"{option} is a name of small letters, digits and _, not {str(name)[:100]!r}"
        )
