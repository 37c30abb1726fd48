"""One POST whose body arrives as bytes: abortable at any moment, retried where that is right, and never leaking a key.

The only importer of requests, which is imported with the first request. An adapter reads::

    response = yield from open_stream(HttpRequest(url, headers, payload), options, model)
    with response:
        for name, data in read_events(response.blocks()):
            ...

`open_stream` and `blocks` raise `RequestFailed`, whose `error` says what went wrong, an abort included. Leaving the
`with` block before the end of the body is fine: after a terminal event it hands the connection back if the rest of the
body is already there, and in any other case it closes the connection.

What is given in `options.session` counts before the environment: its `verify`, `cert`, `proxies`, `auth` and headers.
The adapters mounted in it are used if they are of a class of its owner's; then the sockets are out of reach, so that an
abort ends the wait for the headers only with `idle_timeout`. Its hooks are not called, and its cookies do not change.
"""

from __future__ import annotations

import collections
import functools
import math
import os
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from agentcore._records import text_of
from agentcore.abort import AbortController, AbortSignal
from agentcore.config import StreamOptions
from agentcore.events import RequestRetryEvent
from agentcore.messages import ErrorInfo
from agentcore.models import Model
from agentcore.providers._connections import Line, abortable_pools
from agentcore.providers._failures import error_from_payload, error_from_response
from agentcore.providers._network_errors import explain
from agentcore.providers._request import CheckedRequest, HttpRequest, RequestFailed, merge_headers, shown_url
from agentcore.providers._retry import backoff, is_retryable_status

if TYPE_CHECKING:
    import requests
    from requests.adapters import HTTPAdapter

__all__ = ["HttpRequest", "HttpResponse", "RequestFailed", "merge_headers", "open_stream"]

_SECONDS_KEPT = 60.0
"""How long an unused connection is kept: less than the silence after which networks forget one without a word."""

_TRANSPORTS_KEPT = 8

_REST_SECONDS = 0.2
_REST_BYTES = 1 << 16
"""How long, and how far, an unread rest of a body is read so that its connection can be used again."""

_LONGEST_END = 30.0
"""Seconds that a body may go on, be it with signs of life only, once its reader has all that matters."""

_ERROR_SECONDS = 5.0
_ERROR_BYTES = 1 << 18
"""How long, and how far, the body of an error response is read."""


# --- opening --------------------------------------------------------------------------------------------------------


def open_stream(
    request: HttpRequest, options: StreamOptions, model: Model
) -> Generator[RequestRetryEvent, None, HttpResponse]:
    """Send a request and return its response once the first bytes of the body are there.

    Yields a `RequestRetryEvent` before each wait for another try. `options.on_response` is called, on this thread, for
    every response, with its headers in lower case. Raises `RequestFailed`.
    """
    signal = options.signal or AbortController().signal
    call = CheckedRequest.of(request)
    attempt = 0
    while True:
        if signal.aborted:
            raise RequestFailed(_aborted(signal))
        outcome = _attempt(call, options, signal, model)
        if isinstance(outcome, HttpResponse):
            return outcome
        delay = _delay(outcome, attempt, options)
        if isinstance(delay, ErrorInfo):
            raise RequestFailed(delay)
        attempt += 1
        yield RequestRetryEvent(attempt, delay, outcome.error.message)
        if signal.wait(delay):
            raise RequestFailed(_aborted(signal))


@attrs.frozen(eq=False, repr=False)
class _Failure:
    """A try that failed, and whether another one may help."""

    error: ErrorInfo
    retryable: bool


def _delay(failure: _Failure, attempt: int, options: StreamOptions) -> float | ErrorInfo:
    """Return the seconds to wait before the next try, or the error if there is none."""
    error = failure.error
    if not failure.retryable or attempt >= options.max_retries:
        return error
    if error.retry_after is None:
        return backoff(attempt + 1)
    limit = options.max_retry_delay_ms
    if limit is not None and error.retry_after * 1000.0 > limit:
        asked, allowed = f"{error.retry_after:g} s", f"{limit / 1000.0:g} s"
        note = f"; it asks to wait {asked}, longer than the {allowed} that `max_retry_delay_ms` allows"
        return attrs.evolve(error, message=error.message + note)
    return error.retry_after


