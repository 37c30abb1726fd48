"""A run ends by itself at the limit that was asked for, with every call answered, and goes on with a fresh allowance."""

from typing import Any

import pytest

from agentcore import Agent, Limits, Usage, UserMessage
from agentcore.testing import call, reply, scripted, scripted_model
from tests.agent.agent_support import tool, transcript_problems

PRICED = scripted_model(cost={"input": 1000.0, "output": 1000.0})
SPENT = Usage(input=60, output=40)  # 100 tokens, 0.1 USD


def eager(limits: Limits, *, arguments: Any = None, clock: Any = lambda: None) -> tuple[Agent, list[str]]:
    """Return an agent whose model always calls the same tool, and the list of reasons that its runs end with."""

    def again(request: Any) -> Any:
        clock()
        one = call("echo")
        if arguments is not None:
            object.__setattr__(one, "partial_json", arguments)
        return reply(one, usage=SPENT)

    agent = Agent(PRICED, tools=[tool()], stream_fn=scripted(again, repeat=True), limits=limits)
    reasons: list[str] = []
    agent.subscribe(lambda event, signal: reasons.append(event.reason) if event.type == "agent_end" else None)
    return agent, reasons


@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(turns=1), "limit:turns", 1),
        (Limits(turns=5), "limit:turns", 5),
        (Limits(tokens=1), "limit:tokens", 1),
        (Limits(tokens=350), "limit:tokens", 4),
        (Limits(tokens=400), "limit:tokens", 4),
        (Limits(cost=0.05), "limit:cost", 1),
        (Limits(cost=0.45), "limit:cost", 5),
        (Limits(seconds=1e-9), "limit:seconds", 1),
        (Limits(turns=3, tokens=10_000, cost=100.0, seconds=1000.0), "limit:turns", 3),
    ],
)
def test_a_model_that_never_stops_calling_is_stopped(limits: Limits, reason: str, turns: int) -> None:
    agent, reasons = eager(limits)

    last = agent.prompt("hi")

    assert reasons == [reason]
    assert agent.status().turn == turns
    assert agent.status().usage.total_tokens == 100 * turns
    assert agent.status().cost == pytest.approx(0.1 * turns)
    assert last.stop_reason == "tool_use"
    assert transcript_problems(agent.messages) == []
    assert agent.messages[-1].role == "toolResult"
    assert agent.state.error_message is None


def test_continuing_after_a_limit_has_a_fresh_allowance() -> None:
    agent, reasons = eager(Limits(turns=2))
    agent.prompt("hi")

    for _ in range(3):
        agent.continue_()
        assert agent.status().turn == 2
        assert agent.status().usage.total_tokens == 200

    assert reasons == ["limit:turns"] * 4
    assert len(agent.messages) == 1 + 4 * 2 * 2
    assert transcript_problems(agent.messages) == []


def test_a_limit_can_be_raised_between_runs() -> None:
    agent, _ = eager(Limits(turns=2))
    agent.prompt("hi")
    agent.limits = Limits(turns=3)

    agent.continue_()

    assert agent.status().turn == 3


def test_calls_that_were_paid_for_and_could_not_be_used_count() -> None:
    agent, reasons = eager(Limits(tokens=350), arguments='["no object"]')

    agent.prompt("hi")

    assert reasons == ["limit:tokens"]
    assert agent.status().usage.total_tokens == 400
    results = [message for message in agent.messages if message.role == "toolResult"]
    assert len(results) == 4
    assert all(result.is_error for result in results)


@pytest.mark.parametrize("name", ["turns", "tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan"), float("inf")])
def test_a_limit_of_nothing_is_refused_and_none_is_no_limit(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})
    assert getattr(Limits(**{name: None}), name) is None


def test_without_limits_an_agent_goes_on_as_long_as_the_model_does() -> None:
    answers = [reply(call("echo"), usage=SPENT)] * 60
    agent = Agent(PRICED, tools=[tool()], stream_fn=scripted(*answers, "Done."), limits=Limits())

    assert agent.prompt("hi").text == "Done."
    assert agent.status().turn == 61


def test_a_cost_limit_needs_prices_when_it_is_asked_for() -> None:
    with pytest.raises(ValueError, match="prices"):
        Agent(scripted_model(), limits=Limits(cost=1.0))
    agent = Agent(PRICED, limits=Limits(cost=1.0))
    with pytest.raises(ValueError, match="prices"):
        agent.model = scripted_model()
    assert agent.model is PRICED


def test_messages_that_wait_are_kept_for_the_run_after_the_limit() -> None:
    agent, _ = eager(Limits(turns=1))
    agent.follow_up("later")
    agent.subscribe(lambda event, signal: agent.steer("now") if event.type == "turn_end" else None)

    agent.prompt("hi")

    assert [message.content for message in agent.messages if isinstance(message, UserMessage)] == ["hi"]
    assert [message.content for message in agent.status().steering_queue] == ["now"]
    assert [message.content for message in agent.status().follow_up_queue] == ["later"]
