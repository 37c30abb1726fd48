"""A run in a terminal: its text as it streams, its tool calls as lines that live, its figures at the end.

`show(stream)` shows a run that goes on in the background, `show(agent)` all runs of an agent::

    show(agent)
    agent.prompt("Tidy up the notes.")

Where the output is no terminal, and where the package `rich` is missing, it is shown as plain text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO
from weakref import WeakKeyDictionary

import attrs

from agentcore.abort import AbortSignal
from agentcore.agent import Agent
from agentcore.display._plain import PlainView, Spent, preview
from agentcore.display._screen import Frame, Screen
from agentcore.display._text import (
    call_words,
    compaction_words,
    content_text,
    duration,
    end_words,
    error_words,
    one_line,
    shortened_line,
    visible,
)
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    StreamEvent,
    TextDeltaEvent,
    TextEndEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ToolCallDeltaEvent,
    ToolCallStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.streams import EventStream

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["LiveView", "PlainView", "View", "can_be_live", "hide", "show"]

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TAIL_LINES: Final = 5
_TAIL_CHARACTERS: Final = 4000
_TAB: Final = 4
_TOGETHER: Final = (("lines", "note"),)  # a question and its answer, a list and what to do with it
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_LABEL_ROWS: Final = 3
_TICKS_A_SECOND: Final = 10
# Terminals that know this say where a pasted text begins and ends, so that its line feeds do not end lines.
_PASTE_MARKS_ON: Final = "\x1b[?2004h"
_PASTE_MARKS_OFF: Final = "\x1b[?2004l"


class View(Protocol):
    """Shows runs: called with every event, as a listener of an agent or as `emit` of a loop."""

    def __call__(self, event: AgentEvent, signal: AbortSignal | None = None) -> None: ...

    def note(self, text: str) -> None:
        """Show a line that is not the model's."""
        ...

    def lines(self, text: str) -> None:
        """Show lines that are not the model's."""
        ...

    def close(self) -> None:
        """Show what is left, and let go of the terminal."""
        ...


@attrs.define
class _Call:
    """A tool call that is going on."""

    words: str
    began: float
    tail: str = ""
    asking: bool = False


@attrs.define
class _Input:
    """The line that the user is typing."""

    mark: str
    text: str
    cursor: int
    hint: str
    apart: bool


