"""One exchange with a provider: ask, read the answer, and turn whatever goes wrong into the message that says so.

What every adapter would otherwise do for itself. An adapter is an `Adapter` record: how a request is written and how
what comes back is read. `exchange` runs it as the generator of stream events that a stream function returns.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from agentcore._keys import KEY_VARIABLES
from agentcore._records import text_of
from agentcore.config import ModelContext, StreamOptions
from agentcore.events import StreamEvent
from agentcore.messages import ErrorInfo
from agentcore.models import Model
from agentcore.providers._assembler import Assembler, Events
from agentcore.providers._failures import error_from_payload
from agentcore.providers._http import HttpResponse, open_stream
from agentcore.providers._request import HttpRequest, RequestFailed, vendor_of
from agentcore.providers._sse import SseEvent, read_events

__all__ = [
    "Adapter",
    "Incoming",
    "Reading",
    "api_key",
    "cache_key",
    "endpoint_url",
    "exchange",
    "with_body",
]

_BEFORE_JSON = b" \t\r\n\xef\xbb\xbf"
_SHOWN = 200
_LONGEST_CACHE_KEY = 64
_KEY_HEADER = re.compile("auth|key", re.IGNORECASE)

_decode = json.JSONDecoder().raw_decode
"""Twice as fast as `json.loads` for the short texts of deltas, which it spends on looking for white space."""

Reading = Generator[StreamEvent, None, Events]
"""Yields the events of a response as they come and returns the last ones, those that end it.

