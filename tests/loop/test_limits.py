"""Limits of a run: what is counted, when it ends, and what it says then."""

from typing import Any

import pytest

from agentcore.config import AfterToolCallResult, AgentLoopConfig, AgentLoopTurnUpdate, BeforeToolCallResult, Limits
from agentcore.messages import AssistantMessage, Usage, UserMessage
from agentcore.testing import call, failure, reply, scripted, scripted_model
from agentcore.tools import AgentToolResult
from tests.loop.loop_support import answer, play, returns, tool

PRICED = scripted_model(cost={"input": 1_000_000, "output": 2_000_000})  # a dollar and two for each token
UNPRICED = scripted_model(id="local")

CALLS = tool("f")
ENDS = tool("ends", returns(AgentToolResult("over", terminate=True)))


def endless(**options: Any) -> Any:
    """Return a model that calls the same tool for ever."""
    return scripted(reply(call("f"), **options), repeat=True)


def requests_until_the_end(limits: Limits, **config: Any) -> tuple[int, str]:
    played = answer(limits=limits, **{"stream_fn": endless(), "tools": [CALLS], **config})
    # Whatever ended it, the last calls are answered.
    assert played.messages[-1].role == "toolResult"
    return len(played.model.requests), played.reason


# --- turns ----------------------------------------------------------------------------------------------------------


def test_a_model_that_always_calls_is_asked_as_often_as_allowed():
    assert requests_until_the_end(Limits(turns=5)) == (5, "limit:turns")


def test_a_model_that_calls_what_does_not_exist_is_bounded_too():
    played = answer(stream_fn=scripted(reply(call("missing")), repeat=True), limits=Limits(turns=3))
    assert len(played.model.requests) == 3
    assert played.reason == "limit:turns"


def test_a_limit_that_is_reached_with_nothing_left_to_do_is_a_normal_end():
    assert answer("Done.", limits=Limits(turns=1)).reason == "completed"
    assert answer(reply(call("ends")), tools=[ENDS], limits=Limits(turns=1)).reason == "terminated"


def test_at_a_limit_no_queue_is_polled():
    polls: list[str] = []

    def queue(name: str) -> Any:
        def hook() -> list[UserMessage]:
            polls.append(name)
            return []

        return hook

    answer(
        "Done.",
        limits=Limits(turns=1),
        get_steering_messages=queue("steering"),
        get_follow_up_messages=queue("follow_up"),
    )
    assert polls == ["steering"]


def test_the_hooks_after_a_turn_are_still_asked_and_a_stop_has_the_last_word():
    asked: list[str] = []
    played = answer(
        reply(call("f")),
        tools=[CALLS],
        limits=Limits(turns=1),
        prepare_next_turn=lambda context, signal: asked.append("prepare"),
        should_stop_after_turn=lambda context: asked.append("stop") or True,
    )
    assert asked == ["prepare", "stop"]
    assert played.reason == "stopped"


def test_turns_of_follow_ups_and_steering_count():
    polls = iter(range(10))
    played = answer(
        stream_fn=scripted("Done.", repeat=True),
        limits=Limits(turns=3),
        get_follow_up_messages=lambda: [UserMessage(f"more {next(polls)}")],
    )
    assert len(played.model.requests) == 3
    assert played.reason == "completed"


