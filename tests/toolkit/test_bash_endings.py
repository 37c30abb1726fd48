"""How commands end: by themselves, with children in the background, by timeout, abort, Ctrl-C, and with the interpreter."""

import gc
import operator
import os
import signal as signals
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal
from agentcore.toolkit import BashToolOptions, create_bash_tool
from agentcore.toolkit import _process as process_module

# --- children in the background ---


@pytest.mark.parametrize(
    "background",
    [
        "sleep 300",
        "(while :; do echo x; sleep 0.1; done)",
        "(while :; do echo x; done)",
        "sleep 300 2>/dev/null",
        "sleep 300 >/dev/null",
    ],
    ids=["silent", "endless writer", "fast endless writer", "holds stdout", "holds stderr"],
)
def test_a_background_child_that_holds_the_pipe_does_not_keep_the_call(use, text_of, background: str) -> None:
    tool = create_bash_tool(BashToolOptions(max_lines=10**9, max_bytes=10**9))
    started = time.monotonic()
    # The group is put into the output, so that the test can end what the tool rightly leaves running.
    result = use(tool, command=f"echo $$; {background} & echo ok")
    took = time.monotonic() - started
    first, *lines = text_of(result).split("\n")
    try:
        assert "ok" in lines
        assert (result.is_error, result.details.exit_code) == (False, 0)
        assert took < 3
    finally:
        try:
            os.killpg(int(first), signals.SIGKILL)
        except ProcessLookupError:
            pass  # an endless writer ends with the pipe


def test_output_that_comes_shortly_after_the_shell_has_ended_is_kept(use, text_of) -> None:
    result = use(create_bash_tool(), command="(sleep 0.2; echo late) & echo early")

    assert text_of(result) == "early\nlate\n"


def test_a_background_child_lives_on_after_the_call(use, text_of, ends, tmp_path: Path) -> None:
    pid = int(text_of(use(create_bash_tool(), command="sleep 300 >/dev/null 2>&1 & echo $!")))
    try:
        os.kill(pid, 0)
        use(create_bash_tool(), command="true")
        os.kill(pid, 0)
    finally:
        os.kill(pid, signals.SIGKILL)
    assert ends(pid)


def test_a_command_that_closes_its_output_is_waited_for(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(cwd=tmp_path))
    result = use(tool, command="echo before; exec >&- 2>&-; sleep 0.3; touch done; exit 4")

    assert (tmp_path / "done").exists()
    assert result.details.exit_code == 4
    assert text_of(result).startswith("before\n")


# --- timeout ---

STUBBORN = "trap '' TERM HUP INT; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.05; done"


