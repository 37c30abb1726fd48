"""The tools in a real run: arguments mended and checked by the loop, calls side by side, aborts and Ctrl-C."""

import threading
import time
from pathlib import Path

import pytest

from agentcore import (
    AbortController,
    Agent,
    AgentContext,
    AgentLoopConfig,
    ToolExecutionUpdateEvent,
    ToolResultMessage,
    run_agent_loop,
)
from agentcore.testing import DemoServer, call, reply, scripted, scripted_model
from agentcore.toolkit import coding_tools, create_bash_tool, create_read_tool, create_write_tool


def results_of(messages) -> list[tuple[bool, str]]:
    return [
        (message.is_error, "".join(block.text for block in message.content))
        for message in messages
        if isinstance(message, ToolResultMessage)
    ]


def run(folder: Path, *replies, emit=lambda _event: None, **config) -> list:
    context = AgentContext(system_prompt="", tools=coding_tools(folder))
    return run_agent_loop(
        "go", context, AgentLoopConfig(model=scripted_model(), **config), emit, stream_fn=scripted(*replies, "done")
    )


def test_a_file_is_written_edited_read_and_run(tmp_path: Path) -> None:
    messages = run(
        tmp_path,
        reply(call("write", path="hello.py", content="print('hello')\n")),
        reply(call("edit", file_path="hello.py", edits='[{"old_text": "hello", "new_text": "goodbye"}]')),
        reply(call("read", path="hello.py"), call("bash", command="python3 hello.py", timeout="30")),
    )

    assert results_of(messages) == [
        (False, "File written: hello.py (15 bytes)"),
        (False, "Edit applied: hello.py (1 replacement, at line 1)"),
        (False, "print('goodbye')\n"),
        (False, "goodbye\n"),
    ]


def test_an_agent_with_hooks_lists_a_folder_and_reads_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("# First\n\nLine.\n")
    (tmp_path / "b.md").write_text("second\n")
    monkeypatch.chdir(tmp_path)
    told = []

    def before(context, _signal) -> None:
        told.append(f"about to execute: {context.tool_call.name}")

    def after(context, _signal) -> None:
        told.append(f"{'failed' if context.is_error else 'completed'}: {context.tool_call.name}")

    with DemoServer() as server:
        agent = Agent(
            server.model,
            system_prompt="You are a helpful assistant with file system access.",
            tools=[create_bash_tool(), create_read_tool(), create_write_tool()],
            before_tool_call=before,
            after_tool_call=after,
        )
        answer = agent.prompt("List files in current directory and read the first one")

    assert told == [
        "about to execute: bash",
        "completed: bash",
        "about to execute: read",
        "completed: read",
    ]
    assert results_of(agent.state.messages) == [(False, "a.md\nb.md\n"), (False, "# First\n\nLine.\n")]
    assert "# First" in answer.text


@pytest.mark.parametrize("timeout", [0, -5, 1e12, float("nan"), True, "soon"])
def test_a_nonsense_timeout_is_an_error_result_and_nothing_runs(tmp_path: Path, timeout: object) -> None:
    [(is_error, text)] = results_of(run(tmp_path, reply(call("bash", command="touch ran", timeout=timeout))))

    assert is_error
    assert "timeout" in text
    assert not (tmp_path / "ran").exists()


def test_arguments_that_are_missing_are_error_results_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("precious")
    messages = run(
        tmp_path,
        reply(call("write", path="a.txt")),
        reply(call("edit", path="a.txt", find="precious")),
        reply(call("read")),
        reply(call("bash")),
    )

    assert [is_error for is_error, _ in results_of(messages)] == [True] * 4
    assert (tmp_path / "a.txt").read_text() == "precious"


def test_parallel_edits_of_one_file_all_land(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"<{n}>\n" for n in range(8)))
    calls = [call("edit", path="a.txt", find=f"<{n}>", replacement=f"<done {n}>") for n in range(8)]

    messages = run(tmp_path, reply(*calls))

    assert [is_error for is_error, _ in results_of(messages)] == [False] * 8
    assert (tmp_path / "a.txt").read_text() == "".join(f"<done {n}>\n" for n in range(8))


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_progress_reaches_the_listener_on_the_loops_thread(tmp_path: Path, mode: str) -> None:
    seen = []

    def emit(event) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            seen.append((threading.get_ident(), event.partial_result.content[0].text))

    run(tmp_path, reply(call("bash", command="echo 1; sleep 0.4; echo 2; sleep 0.4")), emit=emit, tool_execution=mode)

    assert {thread for thread, _ in seen} == {threading.get_ident()}
    assert [text for _, text in seen] in (["1\n", "1\n2\n"], ["1\n2\n"])  # the latter on a busy machine


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_an_abort_ends_a_command_within_the_grace_and_keeps_its_output(
    tmp_path: Path, mode: str, ends, appears
) -> None:
    controller = AbortController()
    pid = tmp_path / "pid"

    def abort() -> None:
        appears(pid)
        started.append(time.monotonic())
        controller.abort("enough")

    started: list[float] = []
    thread = threading.Thread(target=abort)
    thread.start()
    command = f"echo so far; echo $$ > {pid}.new; mv {pid}.new {pid}; trap '' TERM; sleep 300"
    messages = run(tmp_path, reply(call("bash", command=command)), signal=controller.signal, tool_execution=mode)
    took = time.monotonic() - started[0]
    thread.join()

    assert results_of(messages) == [(True, "so far\n[The command was aborted: enough.]")]
    assert took < 1.5
    assert ends(int(appears(pid)))


def test_ctrl_c_during_a_sequential_command_ends_it_and_is_raised(python, ends, appears, tmp_path: Path) -> None:
    script = """
import os, signal, sys, threading, time
from agentcore import AgentContext, AgentLoopConfig, run_agent_loop
from agentcore.testing import DemoServer, call, reply, scripted, scripted_model
from agentcore.toolkit import coding_tools, create_bash_tool, create_read_tool, create_write_tool
pid, folder = sys.argv[1:]
def interrupt():
    while not os.path.exists(pid):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
command = f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 300"
config = AgentLoopConfig(model=scripted_model(), tool_execution="sequential")
context = AgentContext(system_prompt="", tools=coding_tools(folder))
events = []
try:
    run_agent_loop("go", context, config, events.append, stream_fn=scripted(reply(call("bash", command=command)), "x"))
except KeyboardInterrupt:
    print("interrupted", events[-1].type)
"""
    output, errors = python(script, tmp_path / "pid", tmp_path).communicate(timeout=30)

    assert (output, errors) == ("interrupted agent_end\n", "")
    assert ends(int(appears(tmp_path / "pid")))
