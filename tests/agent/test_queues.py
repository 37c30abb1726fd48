"""Queued messages are delivered once, in order, and none is lost."""

import random
from typing import Any

import pytest

from agentcore import (
    AbortRequested,
    Agent,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    Limits,
    NothingToContinueError,
    UserMessage,
)
from agentcore._queues import MessageQueue
from agentcore.testing import call, failure, reply, scripted_model
from tests.agent.agent_support import agent_with, requests, roles, said, tool, transcript_problems


def at(kind: str, action: Any, times: int = 1) -> Any:
    """Return a listener that does something at the first events of a type."""
    left = [None] * times

    def listen(event: Any, signal: Any) -> None:
        if event.type == kind and left:
            left.pop()
            action()

    return listen


def test_steering_comes_in_after_the_turn_and_a_follow_up_when_the_run_would_be_done() -> None:
    agent = agent_with(reply(call("echo", id="a")), "second", "third", tools=[tool()])

    def queue() -> None:
        agent.follow_up("and then")
        agent.steer("not so fast")

    agent.subscribe(at("message_update", queue))
    assert agent.prompt("hi").text == "third"

    assert roles(agent) == ["user", "assistant", "toolResult", "user", "assistant", "user", "assistant"]
    assert said(agent) == ["hi", "not so fast", "and then"]
    assert not agent.has_queued_messages()


@pytest.mark.parametrize(("mode", "first_request"), [("one-at-a-time", 2), ("all", 4)])
def test_the_mode_says_how_many_steering_messages_come_in_at_once(mode: str, first_request: int) -> None:
    agent = agent_with("1", "2", "3", "4", steering_mode=mode)
    for text in ("a", "b", "c"):
        agent.steer(text)

    agent.prompt("hi")

    assert said(agent) == ["hi", "a", "b", "c"]
    assert len(requests(agent)[0].messages) == first_request


@pytest.mark.parametrize(("mode", "answers"), [("one-at-a-time", 4), ("all", 2)])
def test_the_mode_says_how_many_follow_ups_come_in_at_once(mode: str, answers: int) -> None:
    agent = agent_with("1", "2", "3", "4", follow_up_mode=mode)
    for text in ("a", "b", "c"):
        agent.follow_up(text)

    agent.prompt("hi")

    assert said(agent) == ["hi", "a", "b", "c"]
    assert roles(agent).count("assistant") == answers


def test_a_queued_message_may_be_any_message_and_keeps_its_identity() -> None:
    message = UserMessage("hm")
    agent = agent_with("1", "2", "3")

    agent.steer(message)
    agent.follow_up(message)
    agent.prompt("hi")

    assert [one is message for one in agent.messages] == [False, True, False, True, False]
    assert not agent.has_queued_messages()


@pytest.mark.parametrize("wrong", [None, 5, ["a"], [UserMessage("a")]])
def test_what_is_no_message_is_not_queued(wrong: Any) -> None:
    agent = agent_with("1")
    for queue in (agent.steer, agent.follow_up):
        with pytest.raises(TypeError, match="text or one message"):
            queue(wrong)
    assert not agent.has_queued_messages()


def test_each_queue_can_be_cleared_alone() -> None:
    agent = agent_with("1", "2")
    agent.steer("a")
    agent.follow_up("b")

    agent.clear_steering_queue()
    assert agent.has_queued_messages()
    agent.clear_follow_up_queue()
    assert not agent.has_queued_messages()
    agent.steer("a")
    agent.follow_up("b")
    agent.clear_all_queues()
    assert not agent.has_queued_messages()

    agent.prompt("hi")
    assert said(agent) == ["hi"]


# --- nothing is lost ------------------------------------------------------------------------------------------------


def stopped(at_text: str) -> Any:
    """Return a listener that aborts when a message with a text is announced, before it is in the transcript."""

    def listen(event: Any, signal: Any) -> None:
        if event.type == "message_start" and getattr(event.message, "content", None) == at_text:
            raise KeyboardInterrupt

    return listen


def test_messages_that_a_run_took_and_did_not_get_to_go_back_to_the_front_in_order() -> None:
    agent = agent_with("1", "2", "3", steering_mode="all")
    for text in ("a", "b", "c"):
        agent.steer(text)
    remove = agent.subscribe(stopped("b"))

    with pytest.raises(KeyboardInterrupt):
        agent.prompt("hi")
    remove()
    agent.steer("d")

    # `b` was announced, so it was closed and is in the transcript; `c` waits, before what came later.
    assert said(agent) == ["hi", "a", "b"]
    assert [message.content for message in agent.status().steering_queue] == ["c", "d"]
    agent.prompt("again")
    assert said(agent) == ["hi", "a", "b", "again", "c", "d"]


