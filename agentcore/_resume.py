"""Calls that wait for a decision: which they are, what can be decided, and how a run goes on from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentcore.abort import AbortSignal
from agentcore.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.errors import NothingToContinueError, PendingCallsError
from agentcore.loop import ResumedCalls
from agentcore.messages import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage

__all__ = ["allow", "deny", "refuse_unanswered", "replace", "resumed_calls", "unanswered_calls"]


def allow() -> BeforeToolCallResult:
    """Decide that a call runs, with the arguments it has; for `Agent.resume` and `before_tool_call`."""
    return BeforeToolCallResult()


def deny(reason: str | None = None) -> BeforeToolCallResult:
    """Decide that a call does not run; `reason` is for the model to read."""
    return BeforeToolCallResult(block=True, reason=reason)


def replace(args: Mapping[str, Any]) -> BeforeToolCallResult:
    """Decide that a call runs with other arguments; they are validated, not coerced."""
    if not isinstance(args, Mapping):
        raise TypeError(f"`args` is a dict of arguments, not {type(args).__name__}")
    return BeforeToolCallResult(args=dict(args))


def unanswered_calls(messages: Sequence[AgentMessage]) -> tuple[AssistantMessage | None, tuple[ToolCall, ...]]:
    """Return the assistant message that ends a conversation, but for results, and those of its calls without one.

    A message that ended in `error` or `aborted` has none: its calls are never run. Calls that share an id are answered
    one by one, the first ones first.
    """
    answered: Counter[str] = Counter()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            answered[message.tool_call_id] += 1
            continue
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            open_calls = []
            for call in message.tool_calls:
                answered[call.id] -= 1
                if answered[call.id] < 0:
                    open_calls.append(call)
            return message, tuple(open_calls)
        break
    return None, ()


def refuse_unanswered(messages: Sequence[AgentMessage]) -> None:
    """Raise `PendingCallsError` if calls wait for a decision."""
    calls = unanswered_calls(messages)[1]
    if calls:
        raise PendingCallsError(
            f"{len(calls)} tool calls wait for a decision: `resume({{id: allow()}})` takes it, `resume({{}})` answers them "
            "all with an error"
        )


def resumed_calls(messages: Sequence[AgentMessage], decisions: Mapping[str, Any]) -> ResumedCalls:
    """Return what a run needs to answer the calls that wait, by these decisions.

    Raises `NothingToContinueError` when no call waits, `TypeError` for what is no decision, and `ValueError` for an id
    that no waiting call has, or several.
    """
    message, calls = unanswered_calls(messages)
    if message is None or not calls:
        raise NothingToContinueError("no tool call waits for a decision; `prompt` or `continue_` go on")
    if not isinstance(decisions, Mapping):
        raise TypeError(f"`decisions` maps the ids of calls to decisions, not {type(decisions).__name__}")
    waiting = Counter(call.id for call in calls)
    for call_id, decision in decisions.items():
        if call_id not in waiting:
            raise ValueError(f"no call with the id {call_id!r} waits; the ids are {', '.join(map(repr, waiting))}")
        if waiting[call_id] > 1:
            # A decision is about the arguments that somebody has seen: which of the calls these were cannot be told.
            raise ValueError(
                f"{waiting[call_id]} waiting calls share the id {call_id!r}; none of them can be decided on"
            )
        if not isinstance(decision, BeforeToolCallResult) or decision.pause:
            raise TypeError(f"the decision on {call_id!r} is `allow()`, `deny(…)` or `replace(…)`, not {decision!r}")
    decided = dict(decisions)

    def decide(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
        call = context.tool_call
        return decided[call.id] if call.id in decided else deny(f"`{call.name}` was not run: nobody decided on it.")

    return ResumedCalls(message, calls, decide)