def _aborted(signal: AbortSignal) -> ErrorInfo:
    return ErrorInfo("aborted", text_of(signal.reason))


# --- one try --------------------------------------------------------------------------------------------------------


def _attempt(
    call: CheckedRequest, options: StreamOptions, signal: AbortSignal, model: Model
) -> HttpResponse | _Failure:
    """Send the request once."""
    response = HttpResponse(call, options, signal)
    opened = False
    try:
        failure = response._open(options, model)
        opened = failure is None
    finally:
        if not opened:
            response.close()
    return failure or response


class HttpResponse:
    """A response that has begun well: its status is below 300, and the first bytes of its body, or its end, are there.

    `headers` have lower-case names. Use it in a `with` block.

    Threads: for the thread that opened it; an abort may come from any.
    """

    def __init__(self, call: CheckedRequest, options: StreamOptions, signal: AbortSignal) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._call = call
        self._signal = signal
        self._connect_timeout = _socket_timeout(options.connect_timeout)
        self._idle_timeout = _socket_timeout(options.idle_timeout)
        self._ends_by = 0.0
        self._first = b""
        self._reader: Iterator[bytes] = iter(())
        self._response: requests.Response | None = None
        self._at_end = False
        self._closed = False
        self._transport: _Transport | None = None
        self._line = Line(self._idle_timeout)
        self._remove_callback = signal.add_callback(self._line.cut)

    def __repr__(self) -> str:
        return f"<HttpResponse {self.status} from {self._call.host}>"

    def __enter__(self) -> HttpResponse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self._read_rest()
        self.close()

    @property
    def content_type(self) -> str:
        """The media type, in lower case and without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def blocks(self) -> Iterator[bytes]:
        """Yield the body as it arrives, decoded if it was compressed.

        Raises `RequestFailed` when the body breaks off, when nothing comes for `idle_timeout` seconds, and on an abort.
        """
        failure = None
        try:
            first, self._first = self._first, b""
            if first:
                yield first
            # Not `yield from`: closing this generator must not close the reader, and so the connection.
            for block in self._reader:
                yield block
                if self._ends_by and time.monotonic() > self._ends_by:
                    raise TimeoutError
            self._at_end = True
        except Exception as error:
            failure = self._broken(error).error
        if failure is None and self._line.was_cut:
            # A body without a length just ends when its connection is cut.
            failure = _aborted(self._signal)
        if failure is not None:
            self.close()
            raise RequestFailed(failure)

    def error(self, payload: Any) -> ErrorInfo:
        """Return the error that an object in the body tells, with the request's secrets struck out."""
        return error_from_payload(payload, self._call.redact, self.headers)

    def redact(self, text: str) -> str:
        """Return a text of the body with the request's secrets struck out."""
        return self._call.redact(text)

    def limit_silence(self, seconds: float) -> None:
        """Wait at most this long for each further block, where that is less than `idle_timeout`.

        Blocks that come all the same end after a while, unless `seconds` is infinite.
        """
        self._ends_by = 0.0 if seconds == math.inf else time.monotonic() + _LONGEST_END
        self._line.idle_timeout = min(seconds, self._idle_timeout)
        self._set_timeout(seconds)

    def close(self) -> None:
        """End the request; the connection is kept only if the body was read to its end."""
        if self._closed:
            return
        self._closed = True
        # Before anybody else can get the connection: from here on an abort does not reach it any more.
        self._remove_callback()
        reusable = self._at_end and not self._line.was_cut
        if self._response is not None and not reusable:
            self._response.close()
        if self._transport is not None:
            _give_back(self._transport, reusable)

    def _open(self, options: StreamOptions, model: Model) -> _Failure | None:
        """Send the request and wait for the first bytes of the body; return what went wrong, if anything did."""
        try:
            with self._line.in_use():
                response = self._response = self._send(options.session)
        except Exception as error:
            return self._broken(error)
        if self._line.socket is None:
            self._line.watch(_Foreign(response.raw))  # an adapter of the user's
        self._reader = _read(response)
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        if options.on_response is not None:
            options.on_response(self.status, dict(self.headers), model)
        if not 200 <= self.status < 300:
            return self._refused()
        try:
            first = next(self._reader, None)
        except Exception as error:
            return self._broken(error)
        self._first, self._at_end = first or b"", first is None
        return None

    def _send(self, user_session: Any) -> requests.Response:
        import requests
        from requests.adapters import HTTPAdapter

        call = self._call
        session: requests.Session
        if user_session is not None:
            session, adapter = user_session, user_session.get_adapter(call.url)
        if user_session is None or type(adapter) is HTTPAdapter:
            self._transport = _take_transport()
            session, adapter = user_session or self._transport.session, self._transport.adapter
        # An `auth` that does nothing: without one, requests would put the password of `~/.netrc` in our key's place.
        prepared = session.prepare_request(
            requests.Request(
                "POST", call.url, headers=call.headers, data=call.body, auth=session.auth or _leave_headers_alone
            )
        )
        settings: Mapping[str, Any]
        if user_session is None:
            settings = _settings_of_environment(call.url)
        else:
            # Its own headers, `auth` and parameters are in the request by now.
            self._call = attrs.evolve(call, redact=call.redact.knowing(prepared.url or "", prepared.headers))
            # Its own settings are given as the request's, since requests lets the environment beat a session.
            settings = session.merge_environment_settings(
                prepared.url, dict(session.proxies), True, session.verify, session.cert
            )
        timeouts = (self._connect_timeout, self._idle_timeout)
        response: requests.Response = adapter.send(prepared, timeout=timeouts, **settings)
        return response

    def _refused(self) -> _Failure:
        location = self.headers.get("location")
        if 300 <= self.status < 400 and location:
            text = (
                f"HTTP {self.status}: the server redirects to {shown_url(location)}; that is not followed, because it "
                "would send the key there. Set `base_url` to the right address"
            )
            return _Failure(ErrorInfo("invalid_request", self._call.redact(text), status=self.status), False)
        body = self._error_body()
        if self._line.was_cut:
            return _Failure(_aborted(self._signal), False)
        error = error_from_response(self.status, self.headers, body, self._call.redact)
        return _Failure(error, is_retryable_status(error))

    def _error_body(self) -> bytes:
        """Return what can be had of an error's body in a short time; its status is known in any case."""
        return b"".join(self._read_on(_ERROR_SECONDS, _ERROR_BYTES))

    def _read_rest(self) -> None:
        """Read the end of a body that an adapter has seen enough of, if it is there; else leave it unread."""
        if self._set_timeout(_REST_SECONDS):
            for _ in self._read_on(_REST_SECONDS, _REST_BYTES):
                pass

    def _read_on(self, seconds: float, size: int) -> Iterator[bytes]:
        """Yield more of the body, at most for this time and size; whatever goes wrong just ends it."""
        deadline = time.monotonic() + seconds
        try:
            while size > 0 and not self._at_end:
                self._set_timeout(max(0.001, deadline - time.monotonic()))
                block = next(self._reader, None)
                if block is None:
                    self._at_end = True
                else:
                    yield block
                    size -= len(block)
        except Exception:
            return

    def _set_timeout(self, seconds: float) -> bool:
        """Limit the next read, if the socket is known; return whether it is."""
        set_timeout = getattr(self._line.socket, "settimeout", None)
        if set_timeout is None:
            return False
        try:
            set_timeout(min(seconds, self._idle_timeout))
        except OSError:
            return False  # closed already
        return True

    def _broken(self, error: Exception) -> _Failure:
        """Return what an exception of requests, urllib3 or the network means."""
        if self._line.was_cut:
            return _Failure(_aborted(self._signal), False)
        answered = self._response is not None
        info, retryable = explain(error, self._call.host, self._line, self._connect_timeout, answered)
        return _Failure(attrs.evolve(info, message=self._call.redact(info.message)), retryable)


