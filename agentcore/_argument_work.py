"""How many steps checking the arguments of one call may take.

A union that holds itself, or references that lead to one place on several ways, can multiply the steps with each level
of the schema and of the value. Arguments come from models, so somebody may want that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TooMuchWork", "Work", "limited", "take"]

# A step is a branch that is tried or a reference that is followed, and takes some 20 µs.
_STEPS = 20_000
_STEPS_A_VALUE = 100


class TooMuchWork(Exception):
    """Checking a value takes more steps than any reasonable value of its size needs."""


class Work:
    """What is left of the steps for a value."""

    __slots__ = ("_left", "_value")

    def __init__(self, value: Any) -> None:
        self._left = _STEPS
        self._value: Any = [value]  # until its size has been counted in

    def take(self, steps: int) -> None:
        """Count steps; raises `TooMuchWork` when there are too many."""
        self._left -= steps
        if self._left < 0 and self._value is not None:
            self._left += _STEPS_A_VALUE * _size_of(self._value)
            self._value = None
        if self._left < 0:
            raise TooMuchWork


_current = threading.local()
"""`work` is what this thread is at."""


@contextmanager
def limited(work: Work) -> Iterator[None]:
    """Have what this thread does in the `with` block counted as this work."""
    outside = getattr(_current, "work", None)
    try:
        _current.work = work
        yield
    finally:
        _current.work = outside


def take(steps: int) -> None:
    """Count steps of the work this thread is at; raises `TooMuchWork`."""
    work: Work = _current.work
    work.take(steps)


def _size_of(value: Any) -> int:
    """Return how many values there are in a value, itself included."""
    size, pending = 0, [value]
    while pending:
        item = pending.pop()
        size += 1
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return size
