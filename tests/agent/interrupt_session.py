"""Interrupt an agent with a session at one point after another, and say where a message was lost or stored twice.

`python interrupt_session.py SCENARIO FIRST STEP` plays the scenario again and again on the main thread; the n-th time a
`KeyboardInterrupt` is raised at the n-th instruction where the interpreter may notice a signal, in the modules that keep
the conversation. Prints one JSON object: how many points there were, and the faults.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from agentcore import Agent, AgentLoopTurnUpdate, CompactionSummaryMessage
from agentcore.sessions import Session
from agentcore.testing import call, reply, scripted, scripted_model
from tests.agent.agent_support import said, tool, transcript_problems
from tests.loop.interrupt_sweep import Interrupter

MODULES = {"agent.py", "_agent_run.py", "_conversation.py", "jsonl.py", "_lines.py", "_files.py", "tree.py"}
SECONDS_UNTIL_STUCK = 20.0
SUMMARY = CompactionSummaryMessage("so far", 100, timestamp=5)


class SessionInterrupter(Interrupter):
    """Raises at the n-th point in the modules that keep the conversation."""

    def __init__(self, at: int) -> None:
        super().__init__(at, "signals")

    def is_watched(self, frame: FrameType) -> bool:
        return super().is_watched(frame) and Path(frame.f_code.co_filename).name in MODULES


class FailsOnce(Session):
    """A session that fails to write its third message, once."""

    tried = 0

    def append(self, message: Any) -> str:
        self.tried += 1
        if self.tried == 3:
            raise OSError("full")
        return super().append(message)


def compacting(agent: Agent) -> Any:
    def compact(context: Any, signal: Any) -> AgentLoopTurnUpdate | None:
        if not context.tool_results:
            return None
        kept = agent.messages[1:]
        agent.apply_compaction(SUMMARY, kept)
        return AgentLoopTurnUpdate(context=attrs.evolve(context.context, messages=[SUMMARY, *kept]))

    return compact


def act(name: str, agent: Agent) -> None:
    if name == "stream":
        for _ in agent.stream("hi"):
            pass
    elif name == "between":
        agent.apply_compaction(SUMMARY, agent.messages[1:])
    else:
        agent.prompt("hi")


def interrupted_at(name: str, at: int, folder: Path) -> tuple[SessionInterrupter, list[str]]:
    """Play a scenario with an interrupt at one point; return what was wrong afterwards."""
    session = (FailsOnce if name == "failing" else Session).create(folder / str(at))
    calls = reply("Hm", call("echo", id="a"), call("echo", id="b"))
    agent = Agent(scripted_model(), tools=[tool()], stream_fn=scripted(calls, *["text"] * 20), session=session)
    if name == "compact":
        agent.prepare_next_turn = compacting(agent)
    if name == "between":
        agent.prompt("hi")
    interrupter = SessionInterrupter(at)
    raised: BaseException | None = None
    faulthandler.dump_traceback_later(SECONDS_UNTIL_STUCK, exit=True)
    if sys.version_info >= (3, 12):
        sys._getframe().f_trace_opcodes = True  # these versions want to be told before
    sys.settrace(interrupter)
    try:
        act(name, agent)
    except BaseException as error:
        raised = error
    finally:
        sys.settrace(None)
    problems = []
    if interrupter.where is not None and not isinstance(raised, KeyboardInterrupt):
        problems.append("the interrupt came out as " + "".join(traceback.format_exception(raised)))
    del raised
    problems += disorder(agent, session)
    faulthandler.cancel_dump_traceback_later()
    session.close()
    return interrupter, problems


def go_on(agent: Agent) -> None:
    if agent.pending_calls:
        agent.resume({})
    if "after" not in said(agent):
        agent.prompt("after")


def disorder(agent: Agent, session: Session) -> list[str]:
    """Return what is wrong with an agent and its session after a run that may have been interrupted."""
    if not agent.wait_for_idle(SECONDS_UNTIL_STUCK / 2):
        return ["it stays busy"]
    agent.prepare_next_turn = None
    problems = []
    try:
        try:
            go_on(agent)
        except OSError:  # it was interrupted before the disk was full
            go_on(agent)
    except Exception as error:
        return [f"it cannot go on: {error!r}"]
    problems += transcript_problems(agent.messages)
    again = Session.read(session.path)
    problems += [problem.what for problem in again.problems if type(session) is Session]
    if said(agent).count("after") != 1:
        problems.append("the next prompt was lost")
    if again.messages() != session.messages():
        problems.append("the file holds something else than the session")
    # An interrupt between a compaction's being noted and being done leaves the session compacted and the agent not.
    if again.messages() != agent.messages and (again.messages()[:1] != [SUMMARY] or agent.messages[:1] == [SUMMARY]):
        told = [[getattr(one, "role", "") for one in messages] for messages in (again.messages(), agent.messages)]
        problems.append(f"the session holds {told[0]}, the agent {told[1]}")
    return problems


def sweep(name: str, first: int, step: int) -> dict[str, Any]:
    """Interrupt a scenario at each point in turn."""
    faults: dict[str, str] = {}
    at = first
    with tempfile.TemporaryDirectory() as folder:
        while True:
            interrupter, problems = interrupted_at(name, at, Path(folder))
            if problems:
                faults.setdefault(f"{interrupter.where} ({'; '.join(problems)})", f"point {at}")
            if interrupter.where is None:
                return {"points": interrupter.count, "faults": faults}
            at += step


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(sweep(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
