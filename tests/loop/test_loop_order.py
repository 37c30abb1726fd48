"""The order of one run: turns, queues, and the ways in which a run comes to its end."""

from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate, BeforeToolCallResult
from agentcore.content import TextContent, ToolCall
from agentcore.errors import NothingToContinueError
from agentcore.events import MessageEndEvent, TurnEndEvent
from agentcore.loop import agent_loop, agent_loop_continue, run_agent_loop, run_agent_loop_continue
from agentcore.messages import AssistantMessage, ErrorInfo, ToolResultMessage, UserMessage
from agentcore.models import ThinkingLevel
from agentcore.testing import call, failure, reply, scripted, scripted_model
from agentcore.tools import AgentToolResult
from tests.loop.loop_support import answer, line, returns, tool

ENDS = tool("ends", returns(AgentToolResult("over", terminate=True)))
STAYS = tool("stays")

FINAL = ["start assistant", "end assistant stop: Done.", "turn_end"]


def queue(*polls: Any) -> Any:
    """Return a queue hook that gives these in turn, then nothing; it counts its polls in `asked`."""

    def hook() -> Any:
        hook.asked += 1
        return polls[hook.asked - 1] if hook.asked <= len(polls) else []

    hook.asked = 0
    return hook


# --- one run --------------------------------------------------------------------------------------------------------


def test_a_run_begins_with_its_prompts_and_ends_with_everything_it_added():
    played = answer("Hello", prompts=[UserMessage("one"), UserMessage("two")])
    assert played.all_lines == [
        "agent_start",
        "turn_start",
        "start user: one",
        "end user: one",
        "start user: two",
        "end user: two",
        "start assistant",
        "text_start",
        "text_delta 'Hello'",
        "text_end",
        "end assistant stop: Hello",
        "turn_end",
        "agent_end completed",
    ]
    assert [message.role for message in played.messages] == ["user", "user", "assistant"]


def test_a_turn_with_calls_is_followed_by_another():
    played = answer(reply("On it.", call("stays", id="c1", x=1)), "Done.", tools=[STAYS])
    assert played.lines == [
        "agent_start",
        "turn_start",
        "start user: hi",
        "end user: hi",
        "start assistant",
        "end assistant tool_use: On it. <stays:c1>",
        "call c1 stays {'x': 1}",
        "done c1: ran 1",
        "start result c1: ran 1",
        "end result c1: ran 1",
        "turn_end c1",
        "turn_start",
        *FINAL,
        "agent_end completed",
    ]
    assert [message.role for message in played.model.requests[1].messages] == ["user", "assistant", "toolResult"]


@pytest.mark.parametrize("prompts", ["hi", UserMessage("hi"), [UserMessage("hi")], (UserMessage("hi"),)])
def test_prompts_are_text_a_message_or_messages(prompts: Any):
    events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model())
    messages = run_agent_loop(prompts, AgentContext(), config, events.append, stream_fn=scripted("Hello"))
    assert [message.content for message in messages] == ["hi", (TextContent("Hello"),)]
    assert line(events[2]) == "start user: hi"


def test_the_run_starts_from_the_context_and_returns_only_what_is_new():
    history = [UserMessage("before"), AssistantMessage("yes")]
    played = answer("Hello", history=history)
    assert [message.role for message in played.messages] == ["user", "assistant"]
    assert [message.role for message in played.model.requests[0].messages] == ["user", "assistant", "user"]
    assert played.model.requests[0].context.system_prompt == "Be brief."


