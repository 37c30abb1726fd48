"""Ctrl-C ends what an agent does, wherever it comes, and the same agent goes on with the next prompt."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore import AbortController, AgentToolResult, EventStream, ToolExecutionEndEvent
from agentcore import agent as agent_module
from agentcore._agent_run import AgentRun
from agentcore.testing import Gate, call, reply
from tests.agent.agent_support import agent_with, tool

HERE = Path(__file__).parent


# --- whose handler it is --------------------------------------------------------------------------------------------


def own_handler(number: int, frame: Any) -> None:
    """Stands for the handler of an event loop."""


@pytest.fixture
def another_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, own_handler)
    yield
    signal.signal(signal.SIGINT, before)


def handlers_seen(in_loop: bool, on_main_thread: bool = True, act: Callable[[], object] = lambda: None) -> list[Any]:
    """Return the handler during a run and after it."""
    seen: list[Any] = []

    def look(event: Any, signal_of_run: Any) -> None:
        if event.type == "turn_start":
            seen.append(signal.getsignal(signal.SIGINT))
            act()

    def run() -> None:
        agent = agent_with("text")
        agent.subscribe(look)
        agent.prompt("hi")
        seen.append(signal.getsignal(signal.SIGINT))

    async def main() -> None:
        run()

    def begin() -> None:
        if not in_loop:
            run()
            return
        loop = asyncio.new_event_loop()  # not `asyncio.run`, which has a handler of its own from 3.11 on
        loop.run_until_complete(main())
        loop.close()

    if on_main_thread:
        begin()
    else:
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join(20)
    return seen


@pytest.mark.usefixtures("another_handler")
def test_the_handler_of_an_event_loop_is_replaced_for_the_run_only() -> None:
    assert handlers_seen(in_loop=True) == [signal.default_int_handler, own_handler]


@pytest.mark.usefixtures("another_handler")
def test_any_other_handler_is_left_alone() -> None:
    assert handlers_seen(in_loop=False) == [own_handler, own_handler]
    assert handlers_seen(in_loop=True, on_main_thread=False) == [own_handler, own_handler]


@pytest.mark.usefixtures("another_handler")
def test_a_handler_that_somebody_sets_during_the_run_stays() -> None:
    def newer(number: int, frame: Any) -> None: ...

    assert handlers_seen(in_loop=True, act=lambda: signal.signal(signal.SIGINT, newer))[1] is newer


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.default_int_handler])
@pytest.mark.usefixtures("another_handler")
def test_an_event_loop_without_a_handler_of_its_own_changes_nothing(ignored: Any) -> None:
    signal.signal(signal.SIGINT, ignored)

    assert handlers_seen(in_loop=True) == [ignored, ignored]


@pytest.mark.usefixtures("another_handler")
def test_without_any_event_loop_in_the_process_the_handler_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "asyncio")

    assert handlers_seen(in_loop=False) == [own_handler, own_handler]


@pytest.mark.usefixtures("another_handler")
def test_an_agent_in_a_sequential_tool_of_another_leaves_the_handler_to_the_outer_run() -> None:
    seen: list[Any] = []

    def delegate(*given: Any) -> str:
        agent_with("inner").prompt("x")
        seen.append(signal.getsignal(signal.SIGINT))
        return "ran"

    outer = agent_with(reply(call("echo")), "Done.", tools=[tool(execute=delegate)], tool_execution="sequential")

    async def main() -> None:
        outer.prompt("hi")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert seen == [signal.default_int_handler]
    assert signal.getsignal(signal.SIGINT) is own_handler


# --- while a stream begins ------------------------------------------------------------------------------------------


def test_an_interrupt_before_the_thread_of_a_stream_has_begun_keeps_the_run_from_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Any] = []

    def interrupted(run: Any, **options: Any) -> Any:
        runs.append(run)
        raise KeyboardInterrupt

    agent = agent_with("text", "more")
    with monkeypatch.context() as patch:
        patch.setattr(agent_module, "EventStream", interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.stream("hi")
    assert not agent.state.is_streaming

    emitted: list[Any] = []
    runs[0](emitted.append, AbortController().signal, [])  # the thread comes after all
    assert (emitted, agent.messages) == ([], [])
    assert agent.prompt("again").text == "text"


def test_an_interrupt_when_the_thread_of_a_stream_has_begun_aborts_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def interrupted(run: Any, **options: Any) -> Any:
        kept.append(EventStream(run, **options))
        gate.wait_reached()
        raise KeyboardInterrupt

    with Gate() as gate:
        agent = agent_with(reply("half", gate, " and whole"), "more")
        with monkeypatch.context() as patch:
            patch.setattr(agent_module, "EventStream", interrupted)
            with pytest.raises(KeyboardInterrupt):
                agent.stream("hi")
        assert agent.wait_for_idle(20)

    assert agent.state.error_message == "interrupted"
    assert agent.messages[-1].stop_reason == "aborted"
    assert agent.prompt("again").text == "more"


def test_a_stream_whose_run_cannot_begin_after_all_raises_at_its_reader_and_frees_the_agent() -> None:
    agent = agent_with("text", "more")
    extended: list[Any] = []

    def extend(config: Any) -> Any:
        extended.append(config)
        if len(extended) == 2:
            raise LookupError("gone")
        return config

    take_back = agent.extend_runs(extend)
    stream = agent.stream("hi")
    with pytest.raises(LookupError, match="gone"):
        stream.result(20)
    take_back()

    assert list(stream.messages) == []
    assert agent.prompt("again").text == "text"


def test_an_end_of_a_call_whose_start_was_not_taken_in_is_no_trouble() -> None:
    record = AgentRun()

    record.take(ToolExecutionEndEvent("a", "echo", AgentToolResult("x"), False))

    assert record.started_calls == []


# --- Ctrl-C in a process of its own ---------------------------------------------------------------------------------

CHILD = """
import asyncio, json, os, sys, threading, time
from agentcore import Agent, AgentTool, UserMessage, approvals
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.testing import call, reply, scripted, scripted_model
from tests.agent.agent_support import transcript_problems

