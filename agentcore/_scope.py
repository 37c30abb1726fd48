"""Which runs the current thread works for, so that waiting for one of them from inside can be refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["current", "enter", "entered", "is_inside", "restore"]

_runs: ContextVar[tuple[object, ...]] = ContextVar("agentcore_runs", default=())


def current() -> tuple[object, ...]:
    """Return the runs that the current thread works for, the innermost last."""
    return _runs.get()


def enter(run: object) -> None:
    """Count the current thread, and what copies its context, as working for a run."""
    _runs.set((*_runs.get(), run))


def restore(runs: tuple[object, ...]) -> None:
    """Count the current thread as working for these runs only; once more does no harm."""
    _runs.set(runs)


@contextmanager
def entered(run: object) -> Iterator[None]:
    """Count the current thread as working for a run inside the block; for threads that Ctrl-C does not reach."""
    before = current()
    enter(run)
    try:
        yield
    finally:
        restore(before)


def is_inside(run: object) -> bool:
    """Return whether the current thread works for a run."""
    return any(inner is run for inner in _runs.get())
