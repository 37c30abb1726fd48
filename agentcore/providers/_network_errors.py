"""Say what an exception of the network means, in words that can hold neither a URL nor a header."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from agentcore.messages import ErrorInfo
from agentcore.providers._connections import Line

__all__ = ["explain"]


def explain(error: Exception, host: str, line: Line, connect_timeout: float, answered: bool) -> tuple[ErrorInfo, bool]:
    """Return the error that an exception of requests, urllib3 or the network is, and whether another try may help.

    `answered` tells that the headers of a response had come.
    """
    from urllib3 import exceptions

    causes = list(_causes(error))

    def among(*classes: type[BaseException]) -> Any:
        return next((cause for cause in causes if isinstance(cause, classes)), None)

    never_came = among(exceptions.ConnectTimeoutError, exceptions.NewConnectionError, exceptions.ProxyError)
    connecting = line.phase == "connecting" or never_came is not None
    refused = among(exceptions.NewConnectionError)  # which counts as a timeout by its base class
    timed_out = among(TimeoutError, exceptions.ReadTimeoutError) or (
        among(exceptions.ConnectTimeoutError) and not refused
    )
    untrusted = among(ssl.SSLCertVerificationError)
    reasons = list(filter(None, map(_reason, causes)))
    reason = reasons[-1] if reasons else type(error).__name__  # what lies deepest says most
    kind, retryable = "connection", True
    if among(exceptions.DecodeError):
        kind, retryable = "protocol", False
        text = f"the response of {host} is not compressed in the way its headers say"
    elif untrusted:
        retryable = False
        text = f"the certificate of {host} is not trusted: {untrusted.verify_message}"
    elif timed_out and connecting and not answered:
        kind = "timeout"
        text = f"no connection to {host} within {connect_timeout:g} s"
    elif timed_out:
        # Not tried again: the server may well be at work on it, and would then be twice.
        kind, retryable = "timeout", False
        text = f"nothing came from {host} for {line.idle_timeout:g} s"
    elif answered:
        text = f"the response of {host} broke off: {reason}"
    elif connecting:
        text = f"no connection to {host}: {reason}"
    elif _never_tried(error):
        retryable = False
        text = f"the request to {host} could not be sent: {reason}"
    else:
        text = f"no answer from {host}: {reason}"
    return ErrorInfo(kind, text), retryable


def _never_tried(error: Exception) -> bool:
    """Return whether requests refused to begin: a proxy setting or a file of certificates that cannot be used."""
    from_library = type(error).__module__.partition(".")[0] in ("requests", "urllib3")
    return isinstance(error, ValueError) or not from_library


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what caused it, as requests and urllib3 wrap it: as cause, as `reason`, as argument.

    `__context__` is not followed: it leads out to what the caller may be handling just then.
    """
    waiting, seen = [error], set()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = [cause.__cause__, getattr(cause, "reason", None), *cause.args]
        waiting += [item for item in inner if isinstance(item, BaseException)]


def _reason(cause: BaseException) -> str | None:
    """Return what one exception says, if it is of a kind that says something, and nothing but that."""
    if isinstance(cause, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the server closed the connection"
    if isinstance(cause, http.client.HTTPException):
        return "what came is not HTTP"
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {(cause.reason or 'handshake failed').replace('_', ' ').lower()}"
    if isinstance(cause, socket.gaierror | ConnectionError | OSError) and cause.strerror:
        return str(cause.strerror)
    name, module = type(cause).__name__, type(cause).__module__.partition(".")[0]
    if module == "builtins" and isinstance(cause, OSError) and len(cause.args) == 1:
        return str(cause.args[0])  # the answer of a proxy, or the path of a file that is not there
    if name == "ProtocolError" and not any(isinstance(item, BaseException) for item in cause.args):
        return "the server closed the connection"
    return _REASONS.get(name) if module in ("requests", "urllib3") else None


_REASONS = {
    "InvalidSchema": "this kind of proxy needs the package PySocks, or is not known",
    "InvalidProxyURL": "the proxy's URL is malformed",
    "ProxySchemeUnknown": "the proxy's URL is malformed",
    "InvalidURL": "the URL is malformed",
    "InvalidChunkLength": "what came is not HTTP",
    "IncompleteRead": "the server closed the connection",
}