def test_a_timeout_ends_the_whole_group_and_keeps_the_output(use, text_of, ends, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("python3 -c 'import os, time; print(os.getpid(), flush=True); time.sleep(300)'\n")

    result = use(create_bash_tool(), command=f"echo start; sh {script}; echo never", timeout=3)

    lines = text_of(result).splitlines()
    assert lines[0] == "start"
    assert "took longer than 3 s" in lines[-1]
    assert "never" not in lines
    assert (result.is_error, result.details.timed_out, result.details.aborted) == (True, True, False)
    assert ends(int(lines[1]))


def test_what_ignores_being_asked_is_killed(use, text_of, ends, appears, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    result = use(create_bash_tool(), command=f"({STUBBORN.format(pids)}) & {STUBBORN.format(pids)}", timeout=2)

    assert result.details.timed_out
    assert result.details.exit_code == -signals.SIGKILL
    assert ends(int(appears(pids)))


@pytest.mark.parametrize("how", ["timeout", "abort"])
def test_what_ignores_being_asked_is_killed_though_the_shell_and_its_output_have_ended(
    use, ends, appears, tmp_path: Path, how: str
) -> None:
    pid = tmp_path / "pid"
    command = f"({STUBBORN.format(pid).replace('$$', '$BASHPID')}) >/dev/null 2>&1 & sleep 300"
    if how == "timeout":
        assert use(create_bash_tool(), command=command, timeout=2).details.timed_out
    else:
        result, _ = run_and_abort(use, command, lambda: appears(pid))
        assert result.details.aborted

    assert ends(int(appears(pid)))


def test_what_wants_to_clean_up_has_the_time(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(cwd=tmp_path))
    result = use(
        tool, command="trap 'echo cleaning; touch cleaned; exit 9' TERM; while :; do sleep 0.02; done", timeout=2
    )

    assert (tmp_path / "cleaned").exists()
    assert "cleaning\n" in text_of(result)
    assert (result.details.timed_out, result.details.exit_code) == (True, 9)


def test_the_options_timeout_holds_for_commands_without_one(use) -> None:
    tool = create_bash_tool(BashToolOptions(timeout=0.2))

    assert use(tool, command="sleep 30").details.timed_out
    assert use(tool, command="sleep 30", timeout=None).details.timed_out
    assert not use(tool, command="sleep 0.4", timeout=20).details.timed_out


def test_a_timeout_ends_a_command_that_has_closed_its_output(use) -> None:
    result = use(create_bash_tool(), command="exec >&- 2>&-; sleep 300", timeout=0.3)

    assert result.details.timed_out


def test_a_timeout_does_not_wait_for_what_has_left_the_group(use, text_of, ends, tmp_path: Path) -> None:
    # `setsid` and an empty environment put the child out of reach, and it holds the pipe.
    escaped = "import os, sys, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(300)"
    started = time.monotonic()
    result = use(create_bash_tool(), command=f"env -i $(command -v python3) -c '{escaped}' & sleep 300", timeout=3)
    took = time.monotonic() - started
    pid = int(text_of(result).splitlines()[0])
    os.kill(pid, signals.SIGKILL)

    assert result.details.timed_out
    assert took < 8
    assert ends(pid)


# --- abort ---


def run_and_abort(use, command: str, when, controller: AbortController | None = None, **options):
    """Run a command on a worker, abort it when `when()` returns, and return the result and the seconds that took."""
    controller = controller or AbortController()
    tool = create_bash_tool(BashToolOptions(**options))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(use, tool, command=command, signal=controller.signal)
        when()
        started = time.monotonic()
        controller.abort("enough")
        result = future.result(30)
    return result, time.monotonic() - started


def test_an_abort_ends_the_command_and_keeps_the_output(use, text_of, ends, appears, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    result, took = run_and_abort(use, f"echo so far; echo $$ > {pid}; sleep 300", lambda: appears(pid), cwd=tmp_path)

    assert text_of(result) == "so far\n[The command was aborted: enough.]"
    assert (result.is_error, result.details.aborted, result.details.timed_out) == (True, True, False)
    assert took < 1
    assert ends(int(appears(pid)))


def test_an_abort_kills_what_ignores_being_asked(use, ends, appears, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    result, took = run_and_abort(use, STUBBORN.format(pid), lambda: appears(pid))

    assert result.details.aborted
    assert took < 1.5
    assert ends(int(appears(pid)))


def test_an_abort_ends_the_wait_for_background_children(use, text_of, appears, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(process_module, "DRAIN_GRACE", 60.0)
    pid = tmp_path / "pid"
    result, took = run_and_abort(use, f"(echo $BASHPID > {pid}; sleep 300) & echo ok", lambda: appears(pid))

    assert text_of(result).startswith("ok\n")
    assert took < 5


def test_a_signal_that_is_aborted_already_runs_nothing(use, text_of, tmp_path: Path) -> None:
    controller = AbortController()
    controller.abort()

    result = use(create_bash_tool(BashToolOptions(cwd=tmp_path)), command="touch ran", signal=controller.signal)

    assert text_of(result) == "[The command was aborted.]"
    assert result.details.aborted
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("stubborn", [False, True])
def test_the_group_ends_though_the_thread_that_reads_is_stuck(
    use, ends, appears, tmp_path: Path, stubborn: bool
) -> None:
    # The reader hangs in a listener from the first update on: whoever aborts ends the command all the same.
    stuck, go_on = threading.Event(), threading.Event()
    pid = tmp_path / "pid"
    command = "echo output; " + (STUBBORN.format(pid) if stubborn else f"echo $$ > {pid}; sleep 300")

    def on_update(_update: object) -> None:
        stuck.set()
        go_on.wait(30)

    controller = AbortController()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(use, create_bash_tool(), command=command, signal=controller.signal, on_update=on_update)
        try:
            assert stuck.wait(20)
            number = int(appears(pid))
            controller.abort()
            assert ends(number)
            assert not future.done()
        finally:
            go_on.set()
        assert future.result(20).details.aborted


def test_an_abort_from_a_signal_handler_ends_the_command(python) -> None:
    script = """
import os, signal, sys, threading, time
from agentcore.abort import AbortController
from agentcore.toolkit import create_bash_tool
controller = AbortController()
signal.signal(signal.SIGUSR1, lambda *_: controller.abort("from the handler"))
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
result = create_bash_tool().execute("1", {"command": "trap '' TERM; sleep 300"}, controller.signal, None, None)
print(result.content[0].text, result.details.exit_code)
"""
    output, errors = python(script).communicate(timeout=30)

    assert output == "[The command was aborted: from the handler.] -9\n", errors


def test_aborts_at_any_moment_leave_no_process(use, tmp_path: Path, ends) -> None:
    mark = f"mark-{os.getpid()}"
    for step in range(30):
        signal = AbortSignal.timeout(step * 0.0007 + 0.0001)
        result = use(create_bash_tool(), command=f"exec -a {mark} sleep 300", signal=signal)
        assert result.details.aborted
    assert subprocess.run(["pgrep", "-f", f"^{mark}"], capture_output=True).stdout == b""


# --- Ctrl-C and the end of the interpreter ---

INTERRUPTED = """
import os, signal, sys, threading, time
from agentcore.toolkit import create_bash_tool
pid_file, command, rest = sys.argv[1:]
def interrupt():
    while not os.path.exists(pid_file):
        time.sleep(0.01)
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    create_bash_tool().execute("1", {"command": command}, None, None, None)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - sent < 1, flush=True)
exec(rest)
"""


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("rest", ["", "time.sleep(1)"], ids=["exits at once", "goes on"])
def test_ctrl_c_ends_the_group_and_is_raised_at_once(
    python, ends, appears, tmp_path: Path, stubborn: bool, rest: str
) -> None:
    pid = tmp_path / "pid"
    command = STUBBORN.format(pid) if stubborn else f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 300 & sleep 300"

    output, errors = python(INTERRUPTED, pid, command, rest).communicate(timeout=30)

    assert (output, errors) == ("interrupted True\n", "")
    assert ends(int(appears(pid)))


def test_a_command_on_an_abandoned_thread_ends_with_the_interpreter(python, ends, appears, tmp_path: Path) -> None:
    script = """
import sys, threading, time, os
from agentcore.toolkit import create_bash_tool
pid_file, command = sys.argv[1:]
run = create_bash_tool().execute
threading.Thread(target=run, args=("1", {"command": command}, None, None, None), daemon=True).start()
while not os.path.exists(pid_file):
    time.sleep(0.01)
print("leaving", flush=True)
"""
    pid = tmp_path / "pid"
    output, errors = python(script, pid, STUBBORN.format(pid)).communicate(timeout=30)

    assert (output, errors) == ("leaving\n", "")
    assert ends(int(appears(pid)))


def test_a_forked_child_does_not_end_its_parents_commands(python) -> None:
    script = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore")
from agentcore.toolkit import create_bash_tool
results = []
def run():
    command = "sleep 1; echo survived"
    results.append(create_bash_tool().execute("1", {"command": command}, None, None, None))
thread = threading.Thread(target=run)
thread.start()
time.sleep(0.4)
child = os.fork()
if child == 0:
    sys.exit(0)  # runs the exit handlers that it has inherited
os.waitpid(child, 0)
thread.join()
print(results[0].content[0].text)
"""
    output, errors = python(script).communicate(timeout=30)

    assert output == "survived\n\n", errors


RANDOM_INTERRUPTS = """
import gc, os, random, signal, subprocess, sys, time
from agentcore.toolkit import create_bash_tool, _process
from agentcore.toolkit.bash import BashToolOptions
folder = sys.argv[1]
tool = create_bash_tool(BashToolOptions(output_folder=folder))
tool.execute("1", {"command": "true"}, None, None, None)
def counts():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
before = counts()
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
generator = random.Random(7)
interrupted = 0
for number in range(150):
    command = generator.choice(["exec -a marked-%d sleep 300", "seq 9999; exec -a marked-%d sleep 300"]) % os.getpid()
    try:
        signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.0002, 0.012))
        tool.execute("1", {"command": command}, None, None, None)
    except KeyboardInterrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
end = time.monotonic() + 10
while time.monotonic() < end and (_process._live or counts() != before):
    time.sleep(0.02)
marked = subprocess.run(["pgrep", "-f", "^marked-%d" % os.getpid()], capture_output=True, text=True).stdout
files = len(os.listdir(folder))
print(interrupted, list(_process._live), counts() == before, repr(marked), files)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors and threads in /proc")
def test_interrupts_at_random_moments_leave_nothing_behind(python, tmp_path: Path) -> None:
    output, errors = python(RANDOM_INTERRUPTS, tmp_path).communicate(timeout=60)

    assert output == "150 [] True '' 0\n", errors
    assert errors == ""


def test_an_interrupt_that_leaves_the_lock_of_the_process_taken_leaves_nothing_else_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can come between two steps of `Popen.poll`; whoever waits for the process would then wait for ever."""

    def interrupted(process: Any) -> None:
        monkeypatch.undo()
        assert process._waitpid_lock.acquire(blocking=False)
        raise KeyboardInterrupt

    tool = create_bash_tool(BashToolOptions(cwd=tmp_path, output_folder=tmp_path))
    gc.collect()
    before = leftovers()
    monkeypatch.setattr(subprocess.Popen, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tool.execute("1", {"command": "sleep 300"}, AbortController().signal, lambda update: None, None)

    end = time.monotonic() + 20
    while (process_module._live or any(map(operator.gt, leftovers(), before))) and time.monotonic() < end:
        time.sleep(0.01)
    assert not process_module._live
    assert [now for now, then in zip(leftovers(), before, strict=True) if now > then] == []


# --- nothing is left behind ---


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors, threads and children in /proc")
def test_two_hundred_commands_leave_no_descriptor_process_or_thread(use, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(cwd=tmp_path, output_folder=tmp_path))
    broken = create_bash_tool(BashToolOptions(shell="/no/such/shell"))
    gone = create_bash_tool(BashToolOptions(cwd=tmp_path / "none"))
    use(tool, command="true")
    gc.collect()  # what earlier tests have left for it would count as ours
    before = leftovers()
    for _ in range(40):
        assert not use(tool, command="echo normal").is_error
        assert use(tool, command="seq 3000").details.truncation
        assert use(tool, command="sleep 300", timeout=0.01).details.timed_out
        assert use(tool, command="sleep 300", signal=AbortSignal.timeout(0.01)).details.aborted
        assert use(broken, command="echo").is_error
        assert use(gone, command="echo").is_error
        assert use(tool, command="echo \0").is_error

    # The threads that see to the last kills may still be ending. Fewer of something is what others have let go of.
    end = time.monotonic() + 10
    while any(now > then for now, then in zip(leftovers(), before, strict=True)) and time.monotonic() < end:
        time.sleep(0.01)
    assert [now for now, then in zip(leftovers(), before, strict=True) if now > then] == []
    assert not process_module._live


def leftovers() -> tuple[int, int, int]:
    """Return the numbers of descriptors, threads and children of this process."""
    tasks = os.listdir("/proc/self/task")
    children = 0
    for task in tasks:
        try:
            children += len(Path(f"/proc/self/task/{task}/children").read_text().split())
        except FileNotFoundError:
            pass  # the thread has just ended
    return len(os.listdir("/proc/self/fd")), len(tasks), children


def test_many_commands_at_once_keep_their_outputs_apart(use, text_of) -> None:
    tool = create_bash_tool()
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda n: text_of(use(tool, command=f"seq {n} {n + 99}")), range(0, 3200, 100)))

    assert outputs == ["".join(f"{n}\n" for n in range(start, start + 100)) for start in range(0, 3200, 100)]


def test_descriptors_above_a_thousand_are_no_problem(use, text_of) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = []
    try:
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
        assert text_of(use(create_bash_tool(), command="echo hi")) == "hi\n"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_descriptors_is_an_error_result(use, text_of) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    tool = create_bash_tool()
    use(tool, command="true")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 5, hard))
        with pytest.raises(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        result = use(tool, command="echo hi")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert result.is_error
    assert "too many open files" in text_of(result)