def test_follow_ups_that_a_run_did_not_get_to_go_back_too() -> None:
    agent = agent_with("1", "2", "3", follow_up_mode="all")
    for text in ("a", "b", "c"):
        agent.follow_up(text)
    remove = agent.subscribe(stopped("a"))

    with pytest.raises(KeyboardInterrupt):
        agent.prompt("hi")
    remove()

    assert said(agent) == ["hi", "a"]
    assert [message.content for message in agent.status().follow_up_queue] == ["b", "c"]
    agent.prompt("again")
    assert said(agent) == ["hi", "a", "again", "b", "c"]


def test_a_message_that_was_taken_just_before_an_abort_is_still_queued() -> None:
    agent = agent_with("1", "2", "3")
    queue = agent._steering
    take = queue.take

    def take_then_abort(*given: Any) -> Any:
        taken = take(*given)
        if taken:
            assert not agent.has_queued_messages()
            raise AbortRequested("now")
        return taken

    queue.take = take_then_abort
    agent.subscribe(at("message_update", lambda: agent.steer("late")))

    agent.prompt("hi")
    queue.take = take

    assert said(agent) == ["hi"]
    assert agent.has_queued_messages()
    agent.prompt("again")
    assert said(agent) == ["hi", "again", "late"]


def test_after_an_abort_nothing_is_taken_from_the_queues() -> None:
    agent = agent_with(reply(call("echo", id="a")), "2", "3", "4", tools=[tool()])
    agent.subscribe(at("message_update", lambda: (agent.steer("a"), agent.follow_up("b"))))
    remove = agent.subscribe(at("tool_execution_end", agent.abort))

    assert agent.prompt("hi").stop_reason == "aborted"
    remove()

    assert said(agent) == ["hi"]
    agent.continue_()
    assert said(agent) == ["hi", "a", "b"]


def test_a_message_cleared_while_the_run_has_it_is_delivered_or_gone_but_never_queued_again() -> None:
    agent = agent_with("1", "2", "3", steering_mode="all")
    agent.steer("a")
    agent.steer("b")
    agent.subscribe(at("turn_start", agent.clear_all_queues))
    agent.prompt("hi")
    assert said(agent) == ["hi"]

    def clear_and_stop(event: Any, signal: Any) -> None:
        if event.type == "message_start" and getattr(event.message, "content", None) == "a":
            agent.clear_steering_queue()
            agent.steer("c")
            raise KeyboardInterrupt

    agent.steer("a")
    agent.steer("b")
    remove = agent.subscribe(clear_and_stop)
    with pytest.raises(KeyboardInterrupt):
        agent.prompt("more")
    remove()

    assert said(agent) == ["hi", "more", "a"]
    assert [message.content for message in agent.status().steering_queue] == ["c"]


def test_a_queue_lets_a_message_go_only_when_it_is_in_the_transcript() -> None:
    queue = MessageQueue()
    one, two, three = UserMessage("1"), UserMessage("2"), UserMessage("3")
    for message in (one, two, three):
        queue.put(message)
    added: list[Any] = [UserMessage("prompt")]

    assert queue.take("all", added) == (one, two, three)
    assert queue.take("all", added) == ()
    added.append(one)
    added.append(UserMessage("2"))  # equal, but not the one that was taken
    queue.settle(added)

    assert queue.waiting() == (two, three)
    assert queue.take("one-at-a-time", added) == (two,)
    assert queue.waiting() == (three,)
    added.append(two)
    assert queue.take("one-at-a-time", added) == (three,)
    queue.settle(added)
    queue.settle(added)
    assert queue.waiting() == (three,)
    queue.clear()
    assert queue.waiting() == ()


# --- continuing with what is queued ---------------------------------------------------------------------------------


def test_continuing_drains_steering_once_and_skips_the_first_poll_of_that_run() -> None:
    agent = agent_with("1", "2", "3", "4")
    agent.prompt("hi")
    for text in ("a", "b"):
        agent.steer(text)
    agent.follow_up("c")

    agent.continue_()

    # One message is the prompt; the second comes after the answer to the first, not together with it.
    assert [len(request.messages) for request in requests(agent)] == [1, 3, 5, 7]
    assert said(agent) == ["hi", "a", "b", "c"]


def test_continuing_drains_all_of_the_steering_with_that_mode() -> None:
    agent = agent_with("1", "2", steering_mode="all")
    agent.prompt("hi")
    for text in ("a", "b"):
        agent.steer(text)

    agent.continue_()

    assert [len(request.messages) for request in requests(agent)] == [1, 4]


