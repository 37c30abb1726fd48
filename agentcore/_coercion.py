"""Coerces JSON values towards what a schema wants, where that is safe and only where a validator complains."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from agentcore._argument_work import TooMuchWork, Work, limited
from agentcore._problems import missing_keys

__all__ = ["Mender", "NOTHING", "NotJsonError", "coerced", "copied", "holds_whole_float"]

NOTHING: Any = object()
"""What `coerced` returns where a value cannot be had as the type wanted."""

# Each round may uncover one more level (a JSON string inside a JSON string); two rules that undo each other end here.
_MOST_ROUNDS = 12

_INTEGER_TEXT = r"[+-]?[0-9]+(\.0*)?"
_NUMBER_TEXT = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"


class NotJsonError(Exception):
    """A value holds what JSON cannot."""


def copied(value: Any) -> Any:
    """Return a copy of objects and arrays, all the way down; raises `NotJsonError` for NaN, infinities and odd keys."""
    if isinstance(value, dict):
        copies = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJsonError
            copies[key] = copied(item) if isinstance(item, (dict, list, float)) else item
        return copies
    if isinstance(value, list):
        return [copied(item) if isinstance(item, (dict, list, float)) else item for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise NotJsonError
    return value


class Mender:
    """Coerces what a validator complains about, and nothing else.

    `lenient=False` only makes integers of floats that are whole. `tries` is how much may be done to find out which
    alternative a value fits after coercion.
    """

    def __init__(self, lenient: bool, tries: Work) -> None:
        self.lenient = lenient
        self.tries = tries

    def mend(self, value: Any, find_errors: Callable[[Any], Iterable[Any]], entirely: bool = False) -> tuple[Any, Any]:
        """Return the value with what could be coerced, in place where possible, and the errors that are left.

        With `entirely` it stops as soon as an error cannot be mended.
        """
        holder = [value]
        dropped: dict[tuple[Any, ...], bool] = {}
        errors = list(find_errors(value))
        for _ in range(_MOST_ROUNDS):
            if entirely and _is_hopeless(errors):
                break
            mended = [self._mend_one(holder, error, dropped) for error in errors]
            if not any(mended):
                break
            errors = list(find_errors(holder[0]))
            if _put_back(holder[0], errors, dropped):
                errors = list(find_errors(holder[0]))
        return holder[0], errors

    def _mend_one(self, holder: list[Any], error: Any, dropped: dict[tuple[Any, ...], bool]) -> bool:
        path = (0, *error.path)
        try:
            parent: Any = holder
            for step in path[:-1]:
                parent = parent[step]
            current = parent[path[-1]]
        except (LookupError, TypeError):
            return False
        if current is not error.instance:  # another error has had it changed in this round
            return False
        if current is None and isinstance(parent, dict):
            if not self.lenient or path in dropped:
                return False
            dropped[path] = True
            del parent[path[-1]]
            return True
        mended = self._mended(current, error)
        if mended is NOTHING:
            return False
        parent[path[-1]] = mended
        return True

    def _mended(self, current: Any, error: Any) -> Any:
        match error.validator:
            case "type":
                return self._as_one_of(current, error.validator_value)
            case "anyOf" | "oneOf" if error.context:
                return self._as_alternative(current, error)
            case _:
                return NOTHING

    def _as_one_of(self, current: Any, kinds: str | Sequence[Any]) -> Any:
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(current, float) and "integer" in kinds and current.is_integer():
            return int(current)
        if self.lenient:
            for kind in kinds:
                if (attempt := coerced(current, kind)) is not NOTHING:
                    return attempt
        return NOTHING

    def _as_alternative(self, current: Any, error: Any) -> Any:
        """Return the value as the first alternative that it fits after coercion; whole floats first of all."""
        found_by, keyword, branches = getattr(error, "found_by", None), error.validator, error.validator_value
        if found_by is None:  # found by a part of another draft
            return NOTHING
        try:
            with limited(self.tries):
                return self._first_that_fits(current, keyword, branches, found_by)
        except TooMuchWork:
            return NOTHING

    def _first_that_fits(self, current: Any, keyword: str, branches: Any, found_by: Any) -> Any:
        menders = [Mender(False, self.tries)] if holds_whole_float(current) else []
        for mender in [*menders, self] if self.lenient else menders:
            for branch in branches:
                find_errors = partial(found_by.descend, schema=branch)
                mended, errors = mender.mend(copied(current), find_errors, entirely=True)
                if not errors and not any(found_by.descend(mended, {keyword: branches})):
                    return mended
        return NOTHING


def holds_whole_float(value: Any) -> bool:
    """Return whether a float such as 5.0 is anywhere in a value."""
    if isinstance(value, dict):
        return any(map(holds_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(holds_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def _is_hopeless(errors: list[Any]) -> bool:
    """Return whether one of the errors is of a kind that coercing does not mend."""
    mendable = {tuple(error.path) for error in errors if error.validator in ("type", "anyOf", "oneOf")}
    return any(error.instance is not None and tuple(error.path) not in mendable for error in errors)


def _put_back(value: Any, errors: list[Any], dropped: dict[tuple[Any, ...], bool]) -> bool:
    """Put back each `null` that was left out although its property is required; return whether there was one."""
    changed = False
    for error in errors:
        for key in missing_keys(error):
            path = (0, *error.path, key)
            if dropped.get(path):
                error.instance[key] = None
                dropped[path] = False
                changed = True
    return changed


def coerced(value: Any, kind: Any) -> Any:
    """Return a value as another JSON type, or `NOTHING` where that is not safe."""
    try:
        match kind:
            case "integer" if isinstance(value, str) and re.fullmatch(_INTEGER_TEXT, value.strip()):
                return int(value.strip().partition(".")[0])
            case "number" if isinstance(value, str) and re.fullmatch(_NUMBER_TEXT, value.strip()):
                text = value.strip()
                number = float(text) if set(text) & set(".eE") else int(text)
                return number if math.isfinite(number) else NOTHING
            case "boolean" if isinstance(value, str) and value.strip().lower() in ("true", "false"):
                return value.strip().lower() == "true"
            case "string" if isinstance(value, (bool, int, float)):
                return json.dumps(value)
            case "object" | "array" if isinstance(value, str):
                parsed = json.loads(value)
                return copied(parsed) if isinstance(parsed, dict if kind == "object" else list) else NOTHING
            case _:
                return NOTHING
    except (ValueError, OverflowError, NotJsonError):  # too many digits, no JSON, a number beyond all floats
        return NOTHING
