"""Plain values from outside, of TOML, files, JSON or a user's Python: read once, by pydantic.

The types of a dataclass say which values are right, and its `__post_init__` what they say of each
other. Plain values are JSON: one form for all of these, in which arrays become tuples, and keys of
tables numbers, while nothing else is converted.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from stylegan.machine.messages import readable, suggestion

Value = TypeVar("Value")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
NOT_PLAIN = "a value is nested too deeply or too large, or is text that is not Unicode"
MOST_VALUES = 2**23  # of a file, in all lists: a file of some bytes may hold one list many times
LARGEST = 10**12  # beyond, arithmetic with numbers of options overflows
AtLeast0 = Annotated[float, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Probability = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]
# of images and pixels that a file may name: up to here floats are exact
Counted = Annotated[int, Field(ge=0, le=2**53)]


def checked(kind: type[Value]) -> type[Value]:
    """Give a dataclass a constructor that takes its arguments as `read` does. A decorator above
    `dataclass`. ValueError names a field that is wrong."""
    signature = inspect.signature(kind)
    usual = kind.__init__

    @functools.wraps(usual)
    def init(self: Value, *args: object, **values: object) -> None:
        made = read(kind, signature.bind(*args, **values).arguments)
        for name, value in vars(made).items():
            object.__setattr__(self, name, value)  # of a frozen one, too

    kind.__init__ = init  # type: ignore[method-assign, assignment]
    return kind


def settle(owner: object, **kinds: Any) -> None:
    """Take fields of a frozen dataclass, by their names, as `read` does: in the `__post_init__` of
    one that also holds what is not plain."""
    for name, kind in kinds.items():
        object.__setattr__(owner, name, read(kind, getattr(owner, name), name))


def read(kind: type[Value], values: object, where: object = "") -> Value:
    """Read `values` as a `kind`: a dataclass, or any type that pydantic knows. ValueError, which
    begins with `where`, names the first fault and its place, in one line."""
    try:
        check_number(values)
        text = json.dumps(values, default=as_json)
    except (TypeError, ValueError, RecursionError) as error:  # keys that are no text; circles
        raise ValueError(f"{where}: {NOT_PLAIN}" if where else NOT_PLAIN) from error
    return read_json(kind, text, where)


def check_number(values: object) -> None:
    """Raise ValueError for more than `MOST_VALUES`, before any copy of them is made."""
    waiting = [values]
    number = 0
    while waiting:
        value = waiting.pop()
        number += 1
        if number > MOST_VALUES:
            raise ValueError(f"there are more than {MOST_VALUES:,} values")
        if isinstance(value, dict | list | tuple):
            waiting += value.values() if isinstance(value, dict) else value


def read_json(kind: type[Value], text: str | bytes, where: object = "") -> Value:
    """Read the text of a file, as `read` does values."""
    try:
        made: Value = adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        fault = told(error.errors()[0], kind)
        raise ValueError(f"{where}: {fault}" if where else fault) from error
    return made


def as_json(value: object) -> object:
    """Return a stand-in for a value that JSON does not have."""
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    return {type(value).__name__: str(value)}  # which is refused, and shown


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    if dataclasses.is_dataclass(kind):  # then also of those that it holds
        setattr(kind, "__pydantic_config__", STRICT)  # noqa: B010
        return TypeAdapter(kind)
    return TypeAdapter(kind, config=STRICT)


def told(fault: ErrorDetails, kind: type) -> str:
    """Describe a fault that pydantic found, in one line."""
    parts = [str(part) for part in fault["loc"] if not str(part).startswith(("[", "("))]
    place = readable(".".join(parts)) if parts else ""
    message = str(fault["msg"]).removeprefix("Value error, ")
    value = fault["input"]
    match fault["type"]:
        case "json_invalid":
            return NOT_PLAIN
        case "missing":
            return f"{place} is missing"
        case "unexpected_keyword_argument":
            return f"unknown option {place}{suggestion(place, names_of(kind))}"
        case "value_error":  # of what fields say of each other
            return f"{place}: {message}" if place else message
    message = message.replace("Input should be", "it must be", 1)
    shown = readable(json.dumps(value, default=str, ensure_ascii=False))
    return f"{place or 'the value'} is {shown}: {message[0].lower()}{message[1:]}"


def names_of(kind: type) -> list[str]:
    """Return the fields of a dataclass, those of others in it as `section.name`."""
    if not dataclasses.is_dataclass(kind):
        return []
    hints = get_type_hints(kind)
    inner = {field.name: names_of(hints[field.name]) for field in dataclasses.fields(kind)}
    return [
        f"{name}.{part}" if part else name
        for name, parts in inner.items()
        for part in parts or [""]
    ]
