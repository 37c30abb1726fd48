"""Which runs the current thread works for, so that waiting for one of them from inside can be refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["entered", "is_inside"]

_runs: ContextVar[tuple[object, ...]] = ContextVar("agentcore_runs", default=())


@contextmanager
def entered(run: object) -> Iterator[None]:
    """Count the current thread, and what copies its context, as working for a run."""
    token = _runs.set((*_runs.get(), run))
    try:
        yield
    finally:
        _runs.reset(token)


def is_inside(run: object) -> bool:
    """Return whether the current thread works for a run."""
    return any(inner is run for inner in _runs.get())
