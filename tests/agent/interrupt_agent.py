"""Interrupt an agent at one point after another, as Ctrl-C would, and say where it was left in disorder.

`python interrupt_agent.py SCENARIO FIRST STEP [--all]` plays the scenario again and again on the main thread; the n-th
time a `KeyboardInterrupt` is raised at the n-th instruction where the interpreter may notice a signal, in the modules of
the agent or with `--all` in the whole package. Prints one JSON object: how many points there were, and the faults.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from agentcore import Agent, AgentLoopConfig, AgentLoopTurnUpdate, BeforeToolCallResult, UserMessage, allow
from agentcore.testing import call, failure, reply, scripted, scripted_model
from tests.agent.agent_support import said, tool, transcript_problems
from tests.loop.interrupt_sweep import Interrupter

MODULES = {
    *("agent.py", "_agent_run.py", "_agent_settings.py", "_interrupts.py", "_listeners.py"),
    *("_prompts.py", "_queues.py", "_resume.py"),
}
SECONDS_UNTIL_STUCK = 20.0


class AgentInterrupter(Interrupter):
    """Raises at the n-th point in the modules of the agent, or in the whole package."""

    def __init__(self, at: int, everything: bool) -> None:
        super().__init__(at, "signals")
        self.everything = everything

    def is_watched(self, frame: FrameType) -> bool:
        return super().is_watched(frame) and (self.everything or Path(frame.f_code.co_filename).name in MODULES)


def make(*replies: Any, **given: Any) -> Agent:
    agent = Agent(scripted_model(), tools=[tool()], stream_fn=scripted(*replies, *["text"] * 20), **given)
    agent.subscribe(lambda event, signal: None)
    return agent


def queued(agent: Agent) -> Agent:
    for text in ("S1", "S2"):
        agent.steer(text)
    agent.follow_up("F1")
    return agent


def answered() -> Agent:
    agent = make("first")
    agent.prompt("hi")
    return queued(agent)


def paused() -> Agent:
    calls = [call("echo", id=one) for one in "ab"]
    agent = make(reply(*calls), before_tool_call=lambda context, signal: BeforeToolCallResult(pause=True))
    agent.prompt("hi")
    return agent


def recovering() -> Agent:
    config = AgentLoopConfig(model=scripted_model(), recover_from_error=lambda context, signal: AgentLoopTurnUpdate())
    return queued(make("first", failure("busy"), failure("busy"), "at last", config=config))


def nested() -> Agent:
    """Return an agent that prompts another one in a tool on its own thread, and ends in disorder if that one does."""
    inner = queued(make(reply(call("echo", id="a"), call("echo", id="b")), tool_execution="sequential"))

    def ask(*given: Any) -> str:
        return inner.prompt(f"from {given[0]}").text

    def look_inside(event: Any, signal: Any) -> None:
        if event.type == "agent_end" and (problems := transcript_problems(inner.messages)):
            raise SystemExit(f"the inner agent: {problems}")

    outer = make(reply(call("ask", id="a"), call("ask", id="b")), tool_execution="sequential")
    outer.tools = [tool("ask", ask)]
    outer.subscribe(look_inside)
    return queued(outer)


def read(agent: Agent) -> None:
    stream = agent.stream("streamed")
    for _ in stream:
        pass


def look(agent: Agent) -> None:
    agent.wait_for_idle(0.0)
    agent.status(), agent.state, agent.pending_calls, agent.has_queued_messages()
    agent.subscribe(lambda event, signal: None)()
    agent.abort()
    agent.abort_tool("a")


SCENARIOS: dict[str, tuple[Callable[[], Agent], Callable[[Agent], object]]] = {
    "prompt": (
        lambda: queued(make(reply("Hm", call("echo", id="a"), call("echo", id="b")), steering_mode="all")),
        lambda agent: agent.prompt("hi"),
    ),
    "sequential": (
        lambda: queued(make(reply(call("echo", id="a"), call("echo", id="b")), tool_execution="sequential")),
        lambda agent: agent.prompt("hi"),
    ),
    "recover": (recovering, lambda agent: agent.prompt("hi")),
    "nested": (nested, lambda agent: agent.prompt("hi")),
    "continue": (answered, lambda agent: agent.continue_()),
    "resume": (paused, lambda agent: agent.resume({"a": allow()})),
    "stream": (lambda: queued(make()), read),
    "reset": (answered, lambda agent: agent.reset()),
    "messages": (answered, lambda agent: setattr(agent, "messages", [UserMessage("new")])),
    "look": (answered, look),
}


def interrupted_at(name: str, at: int, everything: bool) -> tuple[AgentInterrupter, list[str]]:
    """Play a scenario with an interrupt at one point; return what was wrong afterwards."""
    prepare, act = SCENARIOS[name]
    agent = prepare()
    before = agent.messages
    interrupter = AgentInterrupter(at, everything)
    raised: BaseException | None = None
    faulthandler.dump_traceback_later(SECONDS_UNTIL_STUCK, exit=True)
    if sys.version_info >= (3, 12):
        sys._getframe().f_trace_opcodes = True  # these versions want to be told before
    sys.settrace(interrupter)
    try:
        act(agent)
    except BaseException as error:
        raised = error
    finally:
        sys.settrace(None)
    problems = []
    if interrupter.where is not None and not isinstance(raised, KeyboardInterrupt):
        problems.append("the interrupt came out as " + "".join(traceback.format_exception(raised)))
    del raised
    problems += disorder(name, agent, before)
    faulthandler.cancel_dump_traceback_later()
    return interrupter, problems


def disorder(name: str, agent: Agent, before: list[Any]) -> list[str]:
    """Return what is wrong with an agent whose run may have been interrupted."""
    problems = []
    if not agent.wait_for_idle(SECONDS_UNTIL_STUCK / 2):
        return ["it stays busy"]
    if agent.state.is_streaming or agent.status().phase != "idle":
        problems.append("it does not say that it is idle")
    if name not in ("reset", "messages") and [*map(id, agent.messages[: len(before)])] != [*map(id, before)]:
        problems.append("the transcript of before has changed")
    try:
        if agent.pending_calls:
            agent.resume({})
        agent.prompt("after")
        agent.prompt("at last")
    except Exception as error:
        return [*problems, f"it cannot go on: {error!r}"]
    problems += transcript_problems(agent.messages)
    if agent.has_queued_messages():
        problems.append("messages stay in the queue")
    texts = said(agent)
    if name not in ("resume", "reset", "messages"):
        problems += [
            f"{one} was delivered {texts.count(one)} times" for one in ("S1", "S2", "F1") if texts.count(one) != 1
        ]
    if texts.count("after") != 1:
        problems.append("the next prompt was lost")
    return problems


def sweep(name: str, first: int, step: int, everything: bool) -> dict[str, Any]:
    """Interrupt a scenario at each point in turn."""
    faults: dict[str, str] = {}
    at = first
    while True:
        interrupter, problems = interrupted_at(name, at, everything)
        if problems:
            faults.setdefault(f"{interrupter.where} ({'; '.join(problems)})", f"point {at}")
        if interrupter.where is None:
            return {"points": interrupter.count, "faults": faults}
        at += step


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(sweep(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "--all" in sys.argv)))
