"""The hooks around a tool call, which fail closed, and what the other hooks do to a run when they fail."""

import logging
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.config import AfterToolCallResult, AgentContext, AgentLoopTurnUpdate, BeforeToolCallResult
from agentcore.content import ImageContent, TextContent
from agentcore.errors import AbortRequested
from agentcore.events import AgentEndEvent, ToolExecutionEndEvent, ToolExecutionUpdateEvent
from agentcore.messages import Usage, UserMessage
from agentcore.testing import Gate, call, failure, reply
from agentcore.tools import AgentToolResult
from tests.loop.loop_support import Played, answer, play, returns, tool

MODES = pytest.mark.parametrize("mode", ["parallel", "sequential"])
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


class Ran:
    """A tool that notes with which arguments it ran."""

    def __init__(self) -> None:
        self.params: list[Any] = []

    def __call__(self, call_id: str, params: Any, *rest: Any) -> str:
        self.params.append(params)
        return "ran"


def guarded(hook: Any, *, asked: Any = None, mode: str = "parallel", **config: Any) -> tuple[Played, Ran]:
    """Run one call that a hook is asked about."""
    ran = Ran()
    played = answer(
        reply(asked or call("add", id="c1", n=1)),
        "Done.",
        tools=[tool("add", ran, NUMBER)],
        tool_execution=mode,
        before_tool_call=hook,
        **config,
    )
    return played, ran


# --- before a call --------------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("verdict", [None, BeforeToolCallResult(), BeforeToolCallResult(reason="fine", terminate=True)])
def test_only_nothing_or_a_result_that_does_not_block_lets_a_call_run(mode: str, verdict: Any):
    played, ran = guarded(lambda context, signal: verdict, mode=mode)
    assert ran.params == [{"n": 1}]
    assert played.reason == "completed"


@MODES
def test_a_block_is_answered_with_its_reason(mode: str):
    played, ran = guarded(lambda context, signal: BeforeToolCallResult(block=True, reason="Not on Sundays."), mode=mode)
    assert ran.params == []
    assert (played.results[0].is_error, played.results[0].text) == (True, "Not on Sundays.")


@pytest.mark.parametrize("reason", [None, ""])
def test_a_block_without_a_reason_gets_one(reason: str | None):
    played, _ = guarded(lambda context, signal: BeforeToolCallResult(block=True, reason=reason))
    assert played.results[0].text == "The call of `add` was blocked."


@pytest.mark.parametrize(("terminate", "end"), [(True, "terminated"), (None, "completed"), (False, "completed")])
def test_a_block_can_end_the_run(terminate: bool | None, end: str):
    played, _ = guarded(lambda context, signal: BeforeToolCallResult(block=True, terminate=terminate))
    assert played.reason == end


@pytest.mark.parametrize(
    "also", [{"pause": True}, {"args": {"n": 2}}, {"args": {"n": "x"}}, {"pause": True, "args": {"n": 2}}]
)
def test_a_block_wins_over_everything_else(also: dict[str, Any]):
    played, ran = guarded(lambda context, signal: BeforeToolCallResult(block=True, **also))
    assert ran.params == []
    assert played.results[0].text == "The call of `add` was blocked."


def test_a_pause_wins_over_replaced_arguments():
    played, ran = guarded(lambda context, signal: BeforeToolCallResult(pause=True, args={"n": 2}))
    assert ran.params == []
    assert played.reason == "paused"


@MODES
def test_replaced_arguments_are_what_runs_and_what_the_next_hook_sees(mode: str):
    seen: list[Any] = []
    replaced = {"n": 2}
    played, ran = guarded(
        lambda context, signal: BeforeToolCallResult(args=replaced),
        mode=mode,
        after_tool_call=lambda context, signal: seen.append((context.args, context.tool_call.arguments)),
    )
    assert ran.params == [{"n": 2}]
    assert ran.params[0] is not replaced
    assert seen == [({"n": 2}, {"n": 1})]
    assert played.messages[1].tool_calls[0].arguments == {"n": 1}


