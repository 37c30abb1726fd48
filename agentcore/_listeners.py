"""The listeners of an agent: told of every event in turn, and none can spoil it for the others."""

from __future__ import annotations

from collections.abc import Callable

from agentcore._foreign import coroutine_closed
from agentcore._logs import log_failure
from agentcore.abort import AbortSignal
from agentcore.errors import AbortRequested
from agentcore.events import AgentEvent

__all__ = ["Listener", "Listeners"]

Listener = Callable[[AgentEvent, AbortSignal], object]
"""`listener(event, signal)`: gets every event of an agent's runs; `signal` is the run's."""


class Listeners:
    """Listeners in the order of subscription.

    Threads: they may be added and taken back from any thread, also while others are being told.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; return what takes it back."""
        if not callable(listener):
            raise TypeError(f"a listener must be callable, not {type(listener).__name__}")
        key = object()
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    def tell(self, event: AgentEvent, signal: AbortSignal, logged: set[tuple[object, str]]) -> AbortRequested | None:
        """Call every listener; what one raises is logged, once for a type of event (`logged` keeps what has been).

        Return what asked for the abort, if one did: that is to be raised, when everybody has been told.
        """
        listeners = self._listeners
        request: AbortRequested | None = None
        for key in list(listeners):
            listener = listeners.get(key)
            if listener is None:
                continue
            try:
                if coroutine_closed(listener(event, signal)):
                    raise TypeError("a listener is a coroutine function; listeners here are plain functions")
            except AbortRequested as asked:
                request = asked  # it asks to end the run, not to keep the event from the others
            except Exception as error:
                # A broken one fails at every delta.
                if (key, event.type) not in logged:
                    logged.add((key, event.type))
                    log_failure("agent", error, "a listener failed at `%s`", event.type)
        return request
