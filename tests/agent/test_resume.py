"""Calls that wait for a decision: the run pauses, the decision comes later and elsewhere, nothing runs twice."""

import json
import subprocess
import sys
from typing import Any

import pytest

from agentcore import (
    AgentBusyError,
    AssistantMessage,
    BeforeToolCallResult,
    NothingToContinueError,
    PendingCallsError,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    allow,
    deny,
    replace,
)
from agentcore.approvals import pause_for_approval
from agentcore.messages import message_from_dict
from agentcore.testing import call, reply
from agentcore.tools import AgentTool
from tests.agent.agent_support import agent_with, requests, roles, tool, transcript_problems


class Deeds:
    """A tool that notes what it did."""

    def __init__(self, **fields: Any) -> None:
        self.done: list[Any] = []
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        self.tool = AgentTool("deed", "Deed", "Does a deed.", schema, self._do, **fields)

    def _do(self, tool_call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        self.done.append((tool_call_id, params))
        return f"did {params['n']}"


def pause(*ids: str) -> Any:
    """Return a hook that pauses the calls of these ids."""
    return lambda context, signal: BeforeToolCallResult(pause=True) if context.tool_call.id in ids else None


def paused_agent(*ids: str, deeds: Deeds | None = None, replies: Any = ("Done.", "More.")) -> tuple[Any, Deeds]:
    """Return an agent with a call `a` that has run and calls of `ids` that wait."""
    deeds = deeds or Deeds()
    calls = [call("deed", id=one, n=number) for number, one in enumerate(("a", *ids))]
    agent = agent_with(reply("On it.", *calls), *replies, tools=[deeds.tool], before_tool_call=pause(*ids))
    agent.prompt("hi")
    return agent, deeds


def results(agent: Any) -> list[tuple[str, str, bool]]:
    return [(one.tool_call_id, one.text, one.is_error) for one in agent.messages if isinstance(one, ToolResultMessage)]


def test_a_paused_call_is_pending_and_its_siblings_have_run() -> None:
    agent, deeds = paused_agent("b", "c")

    assert deeds.done == [("a", {"n": 0})]
    assert agent.pending_calls == [
        {"type": "tool", "id": "b", "name": "deed", "arguments": {"n": 1}},
        {"type": "tool", "id": "c", "name": "deed", "arguments": {"n": 2}},
    ]
    assert json.loads(json.dumps(agent.pending_calls)) == agent.pending_calls
    state = agent.state
    assert (state.pending_tool_calls, state.is_streaming, state.error_message) == (frozenset(), False, None)
    assert roles(agent) == ["user", "assistant", "toolResult"]


def test_a_listener_of_the_end_sees_what_is_pending() -> None:
    seen: list[Any] = []
    agent = agent_with(reply(call("deed", id="a", n=1)), tools=[Deeds().tool], before_tool_call=pause("a"))
    agent.subscribe(
        lambda event, signal: (
            seen.append((event.reason, [one["id"] for one in agent.pending_calls], agent.state.pending_tool_calls))
            if event.type == "agent_end"
            else None
        )
    )

    message = agent.prompt("hi")

    assert seen == [("paused", ["a"], frozenset())]
    assert [one.id for one in message.tool_calls] == ["a"]


def test_resuming_runs_what_is_allowed_answers_the_rest_and_goes_on() -> None:
    agent, deeds = paused_agent("b", "c", "d", "e")
    events: list[str] = []
    agent.subscribe(lambda event, signal: events.append(event.type))

    message = agent.resume({"b": allow(), "c": deny("not today"), "d": replace({"n": 40})})

    assert message.text == "Done."
    assert deeds.done == [("a", {"n": 0}), ("b", {"n": 1}), ("d", {"n": 40})]
    assert [one[0] for one in results(agent)] == ["a", "b", "c", "d", "e"]
    assert results(agent)[1:4] == [("b", "did 1", False), ("c", "not today", True), ("d", "did 40", False)]
    assert results(agent)[4][2] is True
    assert "nobody decided" in results(agent)[4][1]
    assert roles(agent) == ["user", "assistant", *["toolResult"] * 5, "assistant"]
    assert agent.pending_calls == []
    assert events[:3] == ["agent_start", "turn_start", "tool_execution_start"]
    assert transcript_problems(agent.messages) == []
    # The model sees the results it asked for, and the next prompt works.
    assert len(requests(agent)[1].messages) == 7
    assert agent.prompt("more").text == "More."


def test_a_call_that_is_denied_without_a_reason_has_an_answer() -> None:
    agent, _ = paused_agent("b")

    agent.resume({"b": deny()})

    assert results(agent)[1] == ("b", "The call of `deed` was blocked.", True)


def test_while_calls_wait_prompts_and_continuations_are_refused_and_change_nothing() -> None:
    agent, _ = paused_agent("b")
    agent.steer("and")

    for begin in (lambda: agent.prompt("x"), lambda: agent.stream("x"), agent.continue_):
        with pytest.raises(PendingCallsError, match="resume"):
            begin()

    assert roles(agent) == ["user", "assistant", "toolResult"]
    assert agent.has_queued_messages()
    agent.resume({})
    assert roles(agent) == ["user", "assistant", "toolResult", "toolResult", "user", "assistant"]


def test_reset_gives_up_what_waits() -> None:
    agent, deeds = paused_agent("b")

    agent.reset()

    assert agent.pending_calls == []
    assert agent.prompt("hi").text == "Done."
    assert len(deeds.done) == 1


def test_without_pending_calls_there_is_nothing_to_resume() -> None:
    agent = agent_with("one")
    for _ in range(2):
        with pytest.raises(NothingToContinueError, match="no tool call waits"):
            agent.resume({})
        if not agent.messages:
            agent.prompt("hi")


@pytest.mark.parametrize(
    ("decisions", "error", "text"),
    [
        ({"z": allow()}, ValueError, "'z'"),
        ({"a": allow()}, ValueError, "'a'"),  # it has run
        ({"b": "yes"}, TypeError, "'b'"),
        ({"b": True}, TypeError, "'b'"),
        ({"b": None}, TypeError, "'b'"),
        ({"b": BeforeToolCallResult(pause=True)}, TypeError, "'b'"),
        ([("b", allow())], TypeError, "maps the ids"),
        (None, TypeError, "maps the ids"),
    ],
)
def test_what_is_no_decision_is_refused_and_nothing_runs(decisions: Any, error: Any, text: str) -> None:
    agent, deeds = paused_agent("b")

    with pytest.raises(error, match=text):
        agent.resume(decisions)

    assert len(deeds.done) == 1
    assert [one["id"] for one in agent.pending_calls] == ["b"]
    agent.resume({"b": allow()})
    assert len(deeds.done) == 2


def test_replacing_needs_arguments() -> None:
    with pytest.raises(TypeError, match="dict of arguments"):
        replace(["n"])


def test_replaced_arguments_are_validated_and_not_coerced() -> None:
    agent, deeds = paused_agent("b")

    agent.resume({"b": replace({"n": "5"})})

    assert len(deeds.done) == 1
    assert results(agent)[1][2] is True
    assert "n" in results(agent)[1][1]


def test_a_decided_call_is_validated_again() -> None:
    message = AssistantMessage(
        [ToolCall("a", "deed", {"n": "many"}), ToolCall("b", "gone", {})], stop_reason="tool_use"
    )
    deeds = Deeds()
    agent = agent_with("Done.", tools=[deeds.tool], messages=[UserMessage("hi"), message])

    agent.resume({"a": allow(), "b": allow()})

    assert deeds.done == []
    assert [one[2] for one in results(agent)] == [True, True]
    assert "no tool `gone`" in results(agent)[1][1]


def test_the_hook_is_not_asked_again_about_what_was_decided_but_about_later_calls() -> None:
    asked: list[str] = []

    def hook(context: Any, signal: Any) -> Any:
        asked.append(context.tool_call.id)
        return pause("a", "c")(context, signal)

    deeds = Deeds()
    agent = agent_with(
        reply(call("deed", id="a", n=1)),
        reply(call("deed", id="b", n=2), call("deed", id="c", n=3)),
        "Done.",
        tools=[deeds.tool],
        before_tool_call=hook,
    )
    agent.prompt("hi")
    paused_again = agent.resume({"a": allow()})

    assert asked == ["a", "b", "c"]
    assert [one.id for one in paused_again.tool_calls] == ["b", "c"]
    assert [one["id"] for one in agent.pending_calls] == ["c"]
    agent.resume({"c": allow()})
    assert [one[0] for one in deeds.done] == ["a", "b", "c"]


def test_a_finished_sibling_never_runs_again_wherever_it_stands() -> None:
    deeds = Deeds()
    calls = [call("deed", id=one, n=number) for number, one in enumerate("abc")]
    agent = agent_with(reply(*calls), "Done.", tools=[deeds.tool], before_tool_call=pause("a", "c"))
    agent.prompt("hi")
    assert deeds.done == [("b", {"n": 1})]

    agent.resume({"a": allow(), "c": allow()})

    assert deeds.done == [("b", {"n": 1}), ("a", {"n": 0}), ("c", {"n": 2})]
    assert sorted(one[0] for one in results(agent)) == ["a", "b", "c"]
    assert all(not one[2] for one in results(agent))


def test_an_abort_answers_the_paused_call_and_nothing_waits() -> None:
    agent = agent_with(
        reply(call("deed", id="a", n=1), call("deed", id="b", n=2)), tools=[Deeds().tool], before_tool_call=pause("a")
    )
    agent.subscribe(lambda event, signal: agent.abort() if event.type == "tool_execution_end" else None)

    assert agent.prompt("hi").stop_reason == "aborted"

    assert agent.pending_calls == []
    assert transcript_problems(agent.messages) == []


def test_an_abort_while_resumed_calls_run_answers_them() -> None:
    agent, deeds = paused_agent("b", "c")
    agent.subscribe(lambda event, signal: agent.abort() if event.type == "agent_start" else None)

    agent.resume({"b": allow(), "c": allow()})

    assert len(deeds.done) == 1
    assert agent.pending_calls == []
    assert transcript_problems(agent.messages) == []


def test_resuming_during_a_run_is_refused() -> None:
    refused: list[str] = []

    def resume(*given: Any) -> str:
        assert [one["id"] for one in agent.pending_calls] == ["a"]
        with pytest.raises(AgentBusyError) as caught:
            agent.resume({"a": allow()})
        refused.append(str(caught.value))
        return "tried"

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool(execute=resume)])

    assert agent.prompt("hi").text == "Done."
    assert len(refused) == 1


