"""Chat Completions as the tests speak it: chunks, bodies, and a model behind a loopback server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentcore import (
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    ModelContext,
    StreamOptions,
    UserMessage,
    stream_response,
)
from agentcore.events import StreamEvent
from agentcore.providers._assembler import Assembler
from agentcore.providers._exchange import Incoming
from agentcore.providers._request import RequestFailed
from agentcore.providers.openai_completions import read_stream
from agentcore.testing.sse_server import Reply, Request, SseServer, sse

DONE = "[DONE]"
MODEL = Model("m", base_url="http://127.0.0.1:1/v1")


def delta(*, finish: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk whose delta has these fields."""
    return {
        "id": "r1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def text(content: str) -> dict[str, Any]:
    return delta(content=content)


def finish(reason: Any = "stop") -> dict[str, Any]:
    return delta(finish=reason)


def tool_call(
    arguments: Any = None, *, index: Any = 0, id: Any = None, name: Any = None, **more: Any
) -> dict[str, Any]:
    """Return one item of `tool_calls`; what is `None` is left out."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    item = {"index": index, "id": id, "function": function, **more}
    return {key: value for key, value in item.items() if value is not None}


def calls(*items: dict[str, Any], finish: Any = None, **fields: Any) -> dict[str, Any]:
    return delta(finish=finish, tool_calls=list(items), **fields)


def events_of(body: bytes | Iterable[bytes], model: Model = MODEL) -> list[StreamEvent]:
    """Return the events that the reader makes of a body, given whole or in blocks."""
    assembler = Assembler(model)
    reading = read_stream(Incoming([body] if isinstance(body, bytes) else body), assembler)
    events: list[StreamEvent] = []
    try:
        while True:
            events.append(next(reading))
    except StopIteration as end:
        events += end.value
    except RequestFailed as failure:
        events += assembler.fail(failure.error)
    return events


def message_of(events: Sequence[StreamEvent]) -> AssistantMessage:
    *_, last = events
    assert isinstance(last, (DoneEvent, ErrorEvent))
    return last.message


def read(*payloads: Any, model: Model = MODEL) -> AssistantMessage:
    """Return the message that a streamed body of these payloads makes."""
    return message_of(events_of(sse(*payloads), model))


@contextmanager
def served(
    replies: Reply | Callable[[Request], Reply] | Sequence[Reply | Callable[[Request], Reply]], **model: Any
) -> Iterator[tuple[SseServer, Model]]:
    """Give a server and a model that is behind it."""
    with SseServer(replies) as server:
        yield server, Model("m", base_url=f"{server.url}/v1", **model)


def ask(model: Model, *messages: Any, options: StreamOptions | None = None, **context: Any) -> list[StreamEvent]:
    """Return the events of one request."""
    request = ModelContext(messages=messages or (UserMessage("hi"),), **context)
    return list(stream_response(model, request, options or StreamOptions()))