def test_neither_the_context_nor_the_callers_lists_change():
    messages, tools = [UserMessage("before"), AssistantMessage("yes")], [STAYS]
    context = AgentContext("Be brief.", messages, tools)
    before = (list(messages), list(tools), context.messages, context.tools)
    prompts = [UserMessage("hi")]

    def forgets(given: list[Any], signal: Any) -> list[Any]:
        del given[:-1]
        return given

    config = AgentLoopConfig(
        model=scripted_model(),
        transform_context=forgets,
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(context=AgentContext("Other.")),
    )
    model = scripted(reply(call("stays")), "Done.")
    returned = run_agent_loop(prompts, context, config, lambda event: None, stream_fn=model)
    assert (messages, tools, context.messages, context.tools) == before
    assert prompts == [UserMessage("hi", timestamp=prompts[0].timestamp)]
    assert returned is not messages
    assert [len(request.messages) for request in model.requests] == [1, 0]


def test_the_events_of_a_stream_are_those_of_a_run():
    model = scripted(reply(call("stays", id="c1")), "Done.")
    config = AgentLoopConfig(model=scripted_model())
    with agent_loop("hi", AgentContext(tools=[STAYS]), config, stream_fn=model) as stream:
        lines = [line(event) for event in stream if event.type != "message_update"]
    assert lines == answer(reply(call("stays", id="c1")), "Done.", tools=[STAYS]).lines
    assert [message.role for message in stream.result()] == ["user", "assistant", "toolResult", "assistant"]


# --- what makes a batch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_reason", ["stop", "tool_use"])
def test_the_presence_of_calls_decides_whatever_the_stop_reason_says(stop_reason: str):
    played = answer(reply(call("stays", id="c1"), stop_reason=stop_reason), "Done.", tools=[STAYS])
    assert "done c1: ran" in played.lines
    assert len(played.model.requests) == 2


def test_tool_use_without_a_call_is_the_end():
    played = answer(reply("That is all.", stop_reason="tool_use"), tools=[STAYS])
    assert played.reason == "completed"
    assert len(played.model.requests) == 1


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_the_calls_of_a_message_that_did_not_end_normally_are_not_answered(stop_reason: str):
    cut = reply(call("stays", id="c1"), stop_reason=stop_reason, error=ErrorInfo("connection", "reset"))
    played = answer(cut, tools=[STAYS])
    assert played.lines[4:] == [
        "start assistant",
        f"end assistant {stop_reason}: <stays:c1>",
        "turn_end",
        f"agent_end {stop_reason}",
    ]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_calls_that_the_output_limit_cut_off_are_answered_one_by_one_and_none_is_run(mode: str):
    cut = reply("x", call("stays", id="c1"), call("ends", id="c2"), call("nothing", id="c3"), stop_reason="length")
    played = answer(cut, "Done.", tools=[STAYS, ENDS], tool_execution=mode)
    calls = [
        row
        for number, name in enumerate(("stays", "ends", "nothing"), 1)
        for row in (
            f"call c{number} {name} {{}}",
            f"done c{number}: error",
            f"start result c{number} error",
            f"end result c{number} error",
        )
    ]
    assert played.lines[5:] == [
        "end assistant length: x <stays:c1> <ends:c2> <nothing:c3>",
        *calls,
        "turn_end c1 c2 c3",
        "turn_start",
        *FINAL,
        "agent_end completed",
    ]
    for result in played.results:
        assert "not run" in result.text
        assert "output limit" in result.text
        assert "complete" in result.text


def test_a_cut_off_call_keeps_its_before_hook_out_of_it():
    asked: list[Any] = []
    cut = reply(ToolCall("c1", "stays", {}, partial_json='{"path": "a.txt", "content": "hel'), stop_reason="length")
    played = answer(cut, "Done.", tools=[STAYS], before_tool_call=lambda *args: asked.append(args))
    assert asked == []
    assert "output limit" in played.results[0].text


def test_a_text_that_the_output_limit_cut_off_is_the_end():
    played = answer(reply("half a sen", stop_reason="length"))
    assert played.reason == "completed"
    assert played.messages[-1].stop_reason == "length"


# --- termination ----------------------------------------------------------------------------------------------------


