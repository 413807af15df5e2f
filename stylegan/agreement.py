"""Errors that happen to one process become those of all: else the others wait for it in vain."""

from collections.abc import Callable
from typing import TypeVar

from stylegan import distributed

Value = TypeVar("Value")


def in_all(make: Callable[[], Value]) -> Value:
    """`make()` of each process, the first of a machine ahead of its others, which find its work
    done. The error of any is the error of all. `make` must not speak to other processes."""
    first_of_machine = distributed.local_rank() == 0
    if not first_of_machine:
        distributed.barrier()
    made, error = attempt(make)
    if first_of_machine:
        distributed.barrier()
    raise_in_all(error)
    return made[0]


def at_once(make: Callable[[], Value]) -> list[Value]:
    """`make()` of all processes, by rank, each working on its own part at the same time. The error
    of any is the error of all. `make` must not speak to other processes."""
    made, error = attempt(make)
    raise_in_all(error)
    return distributed.gather(made[0])


def from_first(make: Callable[[], Value]) -> Value:
    """`make()` of the first process, in every process; its error as well."""
    made, error = attempt(make) if distributed.rank() == 0 else ([], None)
    raise_in_all(error)
    return distributed.gather(made)[0][0]


def attempt(make: Callable[[], Value]) -> tuple[list[Value], Exception | None]:
    """What `make` gives, alone in a list, or the error that a user can cause."""
    try:
        return [make()], None
    except (ValueError, OSError) as error:
        return [], error


def raise_in_all(error: Exception | None) -> None:
    """Raise the error of this process, else a ValueError with that of the first that has one."""
    problems = [text for text in distributed.gather(error and str(error)) if text is not None]
    if error is not None:
        raise error
    if problems:
        raise ValueError(problems[0])
