"""A run in the output of a notebook's cell: live while it goes on, and readable when the kernel is long gone.

::

    from agentcore.display.notebook import show

    show(agent)                    # from now on, every run of this agent
    agent.prompt("Tidy up the notes.")

    show(agent.stream("And now the photos."))   # this run, to its end

Markdown is shown as text where the package `markdown-it-py` is missing: the extra `notebook` brings it. Outside a
notebook a run is shown as in a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import Empty
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentcore._mailbox import Mailbox, start_daemon
from agentcore.abort import AbortSignal
from agentcore.agent import Agent
from agentcore.display import terminal
from agentcore.display._html import progress_html
from agentcore.display._progress import Entry, RunProgress
from agentcore.display._text import call_words, content_text, one_line, visible
from agentcore.events import AgentEndEvent, AgentEvent, AgentStartEvent, MessageUpdateEvent, ToolExecutionUpdateEvent
from agentcore.streams import EventStream

__all__ = ["NotebookView", "hide", "show"]

_SECONDS_BETWEEN_UPDATES: Final = 0.1
_SHARE_OF_TIME: Final = 5

_shown: WeakKeyDictionary[Agent, Callable[[], None]] = WeakKeyDictionary()
"""How to stop showing an agent."""


class NotebookView:
    """Shows a run in the output of the cell that is running; called with every event, as `emit` or as a listener.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._progress = RunProgress()
        self._handle: Any = None
        self._updated_at = 0.0
        self._interval = _SECONDS_BETWEEN_UPDATES

    def __call__(self, event: AgentEvent, signal: AbortSignal | None = None) -> None:
        """Take an event in, and show it, if it is time."""
        self._progress.take(event)
        # Deltas come faster than a page can be drawn. Everything else may be followed by a long silence.
        if not isinstance(event, (MessageUpdateEvent, ToolExecutionUpdateEvent)) or self._is_due():
            self.update()

    def tick(self) -> None:
        """Show what has changed with time, if it is time."""
        if self._is_due():
            self.update()

    def _is_due(self) -> bool:
        return monotonic() - self._updated_at >= self._interval

    def update(self) -> None:
        """Show the run as it stands."""
        began = monotonic()
        bundle = {"text/html": progress_html(self._progress), "text/plain": _plain(self._progress)}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
        self._updated_at = monotonic()
        # A long run takes long to draw: most of the time must be left for the run itself.
        self._interval = max(_SECONDS_BETWEEN_UPDATES, _SHARE_OF_TIME * (self._updated_at - began))


def _plain(progress: RunProgress) -> str:
    """Return a run as text, for those who cannot show HTML."""
    lines = []
    for item in progress.items:
        if not isinstance(item, Entry):
            lines.append(one_line(item.text))
            continue
        content = getattr(item.message, "content", "")
        text = content if isinstance(content, str) else content_text(b for b in content if b.type in ("text", "image"))
        lines += [visible(text)] if text else []
        lines += [f"[{call.state}] {call_words(call.name, call.args)}" for call in item.calls.values()]
    return "\n".join(lines)


def show(source: EventStream[Any] | Agent) -> None:
    """Show the run of a stream to its end, or from now on every run of an agent, each in the cell that begins it.

    What ended the run of a stream is not raised here but by `stream.result()`. The interrupt of the kernel stops the
    run of a stream and is raised. Showing an agent again changes nothing; `hide` ends it.
    """
    if not _is_notebook():
        terminal.show(source)
    elif isinstance(source, EventStream):
        _show_stream(source)
    elif isinstance(source, Agent):
        if source not in _shown:
            _shown[source] = source.subscribe(_EachRun())
    else:
        raise TypeError(f"`show` takes an `Agent` or an `EventStream`, not {type(source).__name__}")


def hide(agent: Agent) -> None:
    """Show the runs of an agent no longer."""
    stop = _shown.pop(agent, None)
    if stop is not None:
        stop()
    terminal.hide(agent)


def _is_notebook() -> bool:
    # Where a notebook's kernel runs, its package is loaded.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class _EachRun:
    """A listener that shows each run in an output of its own."""

    def __init__(self) -> None:
        self._view: NotebookView | None = None

    def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        if self._view is None or isinstance(event, AgentStartEvent):
            self._view = NotebookView()
        self._view(event)
        if isinstance(event, AgentEndEvent):
            self._view = None


def _show_stream(stream: EventStream[Any]) -> None:
    """Show a run on this thread, which draws; another one reads, so that time passes on the page in between."""
    view = NotebookView()
    events: Mailbox[AgentEvent | None] = Mailbox()

    def read() -> None:
        try:
            for event in stream:
                events.put(event)
        except BaseException:
            pass  # the stream keeps it for `result`
        finally:
            events.put(None)

    start_daemon(read, "agentcore-notebook")
    try:
        _draw(view, events)
    except KeyboardInterrupt:
        stream.abort("interrupted")
        _draw(view, events)
        raise


def _draw(view: NotebookView, events: Mailbox[AgentEvent | None]) -> None:
    while True:
        try:
            event = events.get(_SECONDS_BETWEEN_UPDATES)
        except Empty:
            view.tick()
        else:
            if event is None:
                view.update()
                return
            view(event)