def test_a_batch_whose_results_all_terminate_ends_the_run():
    played = answer(reply(call("ends", id="c1"), call("ends", id="c2")), tools=[ENDS])
    assert played.lines[-3:] == ["end result c2: over", "turn_end c1 c2", "agent_end terminated"]


def test_a_batch_goes_on_unless_every_result_terminates():
    played = answer(reply(call("ends"), call("stays")), "Done.", tools=[ENDS, STAYS])
    assert played.reason == "completed"
    assert len(played.model.requests) == 2


def test_a_result_that_answers_without_execution_counts_for_termination_too():
    played = answer(reply(call("ends"), call("nothing")), "Done.", tools=[ENDS])
    assert played.reason == "completed"


def test_steering_that_waits_still_runs_after_a_terminating_batch():
    steering = queue([], [UserMessage("but first")])
    played = answer(reply(call("ends", id="c1")), "Done.", tools=[ENDS], get_steering_messages=steering)
    assert played.lines[-9:] == [
        "end result c1: over",
        "turn_end c1",
        "turn_start",
        "start user: but first",
        "end user: but first",
        *FINAL,
        "agent_end completed",
    ]
    assert played.reason == "completed"
    assert len(played.model.requests) == 2


# --- queues ---------------------------------------------------------------------------------------------------------


def test_steering_that_is_there_at_the_start_comes_before_the_first_request():
    played = answer("Done.", get_steering_messages=queue([UserMessage("first"), UserMessage("second")]))
    assert played.lines == [
        "agent_start",
        "turn_start",
        "start user: hi",
        "end user: hi",
        "start user: first",
        "end user: first",
        "start user: second",
        "end user: second",
        *FINAL,
        "agent_end completed",
    ]


def test_steering_after_a_batch_comes_before_the_next_request():
    steering = queue([], [UserMessage("not that")])
    played = answer(reply(call("stays", id="c1")), "Done.", tools=[STAYS], get_steering_messages=steering)
    assert played.lines[9:] == [
        "end result c1: ran",
        "turn_end c1",
        "turn_start",
        "start user: not that",
        "end user: not that",
        *FINAL,
        "agent_end completed",
    ]
    roles = [message.role for message in played.model.requests[1].messages]
    assert roles == ["user", "assistant", "toolResult", "user"]


def test_steering_after_a_final_answer_begins_another_turn():
    played = answer("One.", "Two.", get_steering_messages=queue([], [UserMessage("more")]))
    assert played.lines[5:] == [
        "end assistant stop: One.",
        "turn_end",
        "turn_start",
        "start user: more",
        "end user: more",
        "start assistant",
        "end assistant stop: Two.",
        "turn_end",
        "agent_end completed",
    ]


def test_follow_ups_are_asked_for_only_when_there_is_nothing_else_to_do():
    polls: list[str] = []

    def steering() -> list[UserMessage]:
        polls.append("steering")
        return []

    def follow_up() -> list[UserMessage]:
        polls.append("follow_up")
        return [UserMessage("and then")] if polls.count("follow_up") == 1 else []

    played = answer(
        reply(call("stays")),
        "One.",
        "Two.",
        tools=[STAYS],
        get_steering_messages=steering,
        get_follow_up_messages=follow_up,
    )
    assert polls == ["steering", "steering", "steering", "follow_up", "steering", "follow_up"]
    assert played.lines[-8:] == [
        "turn_end",
        "turn_start",
        "start user: and then",
        "end user: and then",
        "start assistant",
        "end assistant stop: Two.",
        "turn_end",
        "agent_end completed",
    ]


def test_a_follow_up_begins_a_turn_after_a_terminated_batch():
    played = answer(
        reply(call("ends", id="c1")), "Done.", tools=[ENDS], get_follow_up_messages=queue([UserMessage("go on")])
    )
    assert played.reason == "completed"
    assert len(played.model.requests) == 2


