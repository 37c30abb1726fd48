"""What has left a command's process group ends with the command's timeout or abort all the same, and nothing else does."""

import os
import signal as signals
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcore.abort import AbortController
from agentcore.toolkit import BashToolOptions, _process, create_bash_tool
from agentcore.toolkit._escaped import Escaped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="such processes can be found on Linux only")

SLEEPS = "echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300"
STUBBORN = "trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 0.05; done"
WAYS = {
    "in the background": "setsid bash -c '{script}' & sleep 300",
    "as an orphan": "(setsid bash -c '{script}' &); sleep 300",
    "twice": "setsid bash -c 'setsid bash -c \"$0\" & sleep 300' '{script}' & sleep 300",
    "without output": "(setsid bash -c '{script}' >/dev/null 2>&1 &); sleep 300",
    "in the foreground": "setsid --wait bash -c '{script}'",
}


def command_of(way: str, script: str, pid: Path) -> str:
    return WAYS[way].format(script=script.format(pid=pid).replace("'", "'\\''"))


def run_and_abort(use, command: str, when, **options):
    controller = AbortController()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            use, create_bash_tool(BashToolOptions(**options)), command=command, signal=controller.signal
        )
        try:
            when()
        finally:
            controller.abort()
        return future.result(30)


@pytest.mark.parametrize("script", [SLEEPS, STUBBORN], ids=["obedient", "stubborn"])
@pytest.mark.parametrize("way", WAYS)
def test_an_abort_ends_what_has_left_the_group(use, ends, appears, tmp_path: Path, way: str, script: str) -> None:
    pid = tmp_path / "pid"
    result = run_and_abort(use, command_of(way, script, pid), lambda: appears(pid))

    assert result.details.aborted
    assert ends(int(appears(pid)))


