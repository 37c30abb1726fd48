"""A request to a provider, checked before anything is sent."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from agentcore._records import Record
from agentcore.messages import ErrorInfo
from agentcore.providers._failures import Redactor
from agentcore.providers._payload import encoded

__all__ = ["CheckedRequest", "HttpRequest", "RequestFailed", "merge_headers", "shown_url", "vendor_of"]


class RequestFailed(Exception):
    """The request, or the reading of its response, ended in `error`; carries no other exception and no header."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a malformed URL"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}"


def vendor_of(base_url: str, hosts: Mapping[str, str]) -> str:
    """Return whose server a URL is, by its host or one that it ends in; nobody's is an empty text."""
    try:
        host = urlsplit(base_url.strip()).hostname or ""
    except ValueError:
        return ""
    while host and host not in hosts:
        host = host.partition(".")[2]
    return hosts.get(host, "")


def merge_headers(*headers: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return one mapping of headers: names without regard to case, later ones first, `None` removes one.

    Raises `TypeError` for what is no text.
    """
    merged: dict[str, tuple[str, str | None]] = {}
    for mapping in headers:
        for name, value in (mapping or {}).items():
            if not all(isinstance(text, str) for text in (name, value or "")):
                raise TypeError(f"headers are text; that of {str(name)[:40]!a} is not")
            merged[name.lower()] = (name, value)
    return {name: value for name, value in merged.values() if value is not None}


@attrs.frozen(eq=False, repr=False)
class HttpRequest(Record):
    """A POST of a JSON payload (or of bytes that are JSON already); its `repr` shows no header value and no key."""

    url: str = attrs.field(repr=shown_url)
    headers: Mapping[str, str | None] = attrs.field(repr=lambda headers: f"<{', '.join(headers)}>")
    payload: Any = attrs.field(repr=False)


@attrs.frozen(eq=False, repr=False)
class CheckedRequest:
    """A request that has been checked and is ready to be sent, more than once if need be."""

    url: str
    host: str
    headers: dict[str, str]
    body: bytes
    redact: Redactor

    @classmethod
    def of(cls, request: HttpRequest) -> CheckedRequest:
        """Raise `RequestFailed` for what no server could make sense of."""
        redact = Redactor(request.url, {k: v for k, v in request.headers.items() if v})
        url, host, credentials = _split_url(request.url)
        headers = merge_headers(_DEFAULT_HEADERS, credentials, request.headers)
        try:
            body = encoded(request.payload)
            problem = _header_problem(headers)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the request cannot be written as JSON: {error}"
        if problem:
            raise RequestFailed(ErrorInfo("invalid_request", redact(problem)))
        return cls(url, host, {name: value.strip() for name, value in headers.items()}, body, redact)


_DEFAULT_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream, application/json",
    # A compressor on the way would hold events back until it has enough of them.
    "Accept-Encoding": "identity",
    "User-Agent": "agentcore",
}


def _split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Return the URL without its user, the host as it is shown, and the header that the user stands for."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if not host or parts.scheme not in ("http", "https"):
        text = f"`base_url` has to begin with http:// or https:// and a host; it gives {shown_url(url)!r}"
        raise RequestFailed(ErrorInfo("invalid_request", text))
    host = f"[{host}]" if ":" in host else host
    shown = f"{host}:{port}" if port else host
    credentials = {}
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        credentials["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return parts._replace(netloc=shown).geturl(), shown, credentials


_HEADER_NAME = re.compile("[!-9;-~]+")
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f]")


def _header_problem(headers: Mapping[str, str]) -> str | None:
    for name, value in headers.items():
        try:
            value.encode("latin-1")
            good = _HEADER_NAME.fullmatch(name) and not _NOT_IN_A_VALUE.search(value.strip())
        except UnicodeEncodeError:
            good = False
        if not good:
            return f"the header {name[:40]!a} has characters that HTTP does not allow"
    return None
