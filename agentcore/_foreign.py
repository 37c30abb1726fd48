"""What comes out of functions that are not ours: coroutines where values should be, and exceptions."""

from __future__ import annotations

from types import CoroutineType

from agentcore._records import text_of
from agentcore.errors import AbortRequested

__all__ = ["abort_reason", "coroutine_closed", "error_text"]


def coroutine_closed(value: object) -> bool:
    """Return whether a value is a coroutine, and close it: nobody here will ever await it."""
    if isinstance(value, CoroutineType):
        value.close()
        return True
    return False


def error_text(error: BaseException) -> str:
    """Return what an exception says, for a model to read; never raises."""
    if isinstance(error, AbortRequested):
        return text_of(error.reason)
    text = text_of(error)
    return text if text and not isinstance(error, KeyError) else f"{type(error).__name__}: {text}".rstrip(": ")


def abort_reason(failure: BaseException) -> object:
    """Return the reason of the abort that a run makes of what was raised in it."""
    if isinstance(failure, AbortRequested):
        return "aborted" if failure.reason is None else failure.reason
    return "the run failed" if isinstance(failure, Exception) else "interrupted"