def ready():
    os.write(1, b"ready\\n")

def stuck(*given):
    ready()
    time.sleep(600)

def loop(*given):
    ready()
    while True:
        pass

def slow_model(request):
    ready()
    request.options.signal.wait(600)
    return "too late"

def once(event, signal):
    if event.type == "message_update" and not heard:
        heard.append(event)
        loop()

def ask(context, signal):
    ready()
    return None if approvals.wait(threading.Event(), signal) else None

def patient(tool_call_id, params, signal, on_update, context):
    ready()
    signal.wait(600)
    seen.append(signal.aborted)
    return "stopped"

heard, seen = [], []
where = sys.argv[1]
first = slow_model if where in ("model", "stream", "wait_for_idle") else reply("Hm", call("work", id="a"), call("work", id="b"))
execute = {"parallel": stuck, "event loop": stuck, "sequential": loop, "patient": patient}.get(where, lambda *given: "ran")
agent = Agent(
    scripted_model(),
    tools=[AgentTool("work", "Work", "Works.", {"type": "object"}, execute)],
    stream_fn=scripted(first, "fine", "fine"),
    tool_execution="sequential" if where == "sequential" else "parallel",
    before_tool_call=ask if where == "hook" else None,
)
if where == "listener":
    agent.subscribe(once)
try:
    if where == "stream":
        for event in agent.stream("hi"):
            pass
    elif where == "wait_for_idle":
        stream = agent.stream("hi")
        agent.wait_for_idle()
    elif where == "event loop":
        async def main():
            agent.prompt("hi")
        asyncio.run(main())
    else:
        agent.prompt("hi")
except KeyboardInterrupt:
    raised = time.monotonic()
if where == "wait_for_idle":
    agent.abort()
idle = agent.wait_for_idle(10) if where in ("stream", "wait_for_idle") else not agent.state.is_streaming
error = agent.state.error_message
agent.before_tool_call = None
answer = agent.prompt("again").text
print(json.dumps({
    "raised": raised, "idle": idle, "error": error, "answer": answer, "seen": seen,
    "problems": transcript_problems(agent.messages),
    "roles": [message.role for message in agent.messages],
}), flush=True)
"""


@pytest.mark.parametrize(
    "where",
    ["parallel", "patient", "sequential", "model", "hook", "listener", "stream", "wait_for_idle", "event loop"],
)
def test_ctrl_c_is_raised_in_time_and_the_next_prompt_works(where: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, where], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        told: dict[str, Any] = {}
        for line in child.stdout:
            if line.startswith("{"):
                told = json.loads(line)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

    assert told["raised"] - sent < 4.0  # 1.5 on a machine with nothing else to do
    assert told["idle"] is True
    assert told["answer"] == "fine"
    assert told["problems"] == []
    assert told["error"] in ("interrupted", *(["aborted"] if where == "wait_for_idle" else []))
    assert set(told["seen"]) == ({True} if where == "patient" else set())
    assert told["roles"][0] == "user"
    assert told["roles"][-2:] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("scenario", "first", "step", "how"),
    [
        ("prompt", 1, 13, []),
        ("prompt", 7, 101, ["--all"]),
        ("sequential", 3, 13, []),
        ("recover", 2, 61, ["--all"]),
        ("nested", 5, 211, ["--all"]),
        ("continue", 2, 9, []),
        ("resume", 1, 7, []),
        ("stream", 1, 1, []),
        ("reset", 1, 1, []),
        ("messages", 1, 1, []),
        ("look", 1, 1, []),
    ],
)
def test_an_interrupt_at_any_point_leaves_the_agent_idle_and_loses_nothing(
    scenario: str, first: int, step: int, how: list[str]
) -> None:
    outcome = subprocess.run(
        [sys.executable, str(HERE / "interrupt_agent.py"), scenario, str(first), str(step), *how],
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert outcome.returncode == 0, outcome.stderr
    told = json.loads(outcome.stdout)
    assert told["faults"] == {}
    assert told["points"] > 10  # how many there are depends on the interpreter
