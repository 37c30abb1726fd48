"""What must hold of any run's events, messages and threads, whatever ended it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from agentcore.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.messages import AssistantMessage, ToolResultMessage


def problems_of(
    log: Sequence[Any], added: Sequence[Any], *, emit_failed: bool = False, pauses: bool = False
) -> list[str]:
    """Return what is wrong with the events and the messages of a run that has ended; nothing if all is well.

    After a failure of `emit` there are no closing events. A paused call that is aborted may be answered late.
    """
    if emit_failed:
        return _answers(added)
    problems = [*_nesting(log), *_messages(log, added, pauses=pauses)]
    paused = log[-1].reason in ("paused", "aborted") if pauses and type(log[-1]) is AgentEndEvent else False
    problems += _answers(added, _paused_calls(log) if paused else ())
    for message in added:
        if isinstance(message, ToolResultMessage):
            problems += _executions(log, message)
    return problems


def _nesting(log: Sequence[Any]) -> list[str]:
    """Every start has one end, in its place; `AgentEnd` comes once, and last."""
    if not log:
        return ["there are no events"]
    problems = []
    kinds = [type(event) for event in log]
    if kinds[0] is not AgentStartEvent or kinds.count(AgentStartEvent) != 1:
        problems.append("not one `AgentStart` at the beginning")
    if kinds[-1] is not AgentEndEvent or kinds.count(AgentEndEvent) != 1:
        problems.append("not one `AgentEnd` at the end")
    reason = log[-1].reason if kinds[-1] is AgentEndEvent else ""
    turn, message = False, False
    for number, kind in enumerate(kinds):
        if kind is TurnStartEvent:
            turn, wrong = True, turn or message
        elif kind is TurnEndEvent:
            turn, wrong = False, not turn or message
        elif kind is MessageStartEvent:
            message, wrong = True, message or not turn
        elif kind is MessageUpdateEvent:
            wrong = not message
        elif kind is MessageEndEvent:
            message, wrong = False, not message
        elif kind in (ToolExecutionStartEvent, ToolExecutionUpdateEvent, ToolExecutionEndEvent):
            wrong = not turn or message
        elif kind is AgentEndEvent:
            # A turn whose response never began stays open when a hook has failed: there is no message to end it with.
            wrong = message or (turn and reason != "error")
        else:
            wrong = False
        if wrong:
            problems.append(f"event {number}, {kind.__name__}, is out of place: {_brief(log)}")
    return problems


def _brief(log: Sequence[Any]) -> str:
    return " ".join(type(event).__name__.removesuffix("Event") for event in log)


def _messages(log: Sequence[Any], added: Sequence[Any], *, pauses: bool) -> list[str]:
    """The messages that ended are the messages that were added, once each, in order."""
    order = sorted if pauses else list
    ended = [event.message for event in log if type(event) is MessageEndEvent]
    if order([id(message) for message in ended]) != order([id(message) for message in added]):
        roles = [message.role for message in ended], [message.role for message in added]
        return [f"other messages ended than were added: {roles[0]} and {roles[1]}"]
    last = log[-1]
    if type(last) is AgentEndEvent and list(last.messages) != list(added):
        return ["`AgentEnd` does not tell all messages"]
    return []


def _answers(added: Sequence[Any], paused: Sequence[str] = ()) -> list[str]:
    """Every call of a finished response has one result, in order; but for paused ones of the last response."""
    problems = []
    at = 0
    while at < len(added):
        message = added[at]
        at += 1
        if not isinstance(message, AssistantMessage):
            continue
        results = []
        while at < len(added) and isinstance(added[at], ToolResultMessage):
            results.append(added[at].tool_call_id)
            at += 1
        finished = message.stop_reason not in ("error", "aborted")
        calls = [call.id for call in message.tool_calls] if finished else []
        if results != calls and not (at == len(added) and results == [call for call in calls if call not in paused]):
            problems.append(f"the calls {calls} were answered for {results}")
    return problems


def _paused_calls(log: Sequence[Any]) -> list[str]:
    """Return the calls that were started, and no more than started."""
    started = [event.tool_call_id for event in log if type(event) is ToolExecutionStartEvent]
    ended = [event.tool_call_id for event in log if type(event) is ToolExecutionEndEvent]
    return [call for call in started if call not in ended]


def _executions(log: Sequence[Any], result: ToolResultMessage) -> list[str]:
    own = [event for event in log if getattr(event, "tool_call_id", None) == result.tool_call_id]
    kinds = [type(event) for event in own]
    starts, ends = kinds.count(ToolExecutionStartEvent), kinds.count(ToolExecutionEndEvent)
    if starts != 1 or ends != 1 or kinds[0] is not ToolExecutionStartEvent or kinds[-1] is not ToolExecutionEndEvent:
        return [f"call {result.tool_call_id}: {_brief(own)}"]
    answers = [
        number for number, event in enumerate(log) if type(event) is MessageStartEvent and event.message is result
    ]
    in_order = bool(answers) and log.index(own[-1]) < answers[0]
    return [] if in_order else [f"the result of call {result.tool_call_id} came before its end"]


def threads_that_stay(seconds: float) -> list[str]:
    """Return what is wrong with the library's threads: those that have not ended, each after so many seconds."""
    problems = []
    for thread in threading.enumerate():
        if not thread.name.startswith("agentcore-"):
            continue
        end = time.monotonic() + seconds
        joined = False
        while not joined and time.monotonic() < end:
            try:
                thread.join(seconds)
                joined = True
            except RuntimeError:  # it is just being started: an interrupted start goes on in the background
                time.sleep(0.001)
        if not joined or thread.is_alive():
            problems.append(f"{thread.name} is still there")
    return problems
