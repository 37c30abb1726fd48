"""Every exception of the package, and how they relate.

::

    AgentCoreError(Exception)
    ├── MisuseError(RuntimeError)            the call itself was wrong; nothing has happened
    │   ├── AgentBusyError                   a run is going on; use `steer` or `follow_up`
    │   ├── NothingToContinueError(ValueError)
    │   ├── PendingCallsError                calls wait for a decision; use `resume`
    │   └── StreamStateError                 an event stream was used in a way it does not support
    ├── ToolError
    │   ├── ToolNotFoundError(LookupError)
    │   ├── ToolArgumentsError(ValueError)
    │   ├── ToolTimeoutError(TimeoutError)
    │   └── ToolAbandonedError
    ├── ProviderError                        one class for each `ErrorInfo.kind`
    │   ├── AuthenticationError              authentication
    │   ├── RateLimitError                   rate_limit
    │   ├── QuotaError                       quota
    │   ├── OverloadedError                  overloaded
    │   ├── InvalidRequestError(ValueError)  invalid_request
    │   │   └── ContextOverflowError         context_overflow
    │   ├── ContentFilterError               content_filter
    │   ├── ProviderConnectionError(ConnectionError)   connection
    │   ├── ProviderTimeoutError(TimeoutError)         timeout
    │   ├── StreamProtocolError              protocol
    │   └── StreamFunctionError              stream_function
    ├── AbortedError                         aborted: what `raise_for_error()` raises for an aborted message
    └── SessionError
        ├── SessionCorruptError
        └── SessionLockedError
    AbortRequested(BaseException)            raised by `signal.raise_if_aborted()`; never leaves the loop

Failures of the world (network, model, tool) become messages; these classes are what
`AssistantMessage.raise_for_error()` makes of them. Every error needs only a message, carries its facts as
attributes, and pickles.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AbortRequested",
    "AbortedError",
    "AgentBusyError",
    "AgentCoreError",
    "AuthenticationError",
    "ContentFilterError",
    "ContextOverflowError",
    "InvalidRequestError",
    "MisuseError",
    "NothingToContinueError",
    "OverloadedError",
    "PendingCallsError",
    "ProviderConnectionError",
    "ProviderError",
    "ProviderTimeoutError",
    "QuotaError",
    "RateLimitError",
    "SessionCorruptError",
    "SessionError",
    "SessionLockedError",
    "StreamFunctionError",
    "StreamProtocolError",
    "StreamStateError",
    "ToolAbandonedError",
    "ToolArgumentsError",
    "ToolError",
    "ToolNotFoundError",
    "ToolTimeoutError",
    "error_class_for_kind",
]


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Make an exception anew from its arguments and attributes (the other half of `__reduce__`)."""
    error = cls(*args)
    error.__dict__.update(state)
    return error


class AgentCoreError(Exception):
    """The base of every error of the package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default of OSError and its kin loses attributes and keyword-only arguments.
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


class MisuseError(AgentCoreError, RuntimeError):
    """A call that cannot be right where it was made; raised at the call, before anything has happened."""


class AgentBusyError(MisuseError):
    """The agent is running; `steer` or `follow_up` add messages to a run, `abort` ends it."""


class NothingToContinueError(MisuseError, ValueError):
    """A continuation was asked for, but there is no message to answer."""


class PendingCallsError(MisuseError):
    """Tool calls of the last message wait for a decision; `resume` takes it."""


class StreamStateError(MisuseError):
    """An event stream was used in a way it does not support, such as two readers at once."""


class ToolError(AgentCoreError):
    """Something about a tool call went wrong."""


class ToolNotFoundError(ToolError, LookupError):
    """A model called a tool that does not exist."""


class ToolArgumentsError(ToolError, ValueError):
    """Arguments that do not fit the tool's schema."""


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool did not return within its timeout."""


class ToolAbandonedError(ToolError):
    """A tool did not return after it had been asked to stop, and is no longer waited for."""


class ProviderError(AgentCoreError):
    """A model's response ended in an error.

    `provider` and `model` say whose; `status` is the HTTP status, `code` and `type` the provider's own words,
    `request_id` what to quote to its support, `retry_after` the seconds it asked to wait. All may be `None`.
    """

    def __init__(
        self,
        message: str = "",
        *,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        code: str | None = None,
        type: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.code = code
        self.type = type
        self.request_id = request_id
        self.retry_after = retry_after


class AuthenticationError(ProviderError):
    """The key is missing, wrong, or not allowed to do this."""


class RateLimitError(ProviderError):
    """Too many requests or tokens in a time; waiting helps."""


class QuotaError(ProviderError):
    """The account has nothing left to spend; waiting does not help."""


class OverloadedError(ProviderError):
    """The provider cannot serve the request at the moment."""


class InvalidRequestError(ProviderError, ValueError):
    """The provider refused the request as it was."""


class ContextOverflowError(InvalidRequestError):
    """The conversation is longer than the model's context window."""


class ContentFilterError(ProviderError):
    """The provider's filter, or the model itself, refused to answer."""


class ProviderConnectionError(ProviderError, ConnectionError):
    """The connection could not be made, or broke."""


class ProviderTimeoutError(ProviderError, TimeoutError):
    """The provider did not answer, or fell silent, for longer than allowed."""


class StreamProtocolError(ProviderError):
    """The response was not what its API promises: cut off, malformed, or of an unknown kind."""


class StreamFunctionError(ProviderError):
    """The stream function raised, or ended without a final event."""


class AbortedError(AgentCoreError):
    """The message was cut short by an abort."""


class SessionError(AgentCoreError):
    """Something about a session file is wrong."""


class SessionCorruptError(SessionError):
    """A session file cannot be read; `path` and `line` (1-based) say where, if known."""

    def __init__(self, message: str = "", *, path: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


class SessionLockedError(SessionError):
    """Another writer has the session file open."""


class AbortRequested(BaseException):
    """Raised by `AbortSignal.raise_if_aborted()`; the loop takes it for the abort, and nobody else sees it.

    Like `KeyboardInterrupt` it is no `Exception`, so that a broad `except Exception` does not swallow it.
    """

    def __init__(self, reason: object = "aborted") -> None:
        super().__init__(reason)
        self.reason = reason


_CLASS_BY_KIND: dict[str, type[AgentCoreError]] = {
    "aborted": AbortedError,
    "authentication": AuthenticationError,
    "connection": ProviderConnectionError,
    "content_filter": ContentFilterError,
    "context_overflow": ContextOverflowError,
    "invalid_request": InvalidRequestError,
    "overloaded": OverloadedError,
    "protocol": StreamProtocolError,
    "quota": QuotaError,
    "rate_limit": RateLimitError,
    "stream_function": StreamFunctionError,
    "timeout": ProviderTimeoutError,
}


def error_class_for_kind(kind: str) -> type[AgentCoreError]:
    """Return the class for an `ErrorInfo.kind`; `ProviderError` for one that is not known."""
    return _CLASS_BY_KIND.get(kind, ProviderError)