def test_a_timeout_ends_what_has_left_the_group(use, ends, appears, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    result = use(create_bash_tool(), command=command_of("as an orphan", STUBBORN, pid), timeout=3)

    assert result.details.timed_out
    assert ends(int(appears(pid)))


def test_it_is_found_whatever_environment_the_command_was_given(use, ends, appears, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = command_of("as an orphan", SLEEPS, pid)
    run_and_abort(use, f"PATH={os.environ['PATH']}; {command}", lambda: appears(pid), inherit_env="none")

    assert ends(int(appears(pid)))


def test_it_is_asked_first_and_has_the_time_to_clean_up(
    use, ends, appears, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_process, "KILL_DELAY", 2.0)  # on a busy machine too
    pid, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    script = f"trap 'sleep 0.05; echo cleaned >> {cleaned}; exit' TERM; " + STUBBORN.partition("; ")[2]
    run_and_abort(use, command_of("as an orphan", script, pid), lambda: appears(pid))

    assert ends(int(appears(pid)))
    assert cleaned.read_text() == "cleaned\n"


def test_what_is_in_the_group_is_asked_once(use, text_of, appears, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = "trap 'echo asked' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.02; done"
    result = run_and_abort(use, f"{script.format(pid)}", lambda: appears(pid))

    assert text_of(result).count("asked") == 1
    assert result.details.exit_code == -signals.SIGKILL


def test_what_a_command_that_ended_by_itself_has_left_running_lives_on(use, ends, appears, tmp_path: Path) -> None:
    pid, other = tmp_path / "pid", tmp_path / "other"
    tool = create_bash_tool()
    script = SLEEPS.format(pid=pid)
    assert not use(tool, command=f"setsid bash -c '{script}' >/dev/null 2>&1 &").is_error
    number = int(appears(pid))
    try:
        # Neither the end of its own command nor that of another one touches it.
        run_and_abort(use, command_of("as an orphan", STUBBORN, other), lambda: appears(other))
        assert ends(int(appears(other)))
        os.kill(number, 0)
    finally:
        os.kill(number, signals.SIGKILL)
    assert ends(number)


def test_a_command_of_a_program_that_a_command_runs_ends_with_both(use, ends, appears, tmp_path: Path) -> None:
    # Each command has a session of its own, so the inner one is not in the group of the outer one.
    pid = tmp_path / "pid"
    program = tmp_path / "program.py"
    program.write_text(
        "from agentcore.toolkit import create_bash_tool\n"
        f"create_bash_tool().execute('1', {{'command': {STUBBORN.format(pid=pid)!r}}}, None, None, None)\n"
    )
    run_and_abort(
        use, f"{sys.executable} {program}", lambda: appears(pid), env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )

    assert ends(int(appears(pid)))


LEAVES = """
import os, signal, sys, threading, time
from agentcore.toolkit import create_bash_tool
pid, command, how = sys.argv[1:]
def arrived():
    while not os.path.exists(pid):
        time.sleep(0.01)
def interrupt():
    arrived()
    os.kill(os.getpid(), signal.SIGINT)
run = lambda: create_bash_tool().execute("1", {"command": command}, None, None, None)
if how == "abandoned":
    threading.Thread(target=run, daemon=True).start()
    arrived()
else:
    threading.Thread(target=interrupt).start()
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("how", ["abandoned", "interrupted"])
def test_it_ends_with_the_interpreter_and_with_ctrl_c(python, ends, appears, tmp_path: Path, how: str) -> None:
    pid = tmp_path / "pid"
    process = python(LEAVES, pid, command_of("as an orphan", STUBBORN, pid), how)
    output, errors = process.communicate(timeout=30)

    assert (output, errors) == ("interrupted\n" if how == "interrupted" else "", "")
    assert ends(int(appears(pid)))


# --- the mark ---


def test_marks_add_up_and_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTCORE_COMMANDS", raising=False)
    outer = Escaped().marked({"A": "1"})
    monkeypatch.setenv("AGENTCORE_COMMANDS", outer["AGENTCORE_COMMANDS"])
    inner = Escaped().marked({"AGENTCORE_COMMANDS": "whatever"})

    assert outer == {"A": "1", "AGENTCORE_COMMANDS": outer["AGENTCORE_COMMANDS"]}
    first, second = inner["AGENTCORE_COMMANDS"].split(":")
    assert first == outer["AGENTCORE_COMMANDS"]
    assert second not in ("", first)


@pytest.mark.parametrize(
    "variable", ["OTHER={}", "AGENTCORE_COMMANDS=x{}", "AGENTCORE_COMMANDS={}0", "XAGENTCORE_COMMANDS={}"]
)
def test_what_only_looks_like_the_mark_is_none(python, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    escaped = Escaped()
    mark = escaped.marked({})["AGENTCORE_COMMANDS"].rpartition(":")[2]
    name, _, value = variable.format(mark).partition("=")
    monkeypatch.setenv(name, value)
    process = python("import sys; print(1, flush=True); sys.stdin.read(); import time; time.sleep(300)")
    assert process.stdout.readline() == "1\n"

    assert not escaped.terminate(0)
    assert process.poll() is None
    monkeypatch.setenv("AGENTCORE_COMMANDS", f"other:{mark}")
    marked = python("print(1, flush=True); import time; time.sleep(300)")
    assert marked.stdout.readline() == "1\n"
    assert escaped.terminate(0)
    assert marked.wait(20) == -signals.SIGTERM
    assert process.poll() is None


def test_a_system_without_descriptors_of_processes_will_do(python, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    escaped = Escaped()
    monkeypatch.setenv("AGENTCORE_COMMANDS", escaped.marked({})["AGENTCORE_COMMANDS"])
    marked = python("print(1, flush=True); import time; time.sleep(300)")
    assert marked.stdout.readline() == "1\n"

    escaped.kill(0)

    assert marked.wait(20) == -signals.SIGKILL


def test_a_forked_process_ends_nothing_of_its_parents(python, monkeypatch: pytest.MonkeyPatch) -> None:
    escaped = Escaped()
    monkeypatch.setenv("AGENTCORE_COMMANDS", escaped.marked({})["AGENTCORE_COMMANDS"])
    marked = python("print(1, flush=True); import time; time.sleep(300)")
    assert marked.stdout.readline() == "1\n"
    monkeypatch.setattr(os, "getpid", lambda: 1)

    assert not escaped.terminate(0)
    assert marked.poll() is None