def test_failed_responses_count_as_turns_and_a_recovery_is_not_asked_for_at_the_limit():
    attempts: list[int] = []

    def recover(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        attempts.append(context.attempt)
        return AgentLoopTurnUpdate()

    played = answer(
        stream_fn=scripted(failure("busy"), repeat=True), limits=Limits(turns=3), recover_from_error=recover
    )
    assert attempts == [1, 2]
    assert len(played.model.requests) == 3
    assert played.reason == "error"


def test_a_limit_in_several_kinds_names_the_first_that_was_reached():
    limits = Limits(turns=2, tokens=250)
    assert requests_until_the_end(limits, stream_fn=endless(usage=Usage(100))) == (2, "limit:turns")
    assert requests_until_the_end(limits, stream_fn=endless(usage=Usage(300))) == (1, "limit:tokens")


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_tokens_of_all_kinds_are_counted():
    usage = Usage(input=40, output=30, cache_read=20, cache_write=10)
    assert requests_until_the_end(Limits(tokens=301), stream_fn=endless(usage=usage)) == (4, "limit:tokens")
    assert requests_until_the_end(Limits(tokens=300), stream_fn=endless(usage=usage)) == (3, "limit:tokens")


def test_responses_that_cost_tokens_but_are_no_use_are_counted():
    strict = {"type": "object", "required": ["n"]}
    played = answer(stream_fn=endless(usage=Usage(60, 40)), tools=[tool("f", schema=strict)], limits=Limits(tokens=350))
    assert len(played.model.requests) == 4
    assert all(result.is_error for result in played.results)


def test_the_usage_of_failed_responses_is_counted():
    attempts: list[int] = []

    def recover(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        attempts.append(context.attempt)
        return AgentLoopTurnUpdate()

    model = scripted(failure("busy", usage=Usage(100)), repeat=True)
    played = answer(stream_fn=model, limits=Limits(tokens=250), recover_from_error=recover)
    assert attempts == [1, 2]
    assert played.reason == "error"


def test_the_usage_that_tool_results_report_is_counted():
    spends = tool("f", returns(AgentToolResult("ok", usage=Usage(70))))
    model = endless(usage=Usage(30))
    assert requests_until_the_end(Limits(tokens=200), stream_fn=model, tools=[spends]) == (2, "limit:tokens")


def test_the_usage_that_a_hook_gives_a_result_takes_its_place():
    spends = tool("f", returns(AgentToolResult("ok", usage=Usage(1000))))
    limits = Limits(tokens=100)
    config = {"after_tool_call": lambda context, signal: AfterToolCallResult(usage=Usage(60))}
    assert requests_until_the_end(limits, tools=[spends], **config) == (2, "limit:tokens")


def test_a_response_without_usage_counts_no_tokens():
    assert requests_until_the_end(Limits(tokens=1, turns=4)) == (4, "limit:turns")


def test_a_run_counts_only_what_it_spent_itself():
    history = [UserMessage("q"), AssistantMessage("a", usage=Usage(1_000_000))]
    played = answer("Done.", history=history, limits=Limits(tokens=10))
    assert played.reason == "completed"
    assert requests_until_the_end(Limits(tokens=10, turns=2), history=history) == (2, "limit:turns")


# --- cost -----------------------------------------------------------------------------------------------------------


def test_cost_is_computed_from_the_models_prices():
    model = endless(usage=Usage(1, 2))
    assert requests_until_the_end(Limits(cost=11), stream_fn=model, model=PRICED) == (3, "limit:cost")
    model = endless(usage=Usage(1, 2))
    assert requests_until_the_end(Limits(cost=10), stream_fn=model, model=PRICED) == (2, "limit:cost")


def test_a_cost_that_the_response_reports_is_taken_as_it_is():
    model = endless(usage=Usage(1, 2, cost={"input": 1.0, "output": 2.0, "total": 3.0}))
    assert requests_until_the_end(Limits(cost=6), stream_fn=model, model=PRICED) == (2, "limit:cost")
    model = endless(usage=Usage(1, 2, cost={"input": 1.0, "output": 2.0}))
    assert requests_until_the_end(Limits(cost=6), stream_fn=model, model=PRICED) == (2, "limit:cost")


def test_the_cost_that_tool_results_report_is_counted():
    spends = tool("f", returns(AgentToolResult("ok", usage=Usage(5, cost={"total": 0.5}))))
    assert requests_until_the_end(Limits(cost=1), tools=[spends], model=PRICED) == (2, "limit:cost")


def test_a_tool_result_that_names_no_cost_has_none_for_the_limit():
    spends = tool("f", returns(AgentToolResult("ok", usage=Usage(1000))))
    limits = Limits(cost=1, turns=3)
    assert requests_until_the_end(limits, tools=[spends], model=PRICED) == (3, "limit:turns")


@pytest.mark.parametrize("cost", [None, {"input": 1}, {"output": 1}, {}])
def test_a_cost_limit_is_refused_for_a_model_without_prices(cost: Any):
    with pytest.raises(ValueError, match="a cost limit needs the model's prices"):
        AgentLoopConfig(model=scripted_model(cost=cost), limits=Limits(cost=1))


def test_a_switch_to_a_model_without_prices_ends_the_run():
    played = answer(
        reply(call("f", id="c1")),
        "never",
        tools=[CALLS],
        model=PRICED,
        limits=Limits(cost=1000),
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(model=UNPRICED),
    )
    assert played.lines[-2:] == ["turn_end c1", "agent_end limit:cost"]
    assert len(played.model.requests) == 1


def test_a_recovery_by_a_model_without_prices_ends_the_run():
    played = answer(
        failure("busy"),
        "never",
        model=PRICED,
        limits=Limits(cost=1000),
        recover_from_error=lambda context, signal: AgentLoopTurnUpdate(model=UNPRICED),
    )
    assert played.lines[-2:] == ["turn_end", "agent_end limit:cost"]
    assert len(played.model.requests) == 1


def test_a_switch_without_a_cost_limit_is_nobodys_business():
    played = answer(
        reply(call("f")),
        "Done.",
        tools=[CALLS],
        model=PRICED,
        limits=Limits(turns=10),
        prepare_next_turn=lambda context, signal: AgentLoopTurnUpdate(model=UNPRICED),
    )
    assert played.reason == "completed"


# --- seconds --------------------------------------------------------------------------------------------------------


def test_a_run_that_has_lasted_long_enough_ends_after_its_turn():
    assert requests_until_the_end(Limits(seconds=1e-9)) == (1, "limit:seconds")


def test_a_run_that_has_time_goes_on():
    assert requests_until_the_end(Limits(seconds=3600, turns=3)) == (3, "limit:turns")


# --- what is no limit -----------------------------------------------------------------------------------------------


def test_none_is_no_limit():
    answers = [*[reply(call("f"))] * 50, "Done."]
    played = answer(*answers, tools=[CALLS], limits=Limits(turns=None, tokens=None, cost=None, seconds=None))
    assert played.reason == "completed"


@pytest.mark.parametrize("field", ["turns", "tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan"), float("inf")])
def test_a_limit_of_nothing_is_refused_when_it_is_made(field: str, value: Any):
    with pytest.raises(ValueError, match=f"Limits.{field}"):
        Limits(**{field: value})


@pytest.mark.parametrize("value", ["5", True, [1]])
def test_a_limit_that_is_no_number_is_refused_when_it_is_made(value: Any):
    with pytest.raises(TypeError, match=r"Limits\.turns"):
        Limits(turns=value)


def test_a_paused_run_is_paused_at_its_limit_too():
    played = play(
        reply(call("f")),
        tools=[CALLS],
        limits=Limits(turns=1),
        before_tool_call=lambda context, signal: BeforeToolCallResult(pause=True),
    )
    assert played.reason == "paused"