@pytest.mark.parametrize("given", ["go on", UserMessage("go on"), (UserMessage("go on"),)])
def test_a_queue_may_give_text_a_message_or_messages(given: Any):
    played = answer("One.", "Two.", get_follow_up_messages=queue(given))
    assert "end user: go on" in played.lines


@pytest.mark.parametrize("nothing", [None, [], (), iter(())])
def test_a_queue_that_gives_nothing_ends_the_run(nothing: Any):
    played = answer("One.", get_follow_up_messages=lambda: nothing, get_steering_messages=lambda: nothing)
    assert played.reason == "completed"


# --- continuing -----------------------------------------------------------------------------------------------------


def go_on(history: list[Any], *replies: Any, **config: Any) -> tuple[list[str], list[Any], Any]:
    events: list[Any] = []
    model = scripted(*replies)
    settings = AgentLoopConfig(model=scripted_model(), **config)
    messages = run_agent_loop_continue(AgentContext(messages=history), settings, events.append, stream_fn=model)
    return [line(event) for event in events if event.type != "message_update"], messages, model


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param([UserMessage("q")], id="a user message"),
        pytest.param([UserMessage("q"), AssistantMessage([ToolCall("c1", "f", {})], stop_reason="tool_use"),
                      ToolResultMessage("c1", "f", "ok")], id="a tool result"),
        pytest.param([UserMessage("q"), AssistantMessage("", stop_reason="aborted")], id="an aborted message"),
        pytest.param([UserMessage("q"), AssistantMessage("x", stop_reason="error"),
                      AssistantMessage("y", stop_reason="aborted")], id="several that failed"),
    ],
)  # fmt: skip
def test_a_context_that_ends_with_something_to_answer_can_be_continued(tail: list[Any]):
    lines, messages, model = go_on(tail, "Done.")
    assert lines == ["agent_start", "turn_start", *FINAL, "agent_end completed"]
    assert [message.role for message in messages] == ["assistant"]
    assert list(model.requests[0].messages) == tail


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        pytest.param([], "no message to answer", id="empty"),
        pytest.param([AssistantMessage("x", stop_reason="error")], "no message to answer", id="only one that failed"),
        pytest.param([UserMessage("q"), AssistantMessage("a")], "the model's own", id="an answer"),
        pytest.param(
            [UserMessage("q"), AssistantMessage("a"), AssistantMessage("x", stop_reason="aborted")],
            "the model's own",
            id="an answer, then one that was aborted",
        ),
        pytest.param([UserMessage("q"), AssistantMessage("a", stop_reason="length")], "the model's own", id="cut off"),
    ],
)
@pytest.mark.parametrize("entry", [run_agent_loop_continue, agent_loop_continue])
def test_a_context_without_anything_to_answer_is_refused_before_any_event(entry: Any, tail: list[Any], reason: str):
    events: list[Any] = []
    arguments: list[Any] = [AgentContext(messages=tail), AgentLoopConfig(model=scripted_model())]
    if entry is run_agent_loop_continue:
        arguments.append(events.append)
    with pytest.raises(NothingToContinueError, match=reason) as caught:
        entry(*arguments, stream_fn=scripted("never"))
    assert isinstance(caught.value, (ValueError, RuntimeError))
    assert events == []


def test_a_stream_continues_as_a_run_does():
    model = scripted("Done.")
    context = AgentContext(messages=[UserMessage("q")])
    with agent_loop_continue(context, AgentLoopConfig(model=scripted_model()), stream_fn=model) as stream:
        lines = [line(event) for event in stream if event.type != "message_update"]
    assert lines == ["agent_start", "turn_start", *FINAL, "agent_end completed"]


def test_a_continuation_polls_for_steering_first():
    lines, _, model = go_on([UserMessage("q")], "Done.", get_steering_messages=queue([UserMessage("quick")]))
    assert lines[2:4] == ["start user: quick", "end user: quick"]
    assert [message.role for message in model.requests[0].messages] == ["user", "user"]


# --- between turns --------------------------------------------------------------------------------------------------


