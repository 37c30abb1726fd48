"""What the package logs, below the logger `agentcore`.

Texts of exceptions and tracebacks can carry keys, arguments and what users wrote, so they are logged at DEBUG only:
whoever asks for debugging gets them. A log handler that fails stops nothing. `logging` is imported when there is
something to say.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["log_details", "log_failure", "log_warning"]

# The caller of the functions below is who logs.
_STACK_LEVEL = 3


def log_failure(part: str, error: BaseException, what: str, *args: object) -> None:
    """Log on `agentcore.PART` that something failed, with the class of the error; at DEBUG with all it says."""
    _log(part, "error", f"{what}: %s", (*args, type(error).__name__))
    _log(part, "debug", what, args, error)


def log_details(part: str, error: BaseException, what: str, *args: object) -> None:
    """Log at DEBUG what is told elsewhere already, with all that an error says."""
    _log(part, "debug", what, args, error)


def log_warning(part: str, text: str, *args: object) -> None:
    """Log on `agentcore.PART` what went another way than it should have."""
    _log(part, "warning", text, args)


def _log(part: str, level: str, text: str, args: tuple[object, ...], error: BaseException | None = None) -> None:
    try:
        getattr(_logger(part), level)(text, *args, exc_info=error, stacklevel=_STACK_LEVEL)
    except Exception:
        pass  # one that writes to standard error, for example, when this is called in a signal handler


@cache
def _logger(part: str) -> Logger:
    import logging

    # What is logged is the application's to show: without any handler, Python would print it to standard error.
    package = logging.getLogger("agentcore")
    if not any(isinstance(handler, logging.NullHandler) for handler in package.handlers):
        package.addHandler(logging.NullHandler())
    return logging.getLogger(f"agentcore.{part}")
