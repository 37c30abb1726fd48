"""What a JSON schema validator found wrong, in words: lines of `path: message` of a bounded length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentcore._records import represented

__all__ = ["cut", "dotted", "kind_of", "missing_keys", "problems_of", "shown_as_json"]

_LONGEST_PROBLEM = 400
_LONGEST_VALUE = 100
_UNUSUAL = re.compile(r"[\s.\[\]]")


def problems_of(error: Any) -> Iterator[str]:
    """Yield what an error says as `path: message`."""
    missing = missing_keys(error)
    for key in missing:
        yield f"{dotted((*error.path, key))}: is required but missing"
    if not missing:
        yield f"{dotted(error.path)}: {_message(error)}"


def _message(error: Any) -> str:
    match error.validator:
        case "type" if isinstance(error.validator_value, (str, list)):
            kinds = error.validator_value
            wanted = " or ".join(map(_kind_name, [kinds] if isinstance(kinds, str) else kinds))
            return f"must be {wanted}, not {shown_as_json(error.instance, _LONGEST_VALUE)}"
        case "anyOf" | "oneOf" if error.context:
            return cut(_alternatives(error), 2 * _LONGEST_PROBLEM)
        case "not" if error.validator_value == {}:
            return "is not allowed"
        case _:
            return cut(error.message, _LONGEST_PROBLEM)


def _alternatives(error: Any) -> str:
    said: dict[Any, list[str]] = {}
    for inner in error.context:
        of_branch = said.setdefault(inner.relative_schema_path[0], [])
        of_branch += [line.removeprefix("(root): ") for line in problems_of(inner)]
    listed = "; ".join(f"({number}) {', '.join(lines)}" for number, lines in enumerate(said.values(), 1))
    return f"fits none of {len(said)} alternatives: {listed}"


_KIND_NAMES = {"integer": "an integer", "object": "an object", "array": "an array", "null": "null"}


def _kind_name(kind: Any) -> str:
    return _KIND_NAMES.get(kind, f"a {kind}") if isinstance(kind, str) else "as its schema says"


def kind_of(value: Any) -> str:
    """Return what JSON calls a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def dotted(path: Iterable[str | int] | None) -> str:
    """Return a path such as `edits[0].find`; `(root)` for an empty one."""
    shown = ""
    for step in path or ():
        if isinstance(step, int):
            shown += f"[{step}]"
        elif _UNUSUAL.search(step) or not step:
            shown += f"[{shown_as_json(step, _LONGEST_VALUE)}]"
        else:
            shown += f".{step}" if shown else step
    return cut(shown, 2 * _LONGEST_VALUE) or "(root)"


def cut(text: str, limit: int) -> str:
    """Return a text of at most so many characters, and how many more there were."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


_encoder = json.JSONEncoder(ensure_ascii=False, default=represented)


def shown_as_json(value: Any, limit: int) -> str:
    """Return a value as JSON, cut at a number of characters."""
    shown = ""
    try:
        for piece in _encoder.iterencode(value):
            shown += piece[: limit + 1]
            if len(shown) > limit:
                return f"{shown[:limit]}…"
    except Exception:  # keys that are no JSON, circles, numbers of too many digits, absurd nesting
        return f"{shown[:limit]}…"
    return shown


def missing_keys(error: Any) -> list[str]:
    """Return the required keys that are missing where an error says so."""
    if error.validator != "required" or not isinstance(error.validator_value, list):
        return []
    return [key for key in error.validator_value if key not in error.instance]