@pytest.mark.parametrize(("mode", "sizes"), [("one-at-a-time", [1, 3, 5]), ("all", [1, 4])])
def test_continuing_drains_the_follow_ups_when_no_steering_waits(mode: str, sizes: list[int]) -> None:
    agent = agent_with("1", "2", "3", follow_up_mode=mode)
    agent.prompt("hi")
    for text in ("a", "b"):
        agent.follow_up(text)

    agent.continue_()

    assert [len(request.messages) for request in requests(agent)] == sizes
    assert said(agent) == ["hi", "a", "b"]


def test_steering_that_comes_while_a_follow_up_is_continued_is_not_skipped() -> None:
    agent = agent_with("1", "2", "3")
    agent.prompt("hi")
    agent.follow_up("a")
    agent.subscribe(at("agent_start", lambda: agent.steer("b")))

    agent.continue_()

    assert [len(request.messages) for request in requests(agent)] == [1, 4]


def test_an_empty_conversation_begins_with_what_is_queued() -> None:
    agent = agent_with("1")
    agent.steer("hi")

    assert agent.continue_().text == "1"
    assert said(agent) == ["hi"]


def test_a_continuation_that_cannot_begin_keeps_the_queue() -> None:
    agent = agent_with("1", "2")
    agent.prompt("hi")
    agent.steer("a")
    agent.tools = [tool(), tool("bad")]
    object.__setattr__(agent.tools[1], "parameters", {"type": "nonsense"})

    with pytest.raises(ValueError, match="bad"):
        agent.continue_()

    assert agent.has_queued_messages()
    agent.tools = ()
    agent.continue_()
    assert said(agent) == ["hi", "a"]


def test_continuing_after_a_failure_answers_the_same_prompt() -> None:
    agent = agent_with(failure("busy"), "fine")
    agent.prompt("hi")
    agent.steer("and")

    assert agent.continue_().text == "fine"
    assert said(agent) == ["hi", "and"]
    with pytest.raises(NothingToContinueError):
        agent.continue_()


# --- whatever happens -----------------------------------------------------------------------------------------------


class Mishaps:
    """A listener that queues messages, and aborts, fails and interrupts the run, as the dice fall."""

    def __init__(self, dice: random.Random, agent: Agent) -> None:
        self.dice = dice
        self.agent = agent
        self.queued: list[str] = []
        self.may_interrupt = False

    def __call__(self, event: Any, signal: Any) -> None:
        fallen = self.dice.random()
        if fallen < 0.05 and len(self.queued) < 8:
            self.queued.append(f"q{len(self.queued)}")
            self.dice.choice([self.agent.steer, self.agent.follow_up])(self.queued[-1])
        elif fallen < 0.06:
            self.agent.abort()
        elif fallen < 0.065:
            raise AbortRequested("as the dice fell")
        elif fallen < 0.07 and self.may_interrupt:
            self.may_interrupt = False  # a second one would be raised at once, with the calls unanswered
            raise KeyboardInterrupt


def unlucky_agent(dice: random.Random) -> Agent:
    calls = [call("echo", id="a"), call("echo", id="b")]
    replies = [dice.choice([failure("busy"), failure("busy", "half"), reply(*calls), "text"]) for _ in range(12)]
    config = AgentLoopConfig(
        model=scripted_model(),
        recover_from_error=lambda context, signal: AgentLoopTurnUpdate() if dice.random() < 0.7 else None,
        should_stop_after_turn=lambda context: dice.random() < 0.15,
        limits=dice.choice([None, None, Limits(turns=2), Limits(turns=4)]),
    )
    modes = {name: dice.choice(["all", "one-at-a-time"]) for name in ("steering_mode", "follow_up_mode")}
    return agent_with(*replies, *["the end"] * 60, tools=[tool()], config=config, **modes)


def begin_a_run(dice: random.Random, agent: Agent, prompt: str) -> None:
    how = dice.randrange(3)
    if how == 0:
        agent.continue_()
    elif how == 1:
        agent.prompt(prompt)
    else:
        list(agent.stream(prompt))


def test_each_message_waits_or_was_delivered_once_whatever_ends_the_runs() -> None:
    dice = random.Random(3)
    for _ in range(150):
        agent = unlucky_agent(dice)
        mishaps = Mishaps(dice, agent)
        agent.subscribe(mishaps)
        for number in range(5):
            mishaps.may_interrupt = True
            try:
                begin_a_run(dice, agent, f"p{number}")
            except (KeyboardInterrupt, NothingToContinueError):
                pass
            status = agent.status()
            waiting = [message.content for message in status.steering_queue + status.follow_up_queue]
            delivered = [text for text in said(agent) if text.startswith("q")]
            assert sorted(delivered + waiting) == sorted(mishaps.queued)
            assert transcript_problems(agent.messages) == []