def test_replaced_arguments_may_be_changed_later_without_harm():
    replaced = {"n": 2}
    gate = Gate()
    params: list[Any] = []

    def execute(call_id: str, given: Any, signal: Any, on_update: Any, context: Any) -> str:
        gate.hold()
        params.append(given)
        return "ran"

    def before(context: Any, signal: Any) -> BeforeToolCallResult:
        return BeforeToolCallResult(args=replaced)

    def after_preparing(context: Any, signal: Any) -> None:
        replaced["n"] = 99
        gate.open()

    def both(context: Any, signal: Any) -> Any:
        if context.tool_call.id == "c1":
            return before(context, signal)
        return after_preparing(context, signal)

    answer(
        reply(call("add", id="c1", n=1), call("add", id="c2", n=1)),
        "Done.",
        tools=[tool("add", execute, NUMBER)],
        before_tool_call=both,
    )
    assert sorted(one["n"] for one in params) == [1, 2]


@MODES
def test_replaced_arguments_may_hold_one_value_in_several_places(mode: str):
    one: dict[str, Any] = {"list": [1, {"deep": True}]}
    seen: list[Any] = []
    answer(
        reply(call("f", id="c1")),
        "Done.",
        tools=[tool("f", lambda *given: seen.append(given[1]))],
        tool_execution=mode,
        before_tool_call=lambda context, signal: BeforeToolCallResult(args={"a": one, "b": [one, one["list"]]}),
    )
    assert seen == [{"a": one, "b": [one, one["list"]]}]
    assert seen[0]["a"] is not one


@pytest.mark.parametrize("args", [{"n": "2"}, {}, {"n": 1, "more": 2}, ["n"], "n", {"n": float("nan")}])
def test_replaced_arguments_are_validated_and_not_coerced(args: Any):
    played, ran = guarded(lambda context, signal: BeforeToolCallResult(args=args))
    assert ran.params == []
    assert played.results[0].is_error
    assert "arguments" in played.results[0].text


def test_empty_replaced_arguments_are_a_replacement():
    ran = Ran()
    answer(
        reply(call("f", x=1)),
        "Done.",
        tools=[tool("f", ran)],
        before_tool_call=lambda context, signal: BeforeToolCallResult(args={}),
    )
    assert ran.params == [{}]


async def decides_later(context: Any, signal: Any) -> None:
    return None


@MODES
@pytest.mark.parametrize("verdict", [True, False, 0, "no", "yes", {"block": False}, AfterToolCallResult(), object()])
def test_any_other_return_value_blocks(mode: str, verdict: Any, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        played, ran = guarded(lambda context, signal: verdict, mode=mode)
    assert ran.params == []
    assert f"`before_tool_call` returned {type(verdict).__name__}" in played.results[0].text
    assert [record.getMessage() for record in caplog.records] == [
        "`before_tool_call` failed for tool call c1: TypeError"
    ]


def test_a_coroutine_function_as_the_hook_blocks_with_a_hint_and_is_closed():
    # The coroutine would warn that it was never awaited, and warnings are errors here.
    played, ran = guarded(decides_later)
    assert ran.params == []
    assert "it must be a plain function" in played.results[0].text


@MODES
@pytest.mark.parametrize("error", [ValueError("secret"), KeyError("secret"), RecursionError("secret")])
def test_a_hook_that_raises_blocks_and_is_logged_without_what_it_said(
    mode: str, error: Exception, caplog: pytest.LogCaptureFixture
):
    def hook(context: Any, signal: Any) -> Any:
        raise error

    with caplog.at_level(logging.INFO):
        played, ran = guarded(hook, mode=mode)
    assert ran.params == []
    assert "was not run: the check before it failed" in played.results[0].text
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"`before_tool_call` failed for tool call c1: {type(error).__name__}")
    ]
    assert "secret" not in caplog.text
    assert played.reason == "completed"


def test_a_hook_that_recurses_without_end_blocks():
    def hook(context: Any, signal: Any) -> Any:
        return hook(context, signal)

    played, ran = guarded(hook)
    assert ran.params == []
    assert played.results[0].is_error


@MODES
def test_an_abort_request_out_of_the_hook_is_the_abort(mode: str):
    def hook(context: Any, signal: Any) -> Any:
        raise AbortRequested("enough")

    ran = Ran()
    played = answer(
        reply(call("add", id="c1", n=1), call("add", id="c2", n=2)),
        tools=[tool("add", ran, NUMBER)],
        tool_execution=mode,
        before_tool_call=hook,
    )
    assert ran.params == []
    assert [result.text for result in played.results] == ["The call of `add` was aborted: enough."] * 2
    assert played.reason == "aborted"