def two_turns(**config: Any) -> Any:
    return answer(reply(call("stays")), "Done.", tools=[STAYS], reasoning="low", **config)


def settings_of(played: Any) -> list[tuple[str, Any]]:
    return [(request.model.id, request.options.reasoning) for request in played.model.requests]


@pytest.mark.parametrize("update", [None, AgentLoopTurnUpdate()])
def test_an_update_of_nothing_keeps_what_is_set(update: Any):
    played = two_turns(prepare_next_turn=lambda context, signal: update)
    assert settings_of(played) == [("scripted-1", ThinkingLevel.LOW), ("scripted-1", ThinkingLevel.LOW)]


def test_a_new_model_and_level_are_used_from_the_next_request_on():
    other = scripted_model(id="other")
    update = AgentLoopTurnUpdate(model=other, thinking_level="high")
    played = two_turns(prepare_next_turn=lambda context, signal: update)
    assert settings_of(played) == [("scripted-1", ThinkingLevel.LOW), ("other", ThinkingLevel.HIGH)]


def test_a_level_of_off_sends_no_reasoning():
    played = two_turns(prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(thinking_level="off"))
    assert settings_of(played) == [("scripted-1", ThinkingLevel.LOW), ("scripted-1", None)]


def test_a_level_of_off_from_the_start_sends_no_reasoning():
    played = answer("Done.", reasoning="off")
    assert played.model.requests[0].options.reasoning is None


def test_an_update_holds_until_the_next_one():
    updates = iter([AgentLoopTurnUpdate(thinking_level="high"), None, None])
    played = answer(
        reply(call("stays")),
        reply(call("stays")),
        "Done.",
        tools=[STAYS],
        reasoning="low",
        prepare_next_turn=lambda context, signal: next(updates),
    )
    assert [level for _, level in settings_of(played)] == ["low", "high", "high"]


def test_everything_else_of_the_config_is_kept_for_the_following_requests():
    update = AgentLoopTurnUpdate(model=scripted_model(id="other"), thinking_level="high")
    played = two_turns(
        prepare_next_turn=lambda context, signal: update,
        temperature=0.25,
        max_tokens=77,
        session_id="s1",
        headers={"X-A": "1"},
        metadata={"user": "u"},
        api_key="secret",
        cache_retention="long",
    )
    for request in played.model.requests:
        options = request.options
        assert (options.temperature, options.max_tokens, options.session_id) == (0.25, 77, "s1")
        assert (options.headers, options.metadata) == ({"X-A": "1"}, {"user": "u"})
        assert (options.api_key, options.cache_retention) == ("secret", "long")


