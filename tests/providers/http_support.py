"""Sends one request as an adapter does, for the tests of the HTTP layer."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from agentcore import AbortController, Model, StreamOptions
from agentcore.events import RequestRetryEvent
from agentcore.messages import ErrorInfo
from agentcore.providers._http import HttpRequest, HttpResponse, RequestFailed, open_stream

KEY = "sk-test-SECRET"
MODEL = Model("m")


@attrs.define
class Outcome:
    """What came of one request."""

    retries: list[RequestRetryEvent] = attrs.field(factory=list)
    blocks: list[bytes] = attrs.field(factory=list)
    error: ErrorInfo | None = None
    failure: RequestFailed | None = None
    response: HttpResponse | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.blocks)


def opened(
    url: str,
    options: StreamOptions | None = None,
    *,
    headers: Mapping[str, str | None] | None = None,
    payload: Any = None,
    on_retry: Callable[[RequestRetryEvent], None] = lambda event: None,
) -> HttpResponse:
    """Open a response, or raise `RequestFailed`."""
    request = HttpRequest(url, headers or {"Authorization": f"Bearer {KEY}"}, payload or {"a": 1})
    stream = open_stream(request, options or StreamOptions(), MODEL)
    while True:
        try:
            event = next(stream)
        except StopIteration as end:
            return end.value
        on_retry(event)


def fetch(url: str, options: StreamOptions | None = None, **more: Any) -> Outcome:
    """Read a response to its end."""
    outcome = Outcome()
    try:
        with opened(url, options, on_retry=outcome.retries.append, **more) as response:
            outcome.response = response
            outcome.blocks.extend(response.blocks())
    except RequestFailed as failure:
        outcome.error, outcome.failure = failure.error, failure
    return outcome


@contextmanager
def aborting() -> Iterator[AbortController]:
    controller = AbortController()
    yield controller
    controller.close()
