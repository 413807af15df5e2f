"""Validation of values from outside (TOML, JSON, checkpoints, Python callers) by pydantic.

Types are given by dataclass annotations, constraints between fields by `__post_init__`. Values go
through JSON first, so that every source gets the same rules: arrays become tuples, table keys
numbers; nothing else is coerced.
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

from stylegan.utils.text import sanitize, suggestion

Value = TypeVar("Value")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
NOT_PLAIN = "a value is nested too deeply or too large, or is text that is not Unicode"
MAX_VALUES = 2**23  # in all lists of a file: a few bytes can repeat one list many times
MAX_NUMBER = 10**12  # of an option: arithmetic with larger numbers overflows
NonNegativeFloat = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
PositiveFloat = Annotated[float, Field(gt=0, le=MAX_NUMBER)]
Probability = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
# images or pixels in a file: floats are exact up to this bound
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53)]


def validated(kind: type[Value]) -> type[Value]:
    """Class decorator, above `@dataclass`: validate the constructor's arguments.

    Raises ValueError naming the invalid field.
    """
    signature = inspect.signature(kind)
    usual = kind.__init__

    @functools.wraps(usual)
    def init(self: Value, *args: object, **values: object) -> None:
        made = validate(kind, signature.bind(*args, **values).arguments)
        for name, value in vars(made).items():
            object.__setattr__(self, name, value)  # the dataclass may be frozen

    kind.__init__ = init  # type: ignore[method-assign, assignment]
    return kind


def validate(kind: type[Value], values: object, where: object = "") -> Value:
    """Validate `values` as type `kind`, a dataclass or any type that pydantic knows.

    Raises ValueError with one line, after the prefix `where`, that names the first invalid value.
    """
    try:
        check_number(values)
        text = json.dumps(values, default=json_default)
    except (TypeError, ValueError, RecursionError) as error:  # keys that are no text; cycles
        raise ValueError(f"{where}: {NOT_PLAIN}" if where else NOT_PLAIN) from error
    return validate_json(kind, text, where)


def check_number(values: object) -> None:
    """Raise ValueError for more than `MAX_VALUES`, before they are copied.

    A list that occurs several times counts each time, but is walked once; text counts by its
    length. Raises RecursionError for values that are nested too deeply, or hold themselves.
    """
    counts: dict[int, int] = {}  # by id of a list: all of them live while `values` does

    def count(value: object) -> int:
        if isinstance(value, str):
            return 1 + len(value) // 8  # as a number has 8 bytes
        if not isinstance(value, dict | list | tuple):
            return 1
        if id(value) not in counts:
            counts[id(value)] = 1 + sum(map(count, value))
            if isinstance(value, dict):
                counts[id(value)] += sum(map(count, value.values()))
        return counts[id(value)]

    if count(values) > MAX_VALUES:
        raise ValueError(f"there are more than {MAX_VALUES:,} values")


def validate_json(kind: type[Value], text: str | bytes, where: object = "") -> Value:
    """Validate JSON text; see `validate`."""
    try:
        made: Value = adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        fault = format_validation_error(error.errors()[0], kind)
        raise ValueError(f"{where}: {fault}" if where else fault) from error
    return made


def json_default(value: object) -> object:
    """Replace a value that JSON does not have."""
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    return {type(value).__name__: str(value)}  # is rejected, and shown in the message


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    if dataclasses.is_dataclass(kind):  # the setting also applies to nested dataclasses
        setattr(kind, "__pydantic_config__", STRICT)  # noqa: B010
        return TypeAdapter(kind)
    return TypeAdapter(kind, config=STRICT)


def format_validation_error(fault: ErrorDetails, kind: type) -> str:
    """Describe an error of pydantic in one line."""
    parts = [str(part) for part in fault["loc"] if not str(part).startswith(("[", "("))]
    place = sanitize(".".join(parts)) if parts else ""
    message = str(fault["msg"]).removeprefix("Value error, ")
    value = fault["input"]
    match fault["type"]:
        case "json_invalid":
            return NOT_PLAIN
        case "missing":
            return f"{place} is missing"
        case "unexpected_keyword_argument":
            return f"unknown option {place}{suggestion(place, field_names(kind))}"
        case "value_error":  # of a `__post_init__`
            return f"{place}: {message}" if place else message
    message = message.replace("Input should be", "it must be", 1)
    shown = sanitize(json.dumps(value, default=str, ensure_ascii=False))
    return f"{place or 'the value'} is {shown}: {message[0].lower()}{message[1:]}"


def field_names(kind: type) -> list[str]:
    """Fields of a dataclass, those of nested ones as `section.name`."""
    if not dataclasses.is_dataclass(kind):
        return []
    hints = get_type_hints(kind)
    inner = {field.name: field_names(hints[field.name]) for field in dataclasses.fields(kind)}
    return [
        f"{name}.{part}" if part else name
        for name, parts in inner.items()
        for part in parts or [""]
    ]