def test_a_new_context_is_used_from_the_next_request_on_and_what_was_added_is_still_returned():
    other = tool("other")
    replaced = AgentContext("Be kind.", [UserMessage("summary")], [other])
    updates = iter([AgentLoopTurnUpdate(context=replaced), None, None])
    played = answer(
        reply(call("stays", id="c1")),
        reply(call("other", id="c2")),
        "Done.",
        tools=[STAYS],
        prepare_next_turn=lambda context, signal: next(updates),
    )
    second, third = played.model.requests[1:]
    assert (second.context.system_prompt, second.context.tools) == ("Be kind.", (other,))
    assert [message.role for message in second.messages] == ["user"]
    assert [message.role for message in third.messages] == ["user", "assistant", "toolResult"]
    roles = [message.role for message in played.messages]
    assert roles == ["user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]
    assert [result.is_error for result in played.results] == [False, False]


def test_the_hook_sees_the_turn_the_context_and_what_was_added():
    seen: list[Any] = []
    played = answer(
        reply(call("stays", id="c1")),
        "Done.",
        tools=[STAYS],
        history=[UserMessage("before"), AssistantMessage("yes")],
        prepare_next_turn=lambda context, signal: seen.append((context, signal.aborted)),
    )
    (first, aborted), (second, _) = seen
    assert aborted is False
    assert first.message is played.messages[1]
    assert first.tool_results == tuple(played.results)
    assert [message.role for message in first.context.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "toolResult",
    ]
    assert first.context.system_prompt == "Be brief."
    assert first.context.tools == (STAYS,)
    assert first.new_messages == tuple(played.messages[:3])
    assert second.message is played.messages[3]
    assert second.tool_results == ()
    assert second.new_messages == tuple(played.messages)


def test_the_hook_runs_after_the_last_turn_too_but_not_after_one_that_failed():
    asked: list[Any] = []
    answer("Done.", prepare_next_turn=lambda context, signal: asked.append(context))
    assert len(asked) == 1
    answer(failure("busy"), prepare_next_turn=lambda context, signal: asked.append(context))
    assert len(asked) == 1


def test_stopping_after_a_turn_ends_the_run_and_polls_no_queue():
    steering, follow_up = queue([], [UserMessage("never")]), queue([UserMessage("never")])
    order: list[str] = []
    played = answer(
        reply(call("stays", id="c1")),
        tools=[STAYS],
        prepare_next_turn=lambda context, signal: order.append("prepare"),
        should_stop_after_turn=lambda context: order.append("stop") or True,
        get_steering_messages=steering,
        get_follow_up_messages=follow_up,
    )
    assert played.lines[-2:] == ["turn_end c1", "agent_end stopped"]
    assert (steering.asked, follow_up.asked) == (1, 0)
    assert order == ["prepare", "stop"]


def test_a_stop_counts_after_a_final_answer_too():
    played = answer("Done.", should_stop_after_turn=lambda context: True)
    assert played.reason == "stopped"


def test_the_stopping_hook_sees_the_context_that_was_just_prepared():
    seen: list[Any] = []
    answer(
        "Done.",
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(context=AgentContext("Be kind.")),
        should_stop_after_turn=seen.append,
    )
    assert seen[0].context.system_prompt == "Be kind."
    assert seen[0].context.messages == ()
    assert [message.role for message in seen[0].new_messages] == ["user", "assistant"]


def test_a_context_that_is_as_long_as_the_one_before_is_seen_all_the_same():
    seen: list[Any] = []

    def prepare(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        others = [UserMessage(f"instead of {message.role}") for message in context.context.messages]
        return AgentLoopTurnUpdate(context=AgentContext("Be kind.", others, [ENDS]))

    answer("Done.", prepare_next_turn=prepare, should_stop_after_turn=seen.append)
    assert seen[0].context == AgentContext("Be kind.", seen[0].context.messages, [ENDS])
    assert [message.content for message in seen[0].context.messages] == ["instead of user", "instead of assistant"]


# --- failed responses and recovery ----------------------------------------------------------------------------------


def test_a_failed_response_ends_the_run():
    played = answer(failure("busy", "So far"))
    assert played.lines[4:] == ["start assistant", "end assistant error: So far", "turn_end", "agent_end error"]
    assert played.messages[-1].error == ErrorInfo("overloaded", "busy")


def test_a_failed_response_polls_no_queue():
    steering, follow_up = queue([]), queue([UserMessage("never")])
    answer(failure("busy"), get_steering_messages=steering, get_follow_up_messages=follow_up)
    assert (steering.asked, follow_up.asked) == (1, 0)


def test_a_recovery_ends_the_turn_and_asks_again_with_its_update():
    other = scripted_model(id="other")
    steering = queue([], [UserMessage("later")])
    played = answer(
        failure("busy", "So far"),
        "Done.",
        "Really.",
        recover_from_error=lambda context, signal: AgentLoopTurnUpdate(model=other, thinking_level="low"),
        get_steering_messages=steering,
    )
    assert played.lines[4:] == [
        "start assistant",
        "end assistant error: So far",
        "turn_end",
        "turn_start",
        *FINAL,
        "turn_start",
        "start user: later",
        "end user: later",
        "start assistant",
        "end assistant stop: Really.",
        "turn_end",
        "agent_end completed",
    ]
    assert settings_of(played) == [("scripted-1", None), ("other", "low"), ("other", "low")]
    assert [message.role for message in played.model.requests[1].messages] == ["user", "assistant"]


@pytest.mark.parametrize("name", ["get_steering_messages", "get_follow_up_messages"])
def test_a_queued_message_comes_in_once_though_the_response_to_it_fails_again_and_again(name):
    waiting = queue([], "by the way") if name == "get_steering_messages" else queue("by the way")
    played = answer(
        "Hello",
        failure("busy"),
        failure("busy"),
        "Done.",
        recover_from_error=lambda context, signal: AgentLoopTurnUpdate(),
        **{name: waiting},
    )
    failed = ["start assistant", "end assistant error", "turn_end"]
    assert played.lines[6:] == [
        "turn_end",
        *["turn_start", "start user: by the way", "end user: by the way", *failed],
        *["turn_start", *failed],
        *["turn_start", *FINAL],
        "agent_end completed",
    ]
    assert [message.role for message in played.messages] == ["user", "assistant", "user", *["assistant"] * 3]


def test_a_recovery_can_replace_the_context():
    played = answer(
        failure("too long", kind="context_overflow"),
        "Done.",
        recover_from_error=lambda context, signal: AgentLoopTurnUpdate(
            context=AgentContext("", [UserMessage("in short")])
        ),
    )
    assert [message.content for message in played.model.requests[1].messages] == ["in short"]
    assert [message.role for message in played.messages] == ["user", "assistant", "assistant"]


def test_attempts_count_the_failures_in_a_row():
    attempts: list[int] = []

    def recover(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        attempts.append(context.attempt)
        return AgentLoopTurnUpdate()

    answer(
        failure("busy"),
        failure("busy"),
        reply(call("stays")),
        failure("busy"),
        "Done.",
        tools=[STAYS],
        recover_from_error=recover,
    )
    assert attempts == [1, 2, 1]


def test_the_recovery_sees_the_message_the_context_and_what_was_added():
    seen: list[Any] = []
    played = answer(failure("busy", "So far"), recover_from_error=lambda context, signal: seen.append(context))
    assert seen[0].message is played.messages[-1]
    assert seen[0].context.messages == tuple(played.messages)
    assert seen[0].new_messages == tuple(played.messages)
    assert played.reason == "error"


def test_a_recovery_is_not_asked_for_after_an_abort():
    asked: list[Any] = []
    aborted = reply("half", stop_reason="aborted", error=ErrorInfo("aborted", "enough"))
    played = answer(aborted, recover_from_error=lambda context, signal: asked.append(context))
    assert asked == []
    assert played.reason == "aborted"


def test_a_recovery_is_not_asked_for_when_the_response_failed_in_an_abort():
    asked: list[Any] = []
    controller = AbortController()

    def aborts(event: Any) -> None:
        if isinstance(event, MessageEndEvent) and event.message.role == "assistant":
            controller.abort()

    played = answer(
        failure("reset"),
        signal=controller.signal,
        emit=aborts,
        recover_from_error=lambda context, signal: asked.append(context),
    )
    assert asked == []
    assert played.reason == "error"


def test_an_abort_from_the_recovery_asks_the_model_no_more():
    controller = AbortController()

    def recover(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        controller.abort("enough")
        return AgentLoopTurnUpdate()

    played = answer(failure("busy"), "never", signal=controller.signal, recover_from_error=recover)
    assert played.lines[4:] == [
        "start assistant",
        "end assistant error",
        "turn_end",
        "turn_start",
        "start assistant",
        "end assistant aborted",
        "turn_end",
        "agent_end aborted",
    ]
    assert len(played.model.requests) == 1


# --- paused calls ---------------------------------------------------------------------------------------------------


def pauses(*ids: str) -> Any:
    def before(context: Any, signal: Any) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(pause=True) if context.tool_call.id in ids else None

    return before


def test_a_paused_call_is_left_open_and_the_others_run():
    hooks: list[str] = []
    played = answer(
        reply(call("stays", id="c1", x=1), call("stays", id="c2", x=2), call("stays", id="c3", x=3)),
        tools=[tool("stays", execution_mode="sequential")],
        before_tool_call=pauses("c2"),
        prepare_next_turn=lambda context, signal: hooks.append("prepare"),
        should_stop_after_turn=lambda context: hooks.append("stop"),
        get_follow_up_messages=queue([UserMessage("never")]),
    )
    assert played.lines[6:] == [
        "call c1 stays {'x': 1}",
        "done c1: ran 1",
        "start result c1: ran 1",
        "end result c1: ran 1",
        "call c2 stays {'x': 2}",
        "call c3 stays {'x': 3}",
        "done c3: ran 3",
        "start result c3: ran 3",
        "end result c3: ran 3",
        "turn_end c1 c3",
        "agent_end paused",
    ]
    assert hooks == []


def test_a_paused_call_in_a_parallel_batch_gets_a_start_only():
    played = answer(
        reply(call("stays", id="c1", x=1), call("stays", id="c2", x=2)),
        tools=[STAYS],
        before_tool_call=pauses("c1"),
    )
    assert played.lines[6:] == [
        "call c1 stays {'x': 1}",
        "call c2 stays {'x': 2}",
        "done c2: ran 2",
        "start result c2: ran 2",
        "end result c2: ran 2",
        "turn_end c2",
        "agent_end paused",
    ]


def test_a_paused_batch_does_not_terminate():
    played = answer(reply(call("ends"), call("ends", id="c2")), tools=[ENDS], before_tool_call=pauses("c2"))
    assert played.reason == "paused"


def test_an_abort_answers_the_paused_call():
    controller = AbortController()

    def aborts(event: Any) -> None:
        if event.type == "tool_execution_end":
            controller.abort()

    played = answer(
        reply(call("stays", id="c1"), call("stays", id="c2")),
        tools=[STAYS],
        before_tool_call=pauses("c1"),
        signal=controller.signal,
        emit=aborts,
    )
    assert [(result.tool_call_id, result.is_error) for result in played.results] == [("c1", True), ("c2", False)]
    assert "aborted" in played.results[0].text
    assert played.reason == "aborted"
    ends = [event.message for event in played.of(MessageEndEvent) if isinstance(event.message, ToolResultMessage)]
    assert ends == played.results


def test_an_abort_after_the_others_were_delivered_still_answers_the_paused_call_in_its_place():
    controller = AbortController()

    def aborts(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "toolResult":
            controller.abort()

    played = answer(
        reply(call("stays", id="c1"), call("stays", id="c2")),
        tools=[STAYS],
        before_tool_call=pauses("c1"),
        signal=controller.signal,
        emit=aborts,
    )
    assert [result.tool_call_id for result in played.results] == ["c1", "c2"]
    assert [result.tool_call_id for result in played.turn_ends[0].tool_results] == ["c1", "c2"]
    assert played.reason == "aborted"


# --- the result of it all -------------------------------------------------------------------------------------------


def test_every_end_of_a_turn_holds_the_message_and_the_results_of_the_transcript():
    played = answer(
        reply(call("stays", id="c1"), call("nothing", id="c2")), reply(call("stays", id="c3")), "Done.", tools=[STAYS]
    )
    ends = [event for event in played.events if isinstance(event, TurnEndEvent)]
    assert [id(end.message) for end in ends] == [
        id(message) for message in played.messages if isinstance(message, AssistantMessage)
    ]
    assert [[id(result) for result in end.tool_results] for end in ends] == [
        [id(played.messages[2]), id(played.messages[3])],
        [id(played.messages[5])],
        [],
    ]
