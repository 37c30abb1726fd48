"""Error results: what happened and what to do next, said to a model."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agentcore._records import text_of
from agentcore.abort import AbortController, AbortSignal
from agentcore.tools import AgentToolResult, OnUpdate

__all__ = [
    "Refusal",
    "call_hook",
    "encoded",
    "failed",
    "nothing_to_report",
    "os_error_text",
    "reason_of",
    "reported",
    "signal_or_idle",
    "stop_if_aborted",
]

_T = TypeVar("_T")


class Refusal(Exception):
    """A call that cannot be carried out; the message is the text of its error result."""


def failed(text: str, details: Any = None) -> AgentToolResult:
    """Return an error result."""
    return AgentToolResult(text, details, is_error=True)


@contextmanager
def reported(action: str, given: str) -> Iterator[None]:
    """Make what the system refuses a refusal of the call; `action` is what was tried with the `given` path."""
    try:
        yield
    except OSError as error:
        raise Refusal(f"Could not {action} {given}: {os_error_text(error)}.") from error


def stop_if_aborted(signal: AbortSignal) -> None:
    """Refuse to go on when the signal is aborted."""
    if signal.aborted:
        raise Refusal(f"The call was aborted{reason_of(signal)}. Nothing was done.")


def reason_of(signal: AbortSignal) -> str:
    """Return the reason of an abort, to be put behind a verb."""
    said = text_of(signal.reason)
    return "" if said == "aborted" else f": {said}"


def encoded(text: str, name: str) -> bytes:
    """Return text as UTF-8; refuses what UTF-8 cannot hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            f"`{name}` holds half of a character (the lone surrogate \\u{ord(text[error.start]):04x} at position "
            f"{error.start}). Nothing was changed. Send the character whole."
        ) from None


def signal_or_idle(signal: AbortSignal | None) -> AbortSignal:
    """Return a signal that never aborts for a caller who gave none."""
    return AbortController().signal if signal is None else signal


def nothing_to_report(on_update: OnUpdate | None) -> OnUpdate:
    """Return a function that drops updates for a caller who wants none."""
    return (lambda _update: None) if on_update is None else on_update


_MEANING = {
    errno.EAGAIN: "it has nothing to give now, and is not waited for",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "no space left on the disk",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "too many symbolic links, or a loop of them",
    errno.ENOENT: "no such file or folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ETXTBSY: "it is a program that is running",
    errno.EMFILE: "too many open files in this process",
}


def os_error_text(error: OSError) -> str:
    """Return in a few words what the system complains about, without paths and numbers."""
    if error.errno in _MEANING:
        return _MEANING[error.errno]
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def call_hook(name: str, hook: Callable[..., object], expected: type[_T], *args: Any) -> _T | None:
    """Call a hook of the options; a failure or a wrong return value refuses the call: hooks fail closed."""
    try:
        value = hook(*args)
    except Exception as error:
        raise Refusal(f"`{name}` failed, so nothing was done: {type(error).__name__}: {error}") from error
    if value is None or isinstance(value, expected):
        return value
    close = getattr(value, "close", None)
    hint = ""
    if hasattr(value, "__await__") and callable(close):
        close()
        hint = " (hooks are plain functions, not coroutines)"
    raise Refusal(
        f"`{name}` returned {type(value).__name__} where a `{expected.__name__}` or None is expected{hint}, "
        "so nothing was done."
    )