@MODES
def test_an_abort_inside_the_hook_keeps_the_call_from_running_and_asks_about_no_other(mode: str):
    controller = AbortController()
    asked: list[str] = []

    def hook(context: Any, signal: Any) -> None:
        asked.append(context.tool_call.id)
        controller.abort()
        assert signal.aborted

    ran = Ran()
    played = answer(
        reply(call("add", id="c1", n=1), call("add", id="c2", n=2)),
        tools=[tool("add", ran, NUMBER)],
        tool_execution=mode,
        before_tool_call=hook,
        signal=controller.signal,
    )
    assert asked == ["c1"]
    assert ran.params == []
    assert [result.text for result in played.results] == ["The call of `add` was aborted."] * 2
    assert played.reason == "aborted"


def test_the_hook_sees_the_message_the_call_the_arguments_and_the_context():
    seen: list[Any] = []

    def hook(context: Any, signal: Any) -> None:
        seen.append(context)

    played, _ = guarded(hook, asked=call("add", id="c1", n="7"), history=[UserMessage("before")])
    (context,) = seen
    assert context.assistant_message == played.messages[1]
    assert context.tool_call == played.messages[1].tool_calls[0]
    assert context.tool_call.arguments == {"n": "7"}
    assert context.args == {"n": 7}
    assert [message.role for message in context.context.messages] == ["user", "user", "assistant"]
    assert context.context.system_prompt == "Be brief."


def test_the_hook_is_not_asked_about_calls_that_cannot_run():
    asked: list[str] = []
    answer(
        reply(call("nothing"), call("add", n="x"), call("add", id="good", n=1)),
        "Done.",
        tools=[tool("add", schema=NUMBER)],
        before_tool_call=lambda context, signal: asked.append(context.tool_call.id),
    )
    assert asked == ["good"]


def test_in_a_sequential_batch_the_hook_of_a_later_call_sees_the_earlier_results():
    seen: list[list[str]] = []
    answer(
        reply(call("add", n=1), call("add", n=2)),
        "Done.",
        tools=[tool("add", schema=NUMBER)],
        tool_execution="sequential",
        before_tool_call=lambda context, signal: seen.append([message.role for message in context.context.messages]),
    )
    assert seen == [["user", "assistant"], ["user", "assistant", "toolResult"]]


# --- after a call ---------------------------------------------------------------------------------------------------


def patched(hook: Any, value: Any = None, *, mode: str = "parallel", **config: Any) -> tuple[Played, Any]:
    """Run one call whose result a hook may change; return its end event too."""
    value = value if value is not None else AgentToolResult("raw", details={"a": 1}, usage=Usage(1))
    played = answer(
        reply(call("f", id="c1", x=1)),
        "Done.",
        tools=[tool("f", returns(value))],
        tool_execution=mode,
        after_tool_call=hook,
        **config,
    )
    (end,) = played.of(ToolExecutionEndEvent)
    result = played.results[0]
    assert (end.result.content, end.result.details, end.result.usage) == (result.content, result.details, result.usage)
    assert end.is_error == end.result.is_error == result.is_error
    return played, end.result


@MODES
@pytest.mark.parametrize("patch", [None, AfterToolCallResult()])
def test_a_hook_that_changes_nothing_leaves_the_result_as_it_was(mode: str, patch: Any):
    _, result = patched(lambda context, signal: patch, mode=mode)
    assert result == AgentToolResult("raw", details={"a": 1}, usage=Usage(1))


