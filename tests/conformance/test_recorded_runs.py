"""Recorded runs of the implementation that this design comes from: the same scripts give the same events here.

`scenarios.json` says what the model, the tools, the hooks and the queues do in each run, `recorded/` which events came
out there, in order, with a row where the model was asked, a hook was called, a tool was executed, and the run returned.

Not compared are the wording of error results and the order in which calls of one parallel batch begin to execute. A
sleep of a tool is a gate here: the calls of a batch end in the order of their sleeps. Why a run ended is not in the
recordings; here `AgentEnd` says it, so the reasons that the rules ask for are listed below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AfterToolCallResult,
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    BeforeToolCallResult,
    Model,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    run_agent_loop,
    run_agent_loop_continue,
)
from agentcore.errors import NothingToContinueError
from agentcore.messages import ErrorInfo, TextContent, ThinkingContent
from agentcore.testing import Gate, ScriptedReply, reply, scripted, thinking

HERE = Path(__file__).parent
SCENARIOS: list[dict[str, Any]] = json.loads((HERE / "scenarios.json").read_text("utf-8"))
BY_NAME = {scenario["name"]: scenario for scenario in SCENARIOS}

REASONS = {
    "error_on_second_turn": "error",
    "provider_error": "error",
    "provider_error_no_start": "error",
    "stop_after_first_turn": "stopped",
    "terminate_all": "terminated",
    "terminate_via_after": "terminated",
}
"""Why the runs ended; all others are `completed`."""

Row = list[Any]


def recorded(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((HERE / "recorded" / f"{name}.json").read_text("utf-8"))
    return data


def test_every_scenario_has_a_recording():
    assert len(SCENARIOS) == 33
    assert sorted(BY_NAME) == sorted(path.stem for path in (HERE / "recorded").glob("*.json"))


@pytest.mark.parametrize("name", BY_NAME)
def test_the_run_gives_the_recorded_events(name: str):
    scenario, expected = BY_NAME[name], recorded(name)
    replay = Replay(scenario)
    replay.run()
    assert list(comparable(replay.rows, scenario)) == list(comparable(expected["log"], scenario))
    assert (replay.refusal is None) == (expected["error"] is None)


@pytest.mark.parametrize("name", [name for name in BY_NAME if recorded(name)["error"] is None])
def test_the_end_says_why_it_came_and_holds_what_is_returned(name: str):
    replay = Replay(BY_NAME[name])
    replay.run()
    assert replay.ends == [(tuple(replay.returned), REASONS.get(name, "completed"))]


def comparable(rows: list[Row], scenario: dict[str, Any]) -> Iterator[Row]:
    """Leave out what is not compared."""
    given = {"ok", "patched", *(str(call.get("error")) for call in tool_calls_of(scenario))}
    executes: list[Row] = []
    for row in rows:
        if row[0] == "execute":
            executes.append(row)
            continue
        yield from sorted(executes)
        executes.clear()
        if row[-2:-1] == [True] and str(row[-1]).partition(":")[0] not in given:
            row = [*row[:-1], "(says what went wrong)"]
        yield row
    assert not executes


def tool_calls_of(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for tool in scenario.get("tools", ()):
        yield from tool.get("calls", {}).values()


class Replay:
    """Runs one scenario and notes what happens in the rows of the recordings."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.rows: list[Row] = []
        self.ends: list[tuple[Any, str]] = []
        self.returned: list[Any] = []
        self.refusal: NothingToContinueError | None = None
        self.sequential = scenario.get("tool_execution") == "sequential"
        self.gates = {call["id"]: Gate() for call in all_calls(scenario)}
        self.arrived: set[str] = set()
        self.order: list[str] = []

    def run(self) -> None:
        scenario = self.scenario
        context = AgentContext(
            messages=[history_message(item) for item in scenario.get("history", ())],
            tools=[self.tool(tool) for tool in scenario.get("tools", ())],
        )
        model = scripted(*[self.reply(item) for item in scenario["replies"]])
        try:
            if scenario.get("continue"):
                self.returned = run_agent_loop_continue(context, self.config(), self.emit, stream_fn=model)
            else:
                prompts = [UserMessage(text) for text in scenario.get("prompts", ["hi"])]
                self.returned = run_agent_loop(prompts, context, self.config(), self.emit, stream_fn=model)
        except NothingToContinueError as refusal:
            self.refusal = refusal
            self.rows.append(["raised"])
            return
        self.rows.append(["return", [message.role for message in self.returned]])

    # --- what is scripted -------------------------------------------------------------------------------------------

    def reply(self, item: dict[str, Any]) -> Callable[[Any], ScriptedReply]:
        parts: list[Any] = []
        deltas: dict[int, list[str]] = {}
        for index, block in enumerate(item["blocks"]):
            if "call" in block:
                asked = block["call"]
                parts.append(ToolCall(asked["id"], asked["name"], asked["args"]))
                deltas[index] = asked.get("deltas") or [json.dumps(asked["args"], separators=(",", ":"))]
            else:
                ((kind, texts),) = block.items()
                parts.append(thinking("".join(texts)) if kind == "thinking" else "".join(texts))
                deltas[index] = texts
        error = ErrorInfo("overloaded", item["error"]) if "error" in item else None
        start = not item.get("no_start", False)
        answer = reply(*parts, deltas=deltas, stop_reason=item.get("stop"), error=error, start=start)

        def asked_for(request: Any) -> ScriptedReply:
            reasoning = request.options.reasoning
            level = None if reasoning is None else str(reasoning)
            self.rows.append(["llm_call", request.model.id, level, [message.role for message in request.messages]])
            self.expect([part for part in parts if isinstance(part, ToolCall)])
            return answer

        return asked_for

    def tool(self, item: dict[str, Any]) -> AgentTool:
        calls = item.get("calls", {})
        rename = item.get("rename")

        def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> AgentToolResult:
            self.rows.append(["execute", call_id, params])
            if not self.sequential:
                self.wait_for_turn(call_id, signal)
            does = calls.get(call_id, {})
            if "error" in does:
                raise RuntimeError(does["error"])
            return AgentToolResult(does.get("result", f"ok:{call_id}"), terminate=does.get("terminate"))

        def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
            return {rename.get(key, key): value for key, value in arguments.items()}

        return AgentTool(
            item["name"],
            item["name"],
            "A tool.",
            item.get("schema", {"type": "object"}),
            execute,
            renamed if rename else None,
            item.get("mode"),
        )

    def config(self) -> AgentLoopConfig:
        scenario = self.scenario
        hooks: dict[str, Any] = {}
        if "before" in scenario:
            hooks["before_tool_call"] = self.before
        if "after" in scenario:
            hooks["after_tool_call"] = self.after
        if "prepare" in scenario:
            hooks["prepare_next_turn"] = by_number(
                scenario["prepare"],
                lambda update: AgentLoopTurnUpdate(
                    model=Model(update["model"]) if "model" in update else None,
                    thinking_level=update.get("thinking_level"),
                ),
            )
        if "stop_after_turn" in scenario:
            hooks["should_stop_after_turn"] = by_number({str(scenario["stop_after_turn"]): True}, bool)
        if "steering" in scenario:
            hooks["get_steering_messages"] = by_number(scenario["steering"], user_messages)
        if "follow_up" in scenario:
            hooks["get_follow_up_messages"] = by_number(scenario["follow_up"], user_messages)
        mode = scenario.get("tool_execution", "parallel")
        return AgentLoopConfig(model=Model("m1"), tool_execution=mode, reasoning=scenario.get("reasoning"), **hooks)

    def before(self, context: Any, signal: Any) -> BeforeToolCallResult | None:
        self.rows.append(["before", context.tool_call.id, context.args])
        does = self.scenario["before"].get(context.tool_call.id)
        if does is None:
            return None
        if "raise" in does:
            raise RuntimeError(does["raise"])
        return BeforeToolCallResult(**does)

    def after(self, context: Any, signal: Any) -> AfterToolCallResult | None:
        does = self.scenario["after"].get(context.tool_call.id)
        if does is None:
            return None
        if "raise" in does:
            raise RuntimeError(does["raise"])
        return AfterToolCallResult(
            content=does.get("text"), is_error=does.get("is_error"), terminate=does.get("terminate")
        )

    # --- gates in place of sleeps -----------------------------------------------------------------------------------

    def expect(self, calls: list[ToolCall]) -> None:
        """Take up a batch: its calls end in the order of their sleeps."""
        sleeps = {call.id: self.does(call).get("sleep_ms", 0) for call in calls}
        self.arrived.clear()
        self.order = sorted(sleeps, key=lambda call_id: sleeps[call_id])

    def does(self, call: ToolCall) -> dict[str, Any]:
        tools = {tool["name"]: tool for tool in self.scenario.get("tools", ())}
        does: dict[str, Any] = tools.get(call.name, {}).get("calls", {}).get(call.id, {})
        return does

    def wait_for_turn(self, call_id: str, signal: Any) -> None:
        self.arrived.add(call_id)
        if len(self.arrived) == len(self.order):
            self.gates[self.order[0]].open()
        self.gates[call_id].hold(signal)

    def call_ended(self, call_id: str) -> None:
        following = self.order[self.order.index(call_id) + 1 :]
        if following:
            self.gates[following[0]].open()

    # --- what is noted ----------------------------------------------------------------------------------------------

    def emit(self, event: Any) -> None:
        self.rows.append([event.type, *self.row(event)])

    def row(self, event: Any) -> Row:
        match event.type:
            case "agent_end":
                self.ends.append((event.messages, event.reason))
                return [[message.role for message in event.messages]]
            case "message_start" if event.message.role == "assistant":
                return ["assistant"]
            case "message_start" | "message_end":
                return shown_message(event.message)
            case "message_update":
                inner = event.assistant_message_event
                assert inner.partial == event.message
                return [inner.type, getattr(inner, "delta", None), shown(event.message.content)]
            case "tool_execution_start":
                return [event.tool_call_id, event.tool_name, event.args]
            case "tool_execution_end":
                self.call_ended(event.tool_call_id)
                return [event.tool_call_id, event.is_error, shown(event.result.content)]
            case "turn_end":
                return [shown_message(event.message), [result.tool_call_id for result in event.tool_results]]
        return []