# --- whose result is whose ------------------------------------------------------------------------------------------


def message_with(*ids: str, stop_reason: str = "tool_use") -> AssistantMessage:
    return AssistantMessage([ToolCall(one, "deed", {"n": at}) for at, one in enumerate(ids)], stop_reason=stop_reason)


def result_for(one: str) -> ToolResultMessage:
    return ToolResultMessage(one, "deed", "did it")


HI = UserMessage("hi")


@pytest.mark.parametrize(
    ("messages", "pending"),
    [
        ([], []),
        ([HI], []),
        ([HI, message_with()], []),
        ([HI, message_with("a", "b")], ["a", "b"]),
        ([HI, message_with("a", "b"), result_for("b")], ["a"]),
        ([HI, message_with("a", "b"), result_for("a"), result_for("b")], []),
        ([HI, message_with("a"), HI], []),
        ([HI, message_with("a", stop_reason="error")], []),
        ([HI, message_with("a", stop_reason="aborted")], []),
        ([HI, message_with("a", stop_reason="stop")], ["a"]),
        ([HI, message_with("a", "a"), result_for("a")], ["a"]),
        ([HI, message_with("a", "a", "b"), result_for("a")], ["a", "b"]),
        ([result_for("a")], []),
    ],
)
def test_pending_calls_are_those_of_the_last_assistant_message_without_a_result(messages: Any, pending: Any) -> None:
    agent = agent_with(messages=messages)

    assert [one["id"] for one in agent.pending_calls] == pending


