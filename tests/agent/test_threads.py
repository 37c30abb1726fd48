"""What the `Threads:` paragraph of `Agent` promises and no other test proves: signal handlers, and what never waits."""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore import Agent, ToolResultMessage
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.agent.agent_support import agent_with, said, tool, transcript_problems


@pytest.fixture
def handler_of() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Return what installs a handler of a signal."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(act: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda number, frame: act() and None)

    yield install
    signal.signal(signal.SIGUSR1, before)


def hammer(over: threading.Event) -> threading.Thread:
    """Send the signal to this process again and again."""

    def send() -> None:
        while not over.wait(0.0003):
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_a_signal_handler_may_call_everything_between_any_two_steps_of_a_run(handler_of: Any) -> None:
    def answer(request: Any) -> Any:
        return reply("some text", *[call("echo") for _ in range(next(numbers) % 3)], chunk=3)

    numbers = itertools.count()
    agent = Agent(scripted_model(), tools=[tool()], stream_fn=scripted(answer, repeat=True), steering_mode="all")
    accepted: list[str] = []

    def act() -> None:
        number = len(accepted)
        agent.subscribe(lambda event, signal: None)()
        agent.status(), agent.state, agent.pending_calls, agent.has_queued_messages()
        agent.abort_tool("none")
        if number < 300:
            accepted.append(str(number))
            [agent.steer, agent.follow_up][number % 2](str(number))
        if number % 7 == 6:
            agent.abort()

    over = threading.Event()
    handler_of(act)
    thread = hammer(over)
    try:
        for _ in range(150):
            agent.prompt("prompted")
    finally:
        over.set()
        thread.join(20)
    agent.prompt("last")

    assert len(accepted) > 20
    assert not agent.has_queued_messages()
    assert transcript_problems(agent.messages) == []
    assert sorted(said(agent)) == sorted([*accepted, *["prompted"] * 150, "last"])


def test_a_signal_handler_may_clear_the_queues_between_any_two_steps(handler_of: Any) -> None:
    agent = agent_with(reply("text", chunk=1), repeat=True)
    over = threading.Event()
    handler_of(agent.clear_all_queues)
    thread = hammer(over)
    try:
        for number in range(300):
            agent.steer(f"s{number}")
            agent.follow_up(f"f{number}")
            agent.prompt("prompted")
    finally:
        over.set()
        thread.join(20)

    queued = [text for text in said(agent) if text != "prompted"]
    assert len(queued) == len(set(queued))
    agent.clear_all_queues()
    assert not agent.has_queued_messages()


def test_nothing_that_is_safe_from_any_thread_waits_for_a_run_that_stands_still() -> None:
    with Gate() as gate:
        agent = agent_with(reply(gate, "text"), "more", "more", tools=[tool()])
        stream = agent.stream("hi")
        gate.wait_reached()
        # On this thread, while the run cannot move: each of these returns.
        agent.steer("a")
        agent.follow_up("b")
        agent.subscribe(lambda event, signal: None)()
        assert agent.status().phase == "streaming"
        assert agent.state.is_streaming
        assert agent.pending_calls == []
        assert agent.has_queued_messages()
        agent.clear_steering_queue()
        agent.clear_follow_up_queue()
        agent.clear_all_queues()
        assert agent.abort_tool("a") is False
        agent.abort()
        stream.result(20)


def test_arguments_are_prepared_on_the_thread_of_the_run_and_executed_on_workers() -> None:
    names: dict[str, str] = {}

    def prepare(arguments: Any) -> Any:
        names["prepare"] = threading.current_thread().name
        return arguments

    def execute(*given: Any) -> str:
        names["execute"] = threading.current_thread().name
        return "ran"

    agent = agent_with(
        reply(call("echo")),
        "Done.",
        reply(call("echo")),
        "Done.",
        tools=[tool(execute=execute, prepare_arguments=prepare)],
    )
    agent.prompt("hi")
    assert names == {"prepare": "MainThread", "execute": "agentcore-tool-echo-1"}
    agent.tool_execution = "sequential"
    agent.prompt("hi")
    assert names == {"prepare": "MainThread", "execute": "MainThread"}
    assert sum(isinstance(message, ToolResultMessage) for message in agent.messages) == 2