def all_calls(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in scenario["replies"]:
        for block in item["blocks"]:
            if "call" in block:
                yield block["call"]


def by_number(table: dict[str, Any], make: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a hook that gives what the table holds for the number of the call, counted from 0."""
    numbers = iter(range(10**6))

    def hook(*args: Any) -> Any:
        found = table.get(str(next(numbers)))
        return None if found is None else make(found)

    return hook


def user_messages(texts: list[str]) -> list[UserMessage]:
    return [UserMessage(text) for text in texts]


def history_message(item: dict[str, Any]) -> Any:
    if "user" in item:
        return UserMessage(item["user"])
    return AssistantMessage("".join(text for block in item["blocks"] for text in block["text"]))


def shown(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "|".join(shown_block(block) for block in content)


def shown_block(block: Any) -> str:
    match block:
        case TextContent():
            return block.text
        case ThinkingContent():
            return block.thinking
        case ToolCall():
            return f"<{block.name}:{block.id}>"
    raise AssertionError(f"no scenario has a block like {block!r}")


def shown_message(message: Any) -> Row:
    match message:
        case AssistantMessage():
            return ["assistant", message.stop_reason, shown(message.content)]
        case ToolResultMessage():
            return ["toolResult", message.tool_call_id, message.is_error, shown(message.content)]
    return [message.role, shown(message.content)]


# --- where the rules ask for more than the recordings ---------------------------------------------------------------


def test_a_continuation_that_is_refused_says_so_before_any_event():
    """The recordings only show that it raises; the rule names the error and wants it at the call."""
    for name in ("continue_empty", "continue_from_assistant"):
        replay = Replay(BY_NAME[name])
        replay.run()
        assert isinstance(replay.refusal, ValueError)
        assert replay.rows == [["raised"]]


def test_calls_that_the_output_limit_cut_off_are_answered_one_after_the_other_in_sequential_mode_too():
    """The recording is of the parallel mode; the rule is that both modes look the same."""
    scenario = BY_NAME["length_truncated_calls"]
    replay = Replay({**scenario, "tool_execution": "sequential"})
    replay.run()
    assert list(comparable(replay.rows, scenario)) == list(comparable(recorded(scenario["name"])["log"], scenario))


def test_an_aborted_tail_is_passed_over_by_a_continuation():
    """The recordings refuse any assistant message at the end; the rule passes over those that failed or were aborted."""
    scenario = BY_NAME["continue_from_user"]
    replay = Replay(scenario)
    context = AgentContext(messages=[UserMessage("q"), AssistantMessage("half", stop_reason="aborted")])
    model = scripted(*[replay.reply(item) for item in scenario["replies"]])
    messages = run_agent_loop_continue(context, replay.config(), replay.emit, stream_fn=model)
    assert [message.role for message in messages] == ["assistant"]
    assert replay.rows[2] == ["llm_call", "m1", None, ["user", "assistant"]]