@MODES
@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"content": "new"}, AgentToolResult("new", details={"a": 1}, usage=Usage(1))),
        (
            {"content": [TextContent("a"), ImageContent("AAAA", "image/png")]},
            AgentToolResult([TextContent("a"), ImageContent("AAAA", "image/png")], details={"a": 1}, usage=Usage(1)),
        ),
        ({"details": {"b": 2}}, AgentToolResult("raw", details={"b": 2}, usage=Usage(1))),
        ({"details": {}}, AgentToolResult("raw", details={}, usage=Usage(1))),
        ({"usage": Usage(9)}, AgentToolResult("raw", details={"a": 1}, usage=Usage(9))),
        ({"is_error": True}, AgentToolResult("raw", details={"a": 1}, usage=Usage(1), is_error=True)),
        (
            {"content": "new", "details": 7, "usage": Usage(2), "is_error": True},
            AgentToolResult("new", details=7, usage=Usage(2), is_error=True),
        ),
    ],
)
def test_each_field_that_is_given_replaces_that_field(mode: str, patch: dict[str, Any], expected: AgentToolResult):
    _, result = patched(lambda context, signal: AfterToolCallResult(**patch), mode=mode)
    assert result == expected


def test_a_hook_can_end_the_run_and_keep_it_from_ending():
    played, _ = patched(lambda context, signal: AfterToolCallResult(terminate=True))
    assert played.reason == "terminated"
    value = AgentToolResult("over", terminate=True)
    played, _ = patched(lambda context, signal: AfterToolCallResult(terminate=False), value)
    assert played.reason == "completed"


def test_a_hook_can_make_an_error_good():
    _, result = patched(lambda context, signal: AfterToolCallResult(content="fine", is_error=False), ValueError("boom"))
    assert result == AgentToolResult("fine")


def test_names_of_added_tools_are_carried_and_not_patched():
    value = AgentToolResult("raw", added_tool_names=["more"])
    played, _ = patched(lambda context, signal: AfterToolCallResult(content="new"), value)
    assert played.results[0].added_tool_names == ("more",)


def test_the_hook_sees_the_result_and_whether_it_is_an_error():
    seen: list[Any] = []
    patched(lambda context, signal: seen.append(context), ValueError("boom"))
    (context,) = seen
    assert (context.result.content, context.is_error) == ((TextContent("boom"),), True)
    assert context.args == {"x": 1}
    assert context.tool_call.id == "c1"
    assert [message.role for message in context.context.messages] == ["user", "assistant"]


async def patches_later(context: Any, signal: Any) -> None:
    return None


def raises(error: BaseException) -> Any:
    def hook(context: Any, signal: Any) -> Any:
        raise error

    return hook


@MODES
@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (raises(ValueError("after broke")), "`f` has run, but the check after it failed: after broke"),
        (lambda context, signal: "text", "`after_tool_call` returned str"),
        (lambda context, signal: AgentToolResult("x"), "`after_tool_call` returned AgentToolResult"),
        (lambda context, signal: True, "`after_tool_call` returned bool"),
        (patches_later, "it must be a plain function"),
    ],
    ids=["raises", "text", "result", "true", "coroutine"],
)
def test_a_hook_that_fails_makes_the_result_an_error(mode: str, hook: Any, text: str):
    played, result = patched(hook, mode=mode)
    assert result.is_error
    assert text in played.results[0].text
    assert result.details is None
    assert played.reason == "completed"


def test_a_failing_hook_discards_no_sibling():
    def hook(context: Any, signal: Any) -> None:
        if context.tool_call.id == "c2":
            raise ValueError("boom")

    played = answer(
        reply(*[call("f", id=f"c{number}", n=number) for number in (1, 2, 3)]),
        "Done.",
        tools=[tool("f")],
        after_tool_call=hook,
    )
    assert [(result.tool_call_id, result.is_error) for result in played.results] == [
        ("c1", False),
        ("c2", True),
        ("c3", False),
    ]
    assert played.results[0].text == "ran 1"


@MODES
def test_an_abort_request_out_of_the_hook_after_a_call_is_the_abort(mode: str):
    played = answer(
        reply(call("f", id="c1")),
        tools=[tool("f")],
        tool_execution=mode,
        after_tool_call=raises(AbortRequested("enough")),
    )
    assert played.results[0].text == "The call of `f` was aborted: enough."
    assert played.results[0].is_error
    assert [event.is_error for event in played.of(ToolExecutionEndEvent)] == [True]
    assert played.reason == "aborted"