def test_of_calls_that_share_an_id_the_first_ones_are_answered() -> None:
    agent = agent_with("Done.", messages=[HI, message_with("a", "a"), result_for("a")], tools=[Deeds().tool])
    assert agent.pending_calls == [{"type": "tool", "id": "a", "name": "deed", "arguments": {"n": 1}}]

    agent.resume({"a": allow()})

    assert results(agent)[1] == ("a", "did 1", False)


def test_a_decision_that_could_mean_several_calls_is_refused() -> None:
    deeds = Deeds()
    agent = agent_with("Done.", messages=[HI, message_with("a", "a")], tools=[deeds.tool])

    with pytest.raises(ValueError, match="share the id 'a'"):
        agent.resume({"a": allow()})
    agent.resume({})

    assert deeds.done == []
    assert [one[2] for one in results(agent)] == [True, True]


def test_decisions_are_also_answers_of_a_hook() -> None:
    deeds = Deeds()
    answers = {"a": allow(), "b": deny("no"), "c": replace({"n": 9})}
    agent = agent_with(
        reply(*[call("deed", id=one, n=1) for one in "abc"]),
        "Done.",
        tools=[deeds.tool],
        before_tool_call=lambda context, signal: answers[context.tool_call.id],
    )

    agent.prompt("hi")

    assert sorted(deeds.done) == [("a", {"n": 1}), ("c", {"n": 9})]
    assert [one[1] for one in results(agent)] == ["did 1", "no", "did 9"]