def _settings_of_environment(url: str) -> dict[str, Any]:
    """Return the proxies and certificates that the environment asks for; looking them up anew costs as much as a send."""
    if sys.platform in ("darwin", "win32"):  # where proxies are also a setting of the system
        return _look_up_settings.__wrapped__(url, ())
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}/"
    return {**_look_up_settings(origin, tuple(map(os.environ.get, _SETTING_VARIABLES)))}


_SETTING_VARIABLES = (
    *(f"{name}_proxy" for name in ("http", "https", "all", "no")),
    *(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")),
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "REQUEST_METHOD",  # a web server's script: there HTTP_PROXY may come from a request's header
)


@functools.lru_cache(maxsize=32)
def _look_up_settings(url: str, variables: tuple[str | None, ...]) -> dict[str, Any]:
    import requests

    return dict(requests.Session().merge_environment_settings(url, {}, True, True, None))


def _leave_headers_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _socket_timeout(seconds: float) -> float:
    return min(float(seconds), 1e9)  # sockets refuse infinity


class _Foreign:
    """A response whose socket we do not know, in the place of one."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def shutdown(self, how: int) -> None:
        try:
            self._raw.shutdown()
        except Exception:  # another kind of response, or one that has ended
            pass


def _read(response: requests.Response) -> Iterator[bytes]:
    """Yield the blocks of a body as they arrive.

    `read1` would return each part of a chunk by itself and costs twice as much per chunk; reading chunk by chunk
    would hold back a body that is not chunked until its end. So each gets its own way.
    """
    raw = response.raw
    if getattr(raw, "chunked", False) and raw.supports_chunked_reads():
        yield from raw.read_chunked(None, decode_content=True)
    elif hasattr(raw, "read1"):
        while block := raw.read1(1 << 16, decode_content=True):
            yield block
    else:
        yield from response.iter_content(None)


# --- connections that are kept --------------------------------------------------------------------------------------


class _Transport:
    """An adapter with its connections, and a session for its settings, used by one request at a time.

    That it is one at a time, and not one a thread, keeps connections alive from run to run though each `EventStream`
    has a new thread; and no abort can reach a connection that another request has got meanwhile.
    """

    def __init__(self) -> None:
        import requests

        self.session = requests.Session()
        self.adapter = _adapter_class()(pool_maxsize=1, max_retries=0)
        self.process = os.getpid()
        self.unused_since = 0.0


# Appending and popping are atomic, so that no thread and no interrupt finds a transport half taken.
_kept: collections.deque[_Transport] = collections.deque()


def _take_transport() -> _Transport:
    while True:
        try:
            transport = _kept.pop()
        except IndexError:
            return _Transport()
        # A forked child must not talk on its parent's connections.
        if transport.process == os.getpid() and time.monotonic() - transport.unused_since < _SECONDS_KEPT:
            return transport
        transport.adapter.close()


def _give_back(transport: _Transport, reusable: bool) -> None:
    if not reusable:
        transport.adapter.close()
    transport.unused_since = time.monotonic()
    _kept.append(transport)
    while len(_kept) > _TRANSPORTS_KEPT:
        try:
            _kept.popleft().adapter.close()
        except IndexError:
            return


@functools.cache
def _adapter_class() -> type[HTTPAdapter]:
    from requests.adapters import HTTPAdapter

    class AbortableAdapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = abortable_pools(self.poolmanager.pool_classes_by_scheme)

        def close(self) -> None:
            # urllib3 closes the connections of a pool when the last reference to it goes; this is for now.
            for manager in (self.poolmanager, *self.proxy_manager.values()):
                for key in manager.pools.keys():  # noqa: SIM118 - has no __iter__
                    pool = manager.pools.get(key)
                    if pool is not None:
                        pool.close()
            super().close()

        def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(proxy, **kwargs)
            manager.pool_classes_by_scheme = abortable_pools(manager.pool_classes_by_scheme)
            return manager

    return AbortableAdapter
