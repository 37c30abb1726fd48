"""A run as plain text: what the model says to one file, what happens beside it to another."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final, TextIO

from agentcore.abort import AbortSignal
from agentcore.display._text import (
    call_words,
    compaction_words,
    content_text,
    counted,
    diff_of,
    duration,
    encodable,
    end_words,
    error_words,
    one_line,
    shortened_line,
    usage_words,
    visible,
)
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    TextDeltaEvent,
    TextEndEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from agentcore.messages import AssistantMessage, Usage, UserMessage
from agentcore.tools import AgentToolResult

__all__ = ["PlainView", "Spent", "preview"]

_LONGEST_LABEL: Final = 200
_MOST_LINES: Final = 5
_MOST_DIFF_LINES: Final = 200
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def preview(name: str, result: AgentToolResult) -> Iterator[tuple[str, str]]:
    """Yield the lines of a result to show, harmless, each with its style.

    They are those of its diff, if it has one, else the first few; of a command the last few. How many are left out is
    said.
    """
    diff = diff_of(result.details)
    if diff is not None and not result.is_error:
        lines = visible(diff).splitlines()[2:]
        yield from ((line, _DIFF_STYLES.get(line[:1], "dim")) for line in lines[:_MOST_DIFF_LINES])
        if len(lines) > _MOST_DIFF_LINES:
            yield f"… {counted(len(lines) - _MOST_DIFF_LINES, 'more line')}", "dim"
        return
    lines = visible(content_text(result.content)).strip("\n").split("\n")
    left = len(lines) - _MOST_LINES
    if left > 0 and name == "bash":
        yield f"… {counted(left, 'earlier line')}", "dim"
    yield from ((line, "dim") for line in (lines[-_MOST_LINES:] if name == "bash" else lines[:_MOST_LINES]))
    if left > 0 and name != "bash":
        yield f"… {counted(left, 'more line')}", "dim"


class Spent:
    """Adds up what a run takes: turns, tokens, money, time."""

    def __init__(self) -> None:
        self._turns = 0
        self._usage: Usage | None = None
        self._began = monotonic()

    def add_turn(self, message: AssistantMessage) -> None:
        """Count a response; the empty one that closes a stopped run is none."""
        if message.content or message.stop_reason != "aborted":
            self._turns += 1
        self.add(message.usage)

    def add(self, usage: Usage | None) -> None:
        """Count what a response or a result reports."""
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def words(self) -> str:
        """Return it in words."""
        words = [counted(self._turns, "turn"), duration(monotonic() - self._began)]
        if self._usage is not None:
            cost = None if self._usage.cost is None else self._usage.cost.get("total")
            words.insert(0, usage_words(self._usage, cost))
        return " · ".join(words)


class PlainView:
    """Shows runs as plain text: the model's text goes to `out`, as it is; tool calls, errors and figures to `err`.

    On a terminal the text is made harmless. Thinking is left out.

    Threads: one at a time.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._is_terminal = out.isatty()
        self._ends_line = True
        self._started: dict[str, float] = {}
        self._spent = Spent()
        self._own_prompt = True

    def __call__(self, event: AgentEvent, signal: AbortSignal | None = None) -> None:
        """Show an event."""
        match event:
            case AgentStartEvent():
                self._spent, self._own_prompt = Spent(), True
                self._started.clear()
            case MessageUpdateEvent(assistant_message_event=TextDeltaEvent(delta=delta)):
                self._say(delta)
            case MessageUpdateEvent(assistant_message_event=TextEndEvent()):
                self._end_line()
            case MessageEndEvent(AssistantMessage() as message):
                self._end_message(message)
            case MessageEndEvent(UserMessage() as message):
                if not self._own_prompt:
                    content = message.content
                    self.note(f"> {content if isinstance(content, str) else content_text(content)}")
            case ToolExecutionStartEvent(tool_call_id, name, args):
                self._started[tool_call_id] = monotonic()
                self.note(f"→ {shortened_line(call_words(name, args), _LONGEST_LABEL)}")
            case ToolExecutionEndEvent():
                self._end_call(event)
            case RequestRetryEvent(_, delay, reason):
                self.note(f"trying again in {delay:.1f} s: {reason}")
            case CompactionStartEvent():
                self.note("summarising the earlier conversation")
            case CompactionEndEvent():
                self.note(compaction_words(event))
            case AgentEndEvent():
                words = end_words(event.reason)
                if words is not None:
                    self.note(words)
                self.note(self._spent.words())
            case _:
                pass

    def note(self, text: str) -> None:
        """Show a line that is not the model's."""
        self._end_line()
        self._write(self._err, f"{one_line(text)}\n")

    def lines(self, text: str) -> None:
        """Show lines that are not the model's."""
        self._end_line()
        self._write(self._err, f"{visible(text)}\n")

    def close(self) -> None:
        """End the last line."""
        self._end_line()

    def _say(self, text: str) -> None:
        if text:
            self._ends_line = text.endswith("\n")
            self._write(self._out, visible(text) if self._is_terminal else text)

    def _end_line(self) -> None:
        if not self._ends_line:
            self._ends_line = True
            self._write(self._out, "\n")

    def _end_message(self, message: AssistantMessage) -> None:
        self._own_prompt = False
        self._spent.add_turn(message)
        self._end_line()
        if message.stop_reason == "error":
            self.note(f"error: {error_words(message.error)}")
        elif message.stop_reason == "length":
            self.note("The reply was cut off: it reached the longest that the model may give.")

    def _end_call(self, event: ToolExecutionEndEvent) -> None:
        result: AgentToolResult = event.result
        self._spent.add(result.usage)
        began = self._started.pop(event.tool_call_id, None)
        took = "" if began is None else f" · {duration(monotonic() - began)}"
        mark = "✗" if event.is_error else "✓"
        self.note(f"{mark} {one_line(event.tool_name)}{took}")
        self.lines("\n".join(f"  {line}" for line, _ in preview(event.tool_name, result)))

    def _write(self, file: TextIO, text: str) -> None:
        file.write(encodable(text, file.encoding or "utf-8"))
        file.flush()