class LiveView:
    """Shows runs on a terminal, with what is going on at the moment in lines at the bottom that keep changing.

    It needs the package `rich`. `on_failure` is called once, on another thread, when the terminal is gone.

    Threads: every method may be called from any thread; none waits but `close`.
    """

    def __init__(self, file: TextIO, on_failure: Callable[[], object] = lambda: None) -> None:
        from rich.text import Text

        self._text: type[Text] = Text
        self._plain_spinner = not (file.encoding or "").lower().startswith("utf")
        self._partial: list[str] = []
        self._partial_style = ""
        self._in_code = False
        self._calls: dict[str, _Call] = {}
        self._activity: tuple[str, float] | None = None
        self._typing: _Input | None = None
        self._last_kind = ""
        self._own_prompt = True
        self._spent = Spent()
        self._screen = Screen(file, self._frame, on_failure)

    # --- what others call -------------------------------------------------------------------------------------------

    def __call__(self, event: AgentEvent, signal: AbortSignal | None = None) -> None:
        """Show an event."""
        self._screen.post(partial(self._take, event, monotonic()))

    def note(self, text: str) -> None:
        """Show a line that is not the model's."""
        self._screen.post(partial(self._note, text))

    def lines(self, text: str) -> None:
        """Show lines that are not the model's."""
        self._screen.post(partial(self._lines, text))

    def said(self, text: str) -> None:
        """Show what the user has said."""
        self._screen.post(partial(self._said, text))

    def typing(self, mark: str, text: str, cursor: int, hint: str = "", *, apart: bool = False) -> None:
        """Show the line that is being typed, with its cursor, and a hint as long as it is empty.

        `apart` leaves a blank line above it.
        """
        self._screen.post(partial(self._show_typing, _Input(mark, text, cursor, hint, apart)))

    def asks(self, tool_call_id: str, asking: bool) -> None:
        """Leave a call out while a person is asked about it, and count its time from the answer on."""
        self._screen.post(partial(self._asks, tool_call_id, asking, monotonic()))

    def pause(self) -> None:
        """Let go of the terminal for a while; wait for that."""
        self._screen.post(partial(self._screen.send, _PASTE_MARKS_OFF))
        self._screen.pause()

    def resume(self) -> None:
        """Take the terminal again."""
        self._screen.post(partial(self._screen.send, _PASTE_MARKS_ON))
        self._screen.resume()

    def close(self) -> None:
        """Show what is left, and let go of the terminal."""
        self._screen.post(self._end)
        self._screen.close()

    # --- events, on the screen's thread -----------------------------------------------------------------------------

    def _take(self, event: AgentEvent, at: float) -> None:
        match event:
            case MessageUpdateEvent():
                self._update(event.assistant_message_event, at)
            case AgentStartEvent():
                self._spent, self._own_prompt = Spent(), True
                self._calls.clear()
                self._activity = ("waiting for the model", at)
            case MessageStartEvent(message) if not isinstance(message, UserMessage):
                self._activity = None
            case MessageEndEvent(AssistantMessage() as message):
                self._end_message(message, at)
            case MessageEndEvent(UserMessage() as message):
                if not self._own_prompt:
                    self._said(message.content if isinstance(message.content, str) else content_text(message.content))
                self._activity = ("waiting for the model", at)
            case ToolExecutionStartEvent(tool_call_id, name, args):
                self._activity = None
                self._calls[tool_call_id] = _Call(call_words(name, args), at)
            case ToolExecutionUpdateEvent(tool_call_id, _, _, result):
                if tool_call_id in self._calls:
                    self._calls[tool_call_id].tail = content_text(result.content)[-_TAIL_CHARACTERS:]
            case ToolExecutionEndEvent():
                self._end_call(event, at)
            case RequestRetryEvent(_, delay, reason):
                self._note(f"trying again in {delay:.1f} s: {reason}")
            case CompactionStartEvent():
                self._activity = ("summarising the earlier conversation", at)
            case CompactionEndEvent():
                self._activity = ("waiting for the model", at)
                self._note(compaction_words(event))
            case AgentEndEvent(_, reason):
                self._end_run(reason)
            case _:
                pass

    def _update(self, event: StreamEvent, at: float) -> None:
        match event:
            case TextDeltaEvent(_, delta):
                self._stream("text", "", delta)
            case ThinkingDeltaEvent(_, delta):
                self._stream("thinking", "dim italic", delta)
            case TextEndEvent() | ThinkingEndEvent():
                self._end_partial()
            case ToolCallStartEvent(index, partial_message):
                name = getattr(partial_message.content[index], "name", "a tool")
                self._activity = (f"writing the call of {one_line(name)}", at)
            case ToolCallDeltaEvent():
                pass
            case _:
                self._activity = None if self._partial else self._activity

    def _end_message(self, message: AssistantMessage, at: float) -> None:
        self._own_prompt = False
        self._end_partial()
        self._spent.add_turn(message)
        self._activity = ("waiting for the model", at) if not message.tool_calls else None
        if message.stop_reason == "error":
            self._note(f"error: {error_words(message.error)}", "red")
        elif message.stop_reason == "length":
            self._note("The reply was cut off: it reached the longest that the model may give.", "yellow")

    def _end_call(self, event: ToolExecutionEndEvent, at: float) -> None:
        call = self._calls.pop(event.tool_call_id, None) or _Call(one_line(event.tool_name), at)
        self._spent.add(event.result.usage)
        self._begin("tools")
        mark = ("✗ ", "red") if event.is_error else ("✓ ", "green")
        self._screen.print(self._call_line(mark, shortened_line(call.words, 600), at - call.began))
        for line, style in preview(event.tool_name, event.result):
            self._screen.print(self._text(f"  {line}".expandtabs(_TAB), style))
        if not self._calls:
            self._activity = ("waiting for the model", at)

    def _end_run(self, reason: str) -> None:
        self._end_partial()
        self._activity = None
        self._calls.clear()
        words = end_words(reason)
        if words is not None:
            self._note(words, "yellow")
        self._note(self._spent.words(), "dim")

    def _show_typing(self, typing: _Input) -> None:
        if self._typing is None:
            self._screen.send(_PASTE_MARKS_ON)
        self._typing = typing

    def _end(self) -> None:
        self._end_partial()
        if self._typing is not None:
            self._screen.send(_PASTE_MARKS_OFF)

    def _asks(self, tool_call_id: str, asking: bool, at: float) -> None:
        call = self._calls.get(tool_call_id)
        if call is not None:
            call.asking, call.began = asking, at

    # --- lines that stay --------------------------------------------------------------------------------------------

    def _begin(self, kind: str) -> None:
        """End what was being printed; part what is of another kind from it by a blank line."""
        self._end_partial()
        if (
            self._last_kind
            and (kind != self._last_kind or kind == "lines")
            and (self._last_kind, kind) not in _TOGETHER
        ):
            self._screen.print(self._text(""))
        self._last_kind = kind

    def _stream(self, kind: str, style: str, delta: str) -> None:
        if not delta:
            return
        self._activity = None
        if not self._partial or kind != self._last_kind:
            self._begin(kind)
            self._partial, self._partial_style, self._in_code = [""], style, False
        *lines, rest = delta.split("\n")
        for line in lines:
            self._partial.append(line)
            self._print_partial()
            self._partial = [""]
        self._partial.append(rest)

    def _print_partial(self) -> None:
        line = visible("".join(self._partial).removesuffix("\r")).expandtabs(_TAB)
        if _FENCE.match(line):
            self._in_code = not self._in_code
        # Code stays as it is, so that it can be copied.
        self._screen.print(self._text(line, self._partial_style), wrap=not self._in_code)

    def _end_partial(self) -> None:
        if any(self._partial):
            self._print_partial()
        self._partial = []

    def _rows_of(self, line: str, width: int, style: str) -> list[Text]:
        if self._in_code:
            return self._chopped(line, width, style)
        return self._screen.wrapped(self._text(line, style), width)

    def _note(self, text: str, style: str = "dim") -> None:
        self._begin("note")
        self._screen.print(self._text(one_line(text), style), wrap=True)

    def _lines(self, text: str) -> None:
        self._begin("lines")
        for line in visible(text).split("\n"):
            self._screen.print(self._text(line.expandtabs(_TAB)), wrap=True)

    def _said(self, text: str) -> None:
        self._begin("user")
        for number, line in enumerate(visible(text).split("\n")):
            self._screen.print(
                self._text.assemble(("› " if not number else "  ", "cyan"), (line.expandtabs(_TAB), "bold"))
            )

    # --- lines that change ------------------------------------------------------------------------------------------

    def _frame(self, width: int, height: int) -> Frame:
        now = monotonic()
        rows: list[Text] = []
        if any(self._partial):
            line = "".join(self._partial)
            hidden = max(0, len(line) - width * height) // width * width  # by whole rows, or they would shift
            tail = visible(line[hidden:]).expandtabs(_TAB)
            rows += self._rows_of(tail, width, self._partial_style)[-height // 2 :]
        most = _TAIL_LINES if len(self._calls) <= 2 else 1
        running = [call for call in self._calls.values() if not call.asking]
        if running and self._last_kind not in ("", "tools"):
            rows.append(self._text(""))
        for call in running:
            rows += self._call_rows(call, width, now, most)
        if self._activity is not None:
            what, began = self._activity
            rows.append(self._call_line((self._spin(now), "cyan"), what, now - began, "dim"))
        moving = bool(self._calls) or self._activity is not None
        for row in rows:
            row.truncate(width, overflow="ellipsis")
        if self._typing is None:
            return Frame(rows[-(height - 1) :], None, moving)
        if self._typing.apart and self._last_kind:
            rows.append(self._text(""))
        typed, (row_number, column) = self._typed_rows(self._typing, width, max(1, height - 1))
        room = max(0, height - 1 - len(typed))
        above = rows[-room:] if room else []
        return Frame([*above, *typed], (len(above) + row_number, column), moving)

    def _spin(self, now: float) -> str:
        number = int(now * _TICKS_A_SECOND)
        return f"{'|/-'[number % 3] if self._plain_spinner else _SPINNER[number % len(_SPINNER)]} "

    def _call_line(self, mark: tuple[str, str], words: str, seconds: float, style: str = "") -> Text:
        name, _, rest = words.partition(" ")
        parts = [(words, style)] if style else [(name, "bold"), (f" {rest}" if rest else "", "")]
        return self._text.assemble(mark, *parts, (f" · {duration(seconds)}", "dim"))

    def _call_rows(self, call: _Call, width: int, now: float, most: int) -> list[Text]:
        clock = duration(now - call.began)
        room = max(8, width - len(clock) - 6)
        rows = [self._call_line((self._spin(now), "cyan"), shortened_line(call.words, room), now - call.began)]
        tail = [line for line in visible(call.tail).splitlines() if line.strip()][-most:]
        return rows + [self._text(f"  {line}".expandtabs(_TAB), "dim") for line in tail]

    def _chopped(self, line: str, width: int, style: str) -> list[Text]:
        from rich.cells import chop_cells

        return [self._text(part, style) for part in chop_cells(line, width)] or [self._text("")]

    def _typed_rows(self, typing: _Input, width: int, most: int) -> tuple[list[Text], tuple[int, int]]:
        from rich.cells import cell_len

        before = typing.mark + one_cell_each(typing.text[: typing.cursor])
        whole = before + one_cell_each(typing.text[typing.cursor :])
        # One column is left for the cursor behind the last character.
        rows = self._chopped(whole, width - 1, "")
        rows[0].stylize("cyan", 0, len(typing.mark))
        if not typing.text and typing.hint:
            rows[0].append(typing.hint, "dim")
            rows[0].truncate(width - 1, overflow="ellipsis")
        place = self._chopped(before, width - 1, "")
        row, column = len(place) - 1, cell_len(place[-1].plain)
        first = max(0, row - most + 1)
        return rows[first : first + most], (row - first, column)


def one_cell_each(text: str) -> str:
    """Return what is being typed on one line, character by character."""
    return visible(text).replace("\n", "⏎").replace("\t", " ")


# --- showing agents and streams -------------------------------------------------------------------------------------

_shown: WeakKeyDictionary[Agent, Callable[[], None]] = WeakKeyDictionary()
"""How to stop showing an agent."""


def can_be_live(file: TextIO) -> bool:
    """Return whether a file is a terminal that can show changing lines, and `rich` is there to draw them."""
    return file.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb") and find_spec("rich") is not None


def show(source: EventStream[Any] | Agent) -> None:
    """Show the run of a stream to its end, or from now on every run of an agent.

    What ended the run of a stream is not raised here but by `stream.result()`. Ctrl-C stops the run of a stream and is
    raised. Showing an agent again changes nothing; `hide` ends it.
    """
    if isinstance(source, EventStream):
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


def _new_view() -> View:
    return LiveView(sys.stdout) if can_be_live(sys.stdout) else PlainView(sys.stdout, sys.stderr)


class _EachRun:
    """A listener that opens a view for each run."""

    def __init__(self) -> None:
        self._view: View | None = None

    def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        if self._view is None or isinstance(event, AgentStartEvent):
            self._view = _new_view()
        self._view(event)
        if isinstance(event, AgentEndEvent):
            self._view.close()
            self._view = None


def _show_stream(stream: EventStream[Any]) -> None:
    view = _new_view()
    try:
        for event in stream:
            view(event)
    except KeyboardInterrupt:
        for event in stream:
            view(event)
        raise
    except Exception:
        pass  # the stream keeps it for `result`
    finally:
        view.close()
