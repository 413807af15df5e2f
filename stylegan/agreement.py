"""Errors that happen to one process become those of all: else the others wait for it in vain."""

from collections.abc import Callable
from typing import TypeVar

from stylegan import distributed

Value = TypeVar("Value")


def in_all(make: Callable[[], Value]) -> Value:
    """`make()` of each process, the first of a machine ahead of its others, which find its work
    done. The error of any is the error of all. `make` must not speak to other processes."""
    with distributed.first_of_machine_first():
        value, error = attempt(make)
    problems = [text for text in distributed.gather(error and str(error)) if text is not None]
    if error is not None:
        raise error
    if value is None or problems:
        raise ValueError(problems[0])
    return value[0]


def at_once(make: Callable[[], Value]) -> list[Value]:
    """`make()` of all processes, by rank, each working on its own part at the same time. The error
    of any is the error of all. `make` must not speak to other processes."""
    value, error = attempt(make)
    parts = distributed.gather((value, error and str(error)))
    if error is not None:
        raise error
    for _, problem in parts:
        if problem is not None:
            raise ValueError(problem)
    return [value[0] for value, _ in parts if value is not None]


def from_first(make: Callable[[], Value]) -> Value:
    """`make()` of the first process, in every process; its error as well."""
    value, error = attempt(make) if distributed.rank() == 0 else (None, None)
    found, problem = distributed.gather((value, error and str(error)))[0]
    if error is not None:
        raise error
    if found is None:
        raise ValueError(problem)
    return found[0]


def attempt(make: Callable[[], Value]) -> tuple[tuple[Value] | None, Exception | None]:
    """What `make` gives, or the error that a user can cause."""
    try:
        return (make(),), None
    except (ValueError, OSError) as error:
        return None, error