@MODES
def test_the_hook_is_asked_for_executed_calls_only(mode: str):
    asked: list[str] = []
    answer(
        reply(
            call("nothing", id="unknown"),
            call("add", id="invalid", n="x"),
            call("f", id="blocked"),
            call("f", id="good"),
            call("bad", id="raised"),
        ),
        "Done.",
        tools=[tool("add", schema=NUMBER), tool("f"), tool("bad", returns(ValueError("boom")))],
        tool_execution=mode,
        before_tool_call=lambda context, signal: (
            BeforeToolCallResult(block=True) if context.tool_call.id == "blocked" else None
        ),
        after_tool_call=lambda context, signal: asked.append(context.tool_call.id),
    )
    assert sorted(asked) == ["good", "raised"]


def test_calls_that_were_aborted_before_they_began_are_not_shown_to_the_hook():
    controller = AbortController()
    asked: list[str] = []

    def execute(call_id: str, *rest: Any) -> str:
        controller.abort()
        return "ran"

    played = answer(
        reply(call("f", id="c1"), call("f", id="c2")),
        tools=[tool("f", execute)],
        tool_execution="sequential",
        signal=controller.signal,
        after_tool_call=lambda context, signal: asked.append(context.tool_call.id),
    )
    assert asked == ["c1"]
    assert [result.is_error for result in played.results] == [False, True]


# --- hooks of the run that fail -------------------------------------------------------------------------------------


class Broken(Exception):
    """What the hooks of these tests raise."""


def breaks(*args: Any) -> Any:
    raise Broken


RUN_HOOKS = {
    "transform_context": ["agent_start", "turn_start", "start user: hi", "end user: hi"],
    "convert_to_llm": ["agent_start", "turn_start", "start user: hi", "end user: hi"],
    "get_api_key": ["agent_start", "turn_start", "start user: hi", "end user: hi"],
    "get_steering_messages": ["agent_start", "turn_start", "start user: hi", "end user: hi"],
    "prepare_next_turn": [
        "agent_start", "turn_start", "start user: hi", "end user: hi",
        "start assistant", "end assistant stop: Done.", "turn_end",
    ],
    "should_stop_after_turn": [
        "agent_start", "turn_start", "start user: hi", "end user: hi",
        "start assistant", "end assistant stop: Done.", "turn_end",
    ],
    "get_follow_up_messages": [
        "agent_start", "turn_start", "start user: hi", "end user: hi",
        "start assistant", "end assistant stop: Done.", "turn_end",
    ],
}  # fmt: skip


@pytest.mark.parametrize("hook", RUN_HOOKS)
def test_what_a_hook_of_the_run_raises_ends_the_run_and_is_raised_again(hook: str):
    played = play("Done.", **{hook: breaks})
    assert type(played.failure) is Broken
    assert played.lines == [*RUN_HOOKS[hook], "agent_end error"]
    assert played.of(AgentEndEvent)[0].messages == tuple(played.messages)


def test_what_the_recovery_raises_ends_the_run_after_the_turn_was_closed():
    played = play(failure("busy"), recover_from_error=breaks)
    assert type(played.failure) is Broken
    assert played.lines[4:] == ["start assistant", "end assistant error", "turn_end", "agent_end error"]


@pytest.mark.parametrize(
    ("hook", "value", "named"),
    [
        ("get_steering_messages", 7, "`get_steering_messages`"),
        ("get_steering_messages", [{"role": "user"}], "`get_steering_messages`"),
        ("get_follow_up_messages", {"role": "user"}, "`get_follow_up_messages`"),
        ("prepare_next_turn", AgentContext(), "`prepare_next_turn`"),
        ("prepare_next_turn", True, "`prepare_next_turn`"),
    ],
)
def test_a_hook_of_the_run_that_returns_something_else_fails_by_name(hook: str, value: Any, named: str):
    played = play("Done.", **{hook: lambda *args: value})
    assert isinstance(played.failure, TypeError)
    assert named in str(played.failure)
    assert played.reason == "error"


@MODES
def test_a_context_with_two_tools_of_one_name_is_that_hooks_failure(mode: str):
    played = play(
        reply(call("f", id="c1")),
        "never",
        tools=[tool("f")],
        tool_execution=mode,
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(
            context=AgentContext("", context.context.messages, [tool("run"), tool("run")])
        ),
    )
    assert isinstance(played.failure, ValueError)
    assert "'run'" in str(played.failure)
    assert [message.role for message in played.messages] == ["user", "assistant", "toolResult"]
    assert played.reason == "error"