They are returned so that the connection can be given back, or closed, before anybody sees the end.
"""


class Incoming:
    """The body of a response, as its adapter reads it: iterating gives the name and data of each server-sent event.

    Iterating raises `RequestFailed` when the body breaks off, falls silent or the request is aborted.
    """

    def __init__(
        self, blocks: Iterable[bytes], response: HttpResponse | None = None, *, content_type: str | None = None
    ) -> None:
        self._blocks: Iterator[bytes] = iter(blocks)
        self._response = response
        self._content_type = content_type if response is None else response.content_type

    def __iter__(self) -> Iterator[SseEvent]:
        return read_events(self._blocks)

    def begins_json(self) -> bool:
        """Return whether the body is JSON instead of an event stream: its first byte tells, whatever its type says."""
        head: list[bytes] = []
        found = b""
        for block in self._blocks:
            head.append(block)
            found = block.lstrip(_BEFORE_JSON)[:1]
            if found:
                break
        self._blocks = itertools.chain(head, self._blocks)
        return found in (b"{", b"[")

    def json(self) -> Any:
        """Read the body to its end as one JSON document; raises `RequestFailed` for one that is none."""
        text = b"".join(self._blocks).decode("utf-8-sig", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # raised below, so that the failure holds no exception that holds the text
        raise self._malformed("the response is cut off or no JSON", text)

    def data(self, text: str) -> Any:
        """Return the JSON of one event's data; raises `RequestFailed` for what is none.

        Blank data, by which some gateways keep a connection alive, is `None`, and so is `[DONE]` in blanks.
        """
        try:
            value, end = _decode(text)
            return value if end == len(text) else json.loads(text)
        except (ValueError, RecursionError):
            pass
        try:
            return json.loads(text)  # which allows for white space before it
        except (ValueError, RecursionError):
            if text.strip() in ("", "[DONE]"):
                return None
        raise self._malformed("an event of the response is no JSON", text)

    def error(self, payload: Any) -> ErrorInfo:
        """Return the error that an object in the body tells."""
        return error_from_payload(payload) if self._response is None else self._response.error(payload)

    def cut_off(self, missing: str) -> ErrorInfo:
        """Return the error of a body that ended without what its API ends a response with."""
        text = f"the response ended without {missing}: it was cut off"
        kind = self._content_type
        if kind not in (None, "", "text/event-stream"):
            text += f", or is no event stream (content type {kind})"
        return ErrorInfo("protocol", self._redacted(text))

    def expect_end(self, seconds: float) -> None:
        """Wait no longer than this for each further block: what matters has come."""
        if self._response is not None:
            self._response.limit_silence(seconds)

    def _redacted(self, text: str) -> str:
        return text if self._response is None else self._response.redact(text)

    def _malformed(self, what: str, text: str) -> RequestFailed:
        text = self._redacted(text)  # before it is cut, or half a key would be left
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return RequestFailed(ErrorInfo("protocol", f"{what}: {shown}"))


@attrs.frozen(eq=False, repr=False)
class Adapter:
    """One wire API.

    `build_request` returns the payload and changes nothing. `address` returns the URL and the headers, given the key if
    there is one. What either raises as `ValueError` or `TypeError` becomes the response's error. `hosts` tells whose
    servers are known: host → provider. `read_stream` reads an event stream, `read_whole` the one JSON document that a
    server sends which ignores that a stream was asked for.
    """

    api: str
    build_request: Callable[[Model, ModelContext, StreamOptions], dict[str, Any]]
    address: Callable[[Model, StreamOptions, str | None], tuple[str, dict[str, str | None]]]
    hosts: Mapping[str, str]
    read_stream: Callable[[Incoming, Assembler], Reading]
    read_whole: Callable[[Any, Incoming, Assembler], Events]


def exchange(
    adapter: Adapter, model: Model, context: ModelContext, options: StreamOptions
) -> Generator[StreamEvent, None, None]:
    """Ask the model and yield the events of its answer; the last is a `DoneEvent` or an `ErrorEvent`.

    Raises only what `options.on_payload` and `options.on_response` raise. Closing the generator ends the request.
    """
    assembler = Assembler(model, api=adapter.api)
    last: Events
    try:
        request = _written(adapter, model, context, options)
        try:
            response = yield from open_stream(request, options, model)
            with response:
                incoming = Incoming(response.blocks(), response)
                yield from assembler.start()
                if incoming.begins_json():
                    last = adapter.read_whole(incoming.json(), incoming, assembler)
                else:
                    last = yield from adapter.read_stream(incoming, assembler)
        except RecursionError:
            deep = RequestFailed(ErrorInfo("protocol", "the response is nested too deep to be read"))
            raise deep from None
        except RequestFailed as failure:
            raise _with_hint(failure, request, _key_provider(adapter, model)) from None
    except RequestFailed as failure:
        last = assembler.fail(failure.error)
    yield from last


def _written(adapter: Adapter, model: Model, context: ModelContext, options: StreamOptions) -> HttpRequest:
    """Return the request to send; raises `RequestFailed` for what cannot be asked."""
    if options.signal is not None and options.signal.aborted:
        raise RequestFailed(ErrorInfo("aborted", text_of(options.signal.reason)))
    key = api_key(options, _key_provider(adapter, model))
    try:
        url, headers = adapter.address(model, options, key)
        payload = adapter.build_request(model, context, options)
    except (TypeError, ValueError) as error:
        raise RequestFailed(ErrorInfo("invalid_request", str(error))) from None
    if options.on_payload is not None:
        # The hook may change it in place; the schemas in it are those of the caller's tools.
        payload = copy.deepcopy(payload)
        replacement = options.on_payload(payload, model)
        payload = payload if replacement is None else replacement
    return HttpRequest(url, headers, payload)


def _key_provider(adapter: Adapter, model: Model) -> str:
    """Return whose key may go to the model's server: the named provider's, else that of the vendor whose host it is."""
    return model.provider or vendor_of(model.base_url, adapter.hosts)


def api_key(options: StreamOptions, provider: str) -> str | None:
    """Return the key to use: the one that was given, else the first that a variable of this provider holds."""
    given = (options.api_key or "").strip()
    if given:
        return given
    names = KEY_VARIABLES.get(provider, ())
    return next((key for name in names if (key := os.environ.get(name, "").strip())), None)


def _with_hint(failure: RequestFailed, request: HttpRequest, provider: str) -> RequestFailed:
    """Return a failure that says, if what was wrong is that no key was sent, where one is looked for."""
    error = failure.error
    if error.kind != "authentication" or any(_KEY_HEADER.search(name) for name in request.headers):
        return failure
    places = " or ".join(["`api_key`", *(f"the variable {name}" for name in KEY_VARIABLES.get(provider, ()))])
    return RequestFailed(attrs.evolve(error, message=f"{error.message} (no key was sent: set {places})"))


def endpoint_url(base_url: str, path: str) -> str:
    """Return the URL of `path` below a base, which may have a query, or end in the path already."""
    try:
        parts = urlsplit(base_url.strip())
    except ValueError:
        raise ValueError("`base_url` is malformed") from None  # the original error may quote a password
    base = parts.path.rstrip("/")
    return parts._replace(path=base if base.endswith(path) else base + path).geturl()


def cache_key(session_id: str) -> str:
    """Return a name for the session that fits into a header and is not too long."""
    if len(session_id) <= _LONGEST_CACHE_KEY and session_id.isascii() and session_id.isprintable():
        return session_id
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def with_body(payload: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload with the fields that all requests of a model carry: objects are merged, all else is replaced."""
    merged = dict(payload)
    for name, value in body.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), dict)
        merged[name] = with_body(merged[name], value) if both else value
    return merged
