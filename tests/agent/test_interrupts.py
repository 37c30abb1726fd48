"""Ctrl-C ends what an agent does, wherever it comes, and the same agent goes on with the next prompt."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

CHILD = """
import json, os, sys, threading, time
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
execute = {"parallel": stuck, "sequential": loop, "patient": patient}.get(where, lambda *given: "ran")
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
    ["parallel", "patient", "sequential", "model", "hook", "listener", "stream", "wait_for_idle"],
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

    assert told["raised"] - sent < 1.5
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
    assert told["points"] > 50