def test_a_context_whose_tool_has_a_reference_out_of_its_schema_is_that_hooks_failure():
    away = tool("away", schema={"$ref": "http://127.0.0.1:9/schema.json"})
    played = play(
        "Done.",
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(context=AgentContext(tools=[away])),
    )
    assert isinstance(played.failure, ValueError)
    assert "'away'" in str(played.failure)
    assert played.lines[-2:] == ["turn_end", "agent_end error"]


@pytest.mark.parametrize("hook", ["prepare_next_turn", "should_stop_after_turn"])
def test_an_abort_inside_a_hook_between_turns_asks_nobody_and_nothing_more(hook: str):
    controller = AbortController()
    asked: list[str] = []

    def noting(name: str) -> Any:
        def asks(*args: Any) -> None:
            asked.append(name)
            if name == hook:
                controller.abort("enough")

        return asks

    names = ["prepare_next_turn", "should_stop_after_turn", "get_steering_messages", "get_follow_up_messages"]
    played = answer(
        reply(call("f", id="c1")),
        "never",
        tools=[tool("f")],
        signal=controller.signal,
        **{name: noting(name) for name in names},
    )
    assert asked[0] == "get_steering_messages"
    assert asked[1:] == names[: names.index(hook) + 1]
    assert played.lines[-6:] == [
        "turn_end c1",
        "turn_start",
        "start assistant",
        "end assistant aborted",
        "turn_end",
        "agent_end aborted",
    ]


@pytest.mark.parametrize("hook", ["prepare_next_turn", "should_stop_after_turn"])
def test_an_abort_inside_a_hook_after_the_last_turn_leaves_a_run_that_is_complete(hook: str):
    controller = AbortController()
    polled: list[str] = []
    played = answer(
        "Done.",
        signal=controller.signal,
        get_follow_up_messages=lambda: polled.append("follow_up"),
        **{hook: lambda *args: controller.abort()},
    )
    assert played.lines[-3:] == ["end assistant stop: Done.", "turn_end", "agent_end completed"]
    assert polled == []


def test_an_abort_request_out_of_a_hook_of_the_run_is_the_abort():
    def hook(context: Any, signal: Any) -> Any:
        raise AbortRequested("enough")

    played = answer(reply(call("f", id="c1")), tools=[tool("f")], prepare_next_turn=hook)
    assert played.lines[-6:] == [
        "turn_end c1",
        "turn_start",
        "start assistant",
        "end assistant aborted",
        "turn_end",
        "agent_end aborted",
    ]
    assert played.messages[-1].error_message == "enough"


def test_system_exit_out_of_a_hook_stops_the_run_and_is_raised_again():
    played = play(reply(call("f", id="c1")), tools=[tool("f")], before_tool_call=raises(SystemExit(3)))
    assert isinstance(played.failure, SystemExit)
    assert [result.is_error for result in played.results] == [True]
    assert played.reason == "aborted"


# --- listeners that fail --------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("at", range(34))
def test_a_listener_that_raises_ends_the_run_with_a_whole_transcript(mode: str, at: int):
    count = 0

    def emit(event: Any) -> None:
        nonlocal count
        count += 1
        if count == at + 1:
            raise Broken

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        on_update("half")
        return "ok"

    played = play(
        reply("On it.", call("f", id="c1"), call("f", id="c2")),
        "Done.",
        tools=[tool("f", execute)],
        tool_execution=mode,
        emit=emit,
    )
    assert type(played.failure) is Broken
    assert len(played.events) == at + 1  # nothing is sent to a listener that has failed
    assert (played.events[-1].type == "agent_end") == (at == 33)
    roles = [message.role for message in played.messages]
    assert roles in (
        [],
        ["user"],
        ["user", "assistant"],
        ["user", "assistant", "toolResult", "toolResult"],
        ["user", "assistant", "toolResult", "toolResult", "assistant"],
    )
    if len(roles) == 2:
        assert played.messages[1].stop_reason == "aborted"
    failed_at = played.events[-1]
    if failed_at.type in ("message_start", "message_update") and failed_at.message.role == "assistant":
        kept = played.messages[-1]
        assert (kept.role, kept.stop_reason, kept.text) == ("assistant", "aborted", failed_at.message.text)