# --- in another process ---------------------------------------------------------------------------------------------

RESUME_ELSEWHERE = """
import json, sys
from agentcore import Agent, AgentTool, allow, deny
from agentcore.messages import message_from_dict
from agentcore.testing import scripted, scripted_model

done = []
deed = AgentTool("deed", "Deed", "Does a deed.", {"type": "object"}, lambda *given: done.append(given[0]) or "did it")
messages = [message_from_dict(data) for data in json.load(sys.stdin)]
agent = Agent(scripted_model(), tools=[deed], messages=messages, stream_fn=scripted("Done."))
agent.resume({one["id"]: allow() if one["arguments"]["n"] == 1 else deny("no") for one in agent.pending_calls})
json.dump({"done": done, "messages": [message.to_dict() for message in agent.messages]}, sys.stdout)
"""


def test_a_paused_run_goes_on_in_another_process_from_messages_that_were_json() -> None:
    deeds = Deeds()
    calls = [call("deed", id=one, n=number) for number, one in enumerate("abc")]
    agent = agent_with(reply(*calls), tools=[deeds.tool], before_tool_call=pause("b", "c"))
    agent.prompt("hi")
    saved = json.dumps([message.to_dict() for message in agent.messages])

    outcome = subprocess.run(
        [sys.executable, "-c", RESUME_ELSEWHERE], input=saved, capture_output=True, text=True, timeout=60
    )

    assert outcome.stderr == ""
    told = json.loads(outcome.stdout)
    assert told["done"] == ["b"]
    messages = [message_from_dict(data) for data in told["messages"]]
    assert messages[: len(agent.messages)] == agent.messages
    assert transcript_problems(messages) == []
    assert messages[-1].text == "Done."


def test_pausing_leaves_every_call_to_somebody_else() -> None:
    deeds = Deeds()
    agent = agent_with(
        reply(call("deed", id="a", n=1), call("deed", id="b", n=2)),
        "Done.",
        tools=[deeds.tool],
        before_tool_call=pause_for_approval,
    )

    agent.prompt("hi")
    assert deeds.done == []
    agent.resume({one["id"]: allow() for one in agent.pending_calls})

    assert sorted(deeds.done) == [("a", {"n": 1}), ("b", {"n": 2})]
