"""Ask a model over whichever wire API it speaks: `stream_response` finds the adapter by `Model.api`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator

from agentcore.config import ModelContext, StreamFn, StreamOptions
from agentcore.events import ErrorEvent, StreamEvent
from agentcore.messages import AssistantMessage, ErrorInfo
from agentcore.models import Model

__all__ = ["register_api", "stream_response"]

_MODULES = {
    "anthropic-messages": "anthropic_messages",
    "google-generative-ai": "google_generative_ai",
    "openai-completions": "openai_completions",
    "openai-responses": "openai_responses",
}

_registered: dict[str, StreamFn] = {}


def register_api(name: str, fn: StreamFn) -> None:
    """Have `fn(model, context, options)` answer for every model whose `api` is `name`, in place of any built-in one.

    Threads: may be called from any thread; requests that have begun keep what they began with.
    """
    if not name:
        raise ValueError("an API needs a name")
    if not callable(fn):
        raise TypeError(f"a stream function is callable, not {type(fn).__name__}")
    _registered[name] = fn


def stream_response(
    model: Model, context: ModelContext, options: StreamOptions
) -> Iterator[StreamEvent] | Iterable[StreamEvent]:
    """Ask a model and return the events of its answer, the last of which is a `DoneEvent` or an `ErrorEvent`.

    The adapter's module is imported with its first request. What cannot be asked, such as an unknown `api` or a model
    without a `base_url`, is an answer that ends in an error, never an exception. Closing the iterator ends the request.
    """
    fn = _registered.get(model.api)
    if fn is not None:
        return fn(model, context, options)
    module = _MODULES.get(model.api)
    if module is None:
        known = ", ".join(sorted({*_MODULES, *_registered}))
        return _refused(model, f"the model {model.id!r} has an unknown `api` {model.api!r}; known are {known}")
    if not model.base_url:
        return _refused(model, f"the model {model.id!r} has no `base_url`; set where its API is served")
    stream: StreamFn = importlib.import_module(f"{__name__}.{module}").stream
    return stream(model, context, options)


def _refused(model: Model, why: str) -> Iterator[StreamEvent]:
    error = ErrorInfo("invalid_request", why)
    yield ErrorEvent(
        AssistantMessage((), api=model.api, provider=model.provider, model=model.id, stop_reason="error", error=error)
    )