@MODES
def test_a_listener_that_fails_at_progress_ends_the_run_once_the_call_has_settled(mode: str):
    settled: list[str] = []

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        on_update("half")
        if mode == "sequential":
            assert signal.aborted
        signal.wait(20)
        settled.append(call_id)
        return "all"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            raise Broken

    played = play(reply(call("f", id="c1")), "never", tools=[tool("f", execute)], tool_execution=mode, emit=emit)
    assert type(played.failure) is Broken
    assert settled == ["c1"]
    assert played.results[0].text == "all"
    assert isinstance(played.events[-1], ToolExecutionUpdateEvent)
    assert len(played.model.requests) == 1


def test_a_listener_that_fails_while_a_hook_reports_progress_for_a_running_call_ends_the_run():
    reports: dict[str, Any] = {}
    gate = Gate()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        reports[call_id] = on_update
        if call_id == "c2":
            gate.hold(signal)
        return "ok"

    def after(context: Any, signal: Any) -> None:
        # On the loop's thread, for a call that runs on a worker.
        if context.tool_call.id == "c1" and "c2" in reports:
            reports["c2"]("from the hook")

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            raise Broken

    def execute_first(call_id: str, *rest: Any) -> str:
        gate.wait_reached()
        return "ok"

    with gate:
        played = play(
            reply(call("first", id="c1"), call("f", id="c2")),
            "never",
            tools=[tool("f", execute), tool("first", execute_first)],
            after_tool_call=after,
            emit=emit,
        )
    assert type(played.failure) is Broken
    assert [result.tool_call_id for result in played.results] == ["c1", "c2"]


@MODES
def test_a_listener_that_asks_for_the_abort_at_every_event_still_gets_the_closing_ones(mode: str):
    def emit(event: Any) -> None:
        if event.type not in ("agent_start", "message_update") and len(played_so_far) > 15:
            raise AbortRequested("enough")
        played_so_far.append(event)

    played_so_far: list[Any] = []
    played = answer(
        reply("On it.", call("f", id="c1"), call("f", id="c2")), tools=[tool("f")], tool_execution=mode, emit=emit
    )
    assert [result.tool_call_id for result in played.results] == ["c1", "c2"]
    assert played.lines[-6:] == [
        "turn_end c1 c2",
        "turn_start",
        "start assistant",
        "end assistant aborted",
        "turn_end",
        "agent_end aborted",
    ]


def test_an_abort_request_out_of_a_listener_is_the_abort():
    def emit(event: Any) -> None:
        if event.type == "tool_execution_start":
            raise AbortRequested("enough")

    played = answer(reply(call("f", id="c1")), tools=[tool("f")], emit=emit)
    assert played.results[0].text == "The call of `f` was aborted: enough."
    assert played.reason == "aborted"


@MODES
def test_a_listener_that_fails_while_an_abort_is_being_closed_is_not_swallowed(
    mode: str, caplog: pytest.LogCaptureFixture
):
    controller = AbortController()

    def emit(event: Any) -> None:
        if event.type == "tool_execution_start":
            controller.abort()
        if event.type == "turn_start" and controller.signal.aborted:
            raise Broken("secret")

    with caplog.at_level(logging.INFO):
        played = play(
            reply(call("f", id="c1")), tools=[tool("f")], tool_execution=mode, emit=emit, signal=controller.signal
        )
    assert type(played.failure) is Broken
    assert [message.role for message in played.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert played.lines[-2:] == ["turn_end c1", "turn_start"]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "`emit` failed while a run was being closed: Broken"),
        ("WARNING", "a run of scripted/scripted-1 ended in an error: Broken"),
    ]


def test_what_a_hook_raised_is_raised_again_though_the_listener_fails_at_the_closing_of_the_run(
    caplog: pytest.LogCaptureFixture,
):
    def emit(event: Any) -> None:
        if isinstance(event, AgentEndEvent):
            raise OSError("no paper")

    played = play("Done.", prepare_next_turn=breaks, emit=emit)
    assert type(played.failure) is Broken
    assert "`emit` failed while a run was being closed: OSError" in caplog.text
