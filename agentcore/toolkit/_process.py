"""Running one command and reading what it prints, until it ends or is ended."""

from __future__ import annotations

import _thread
import atexit
import math
import os
import select
import signal as signals
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty
from threading import RLock
from typing import Final, Literal

import attrs

from agentcore._mailbox import Mailbox
from agentcore.abort import AbortSignal
from agentcore.toolkit._escaped import Escaped

__all__ = ["Ending", "StartError", "run_command"]

KILL_DELAY: Final = 0.2
"""Seconds between asking a group to end (SIGTERM) and ending it (SIGKILL)."""

DRAIN_GRACE: Final = 0.5
"""Seconds for which output is still read after the shell has ended while something holds the pipe."""

KILL_GRACE: Final = 0.1
"""The same after SIGKILL."""

REAP_GRACE: Final = 1.0
"""Seconds after which it is looked into why a killed process does not end."""

TICK: Final = 0.05
"""Seconds after which the reader looks around, though nothing arrives."""

CHUNK: Final = 64 * 1024


class StartError(Exception):
    """A command that could not be started; `reason` is what `subprocess.Popen` raised."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@attrs.frozen
class Ending:
    """How a command ended; `exit_code` is negative for a signal and `None` if it is not known."""

    exit_code: int | None
    reason: Literal["exited", "timed_out", "aborted"]


def run_command(
    arguments: Sequence[str | bytes],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout: float | None,
    signal: AbortSignal,
    on_output: Callable[[bytes], None],
    on_look: Callable[[], None],
) -> Ending:
    """Run a command in a session of its own, with no input and no terminal, and hand over what it prints.

    `on_output` gets the bytes of stdout and stderr in order; `on_look` is called at least every `TICK` seconds. Both
    run on the calling thread. Returns when the command has ended and its output is read, at the latest `DRAIN_GRACE`
    after its first process has ended: a background child that holds the pipe is left running and no longer read.
    On abort and timeout, and when anything is raised here (Ctrl-C above all), the whole group is asked to end and,
    `KILL_DELAY` later, killed, and so is what has left the group, as far as it can be found. Raises `StartError`.
    """
    group = _Group()
    stop_listening: Callable[[], None] | None = None
    try:
        stop_listening = signal.add_callback(group.stop)
        if signal.aborted:
            ending = Ending(None, "aborted")
        else:
            group.launch(partial(_start, list(arguments), cwd, group.escaped.marked(env)))
            ending = _Reader(group, timeout, on_output, on_look).read()
        group.release()
        return ending
    finally:
        if not group.released:
            group.abandon()
        if stop_listening is not None:
            stop_listening()


def _start(arguments: list[str | bytes], cwd: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )


class _Group:
    """A command with all that it starts: one process group, led by the shell.

    `stop` is called by an abort: from any thread, from a signal handler, from a finaliser. So it takes no lock but the
    re-entrant one, which is held for single system calls, and starts only a bare thread (`threading.Thread.start`
    takes locks that the interrupted frame could hold). It does not rely on the reader, which may be busy elsewhere:
    that thread kills what is left, and so does the interpreter's exit.

    First the record, then the deed: whoever launches looks at `stopping` after it has set `process`; whoever stops sets
    `stopping` before it looks at `process`. One of the two therefore always sees the other.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = False
        self.released = False
        self._abandoned = False
        self._closed = False
        self._finished = False
        self._terminated = False
        self.escaped = Escaped()
        self._lock = RLock()
        self._owner = os.getpid()
        self._ended: Mailbox[None] = Mailbox()

    def launch(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Start the command on a thread that cannot be interrupted: Ctrl-C here must not lose a process just made."""
        _kill_at_exit()
        outcome: Mailbox[BaseException | None] = Mailbox()
        _thread.start_new_thread(self._launch, (start, outcome))
        failure = outcome.get()
        if isinstance(failure, Exception):
            raise StartError(failure) from failure
        if failure is not None:
            raise failure

    def _launch(self, start: Callable[[], subprocess.Popen[bytes]], outcome: Mailbox[BaseException | None]) -> None:
        _live[self] = None
        try:
            self.process = start()
            if self.stopping:
                self._terminate()
        except BaseException as error:
            self.release()
            outcome.put(error)
        else:
            outcome.put(None)

    def stop(self) -> None:
        """Ask the group to end, and see to it that it does."""
        self.stopping = True
        self._terminate()

    def abandon(self) -> None:
        """Do the same for a group that nobody reads any more."""
        self._abandoned = True
        self.stop()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        if self._closed or self._finished:
            self.release()

    def release(self) -> None:
        """Let go of the group: nothing is sent to its number any more, which may then be somebody else's."""
        with self._lock:
            self._closed = True
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self._ended.put(None)
        _live.pop(self, None)
        self.released = True

    def _terminate(self) -> None:
        with self._lock:
            process = self.process
            if process is None or self._terminated or self._closed:
                return
            self._terminated = True
            _ending[self] = None
        self.send(signals.SIGTERM)
        try:
            _thread.start_new_thread(self._finish, (process,))
        except RuntimeError:  # the interpreter is ending, or no thread can be had
            self.kill()

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left after a while, and reap it: after an interrupt nobody else does."""
        deadline = time.monotonic() + KILL_DELAY
        some_escaped = self.escaped.terminate(process.pid)
        try:
            self._ended.get(timeout=deadline - time.monotonic())
            if some_escaped:  # nothing tells when those have ended
                Mailbox[None]().get(timeout=deadline - time.monotonic())
        except Empty:
            pass
        self.kill()
        self._reap(process)
        self._finished = True
        if self._abandoned:
            self.release()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                process.wait(REAP_GRACE)
            except subprocess.TimeoutExpired:
                if not self._abandoned:
                    continue
                # Either it does not die, or an interrupt has come inside `Popen.poll` and left its lock taken for ever.
                # Nobody but this thread asks for the process any more.
                try:
                    process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
                except ChildProcessError:  # reaped before the interrupt came
                    process.returncode = -signals.SIGKILL
            return

    def kill(self) -> None:
        """End what is left of the group, and what has left it."""
        self.send(signals.SIGKILL)
        if self.process is not None:
            self.escaped.kill(self.process.pid)
        _ending.pop(self, None)

    def send(self, number: int) -> None:
        """Send a signal to every process of the group."""
        with self._lock:
            if self.process is not None and not self._closed and os.getpid() == self._owner:
                try:
                    os.killpg(self.process.pid, number)
                except (ProcessLookupError, PermissionError):  # the latter: only zombies are left (macOS)
                    pass

    def is_empty(self) -> bool:
        """Return whether no process of the group is left, once the shell has been reaped."""
        with self._lock:
            if self.process is None or self._closed:
                return True
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
            return False


_live: dict[_Group, None] = {}
# Those that were asked to end: what has left a group can outlive it.
_ending: dict[_Group, None] = {}
_exit_hook: dict[str, object] = {}


def _kill_at_exit() -> None:
    """Have the groups that are still running killed when the interpreter exits; no thread of ours may run then."""
    mine = object()
    if _exit_hook.setdefault("registered", mine) is mine:
        atexit.register(_kill_all)


def _kill_all() -> None:
    for group in {**_live, **_ending}:
        group.stopping = True
        group.kill()


class _Reader:
    """Reads the output of a group's command, and watches the time."""

    def __init__(
        self,
        group: _Group,
        timeout: float | None,
        on_output: Callable[[bytes], None],
        on_look: Callable[[], None],
    ) -> None:
        process = group.process
        assert process is not None
        assert process.stdout is not None
        self.group = group
        self.process = process
        self.on_output = on_output
        self.on_look = on_look
        self.deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.exited_at: float | None = None
        self.stopped_at: float | None = None
        self.reason: Literal["exited", "timed_out", "aborted"] = "exited"
        self.open = True
        self._fd = process.stdout.fileno()
        os.set_blocking(self._fd, False)
        # Not `select`: descriptors can be above 1,023. Not a selector of epoll or kqueue: those cost a descriptor.
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._pause = 0.001

    def read(self) -> Ending:
        while True:
            now = time.monotonic()
            self._look_at_process(now)
            if self._is_over(now):
                break
            self.on_look()
            self._read_some(now)
        return Ending(self.process.returncode, self.reason)

    def _look_at_process(self, now: float) -> None:
        if self.stopped_at is None and (self.group.stopping or now >= self.deadline):
            self.reason = "aborted" if self.group.stopping else "timed_out"
            self.stopped_at = now
            self.group.stop()
        if self.exited_at is None and self.process.poll() is not None:
            self.exited_at = now

    def _is_over(self, now: float) -> bool:
        ended = self.exited_at is not None and not self.open
        if self.stopped_at is None:
            return ended or (self.exited_at is not None and now >= self.exited_at + DRAIN_GRACE)
        if now < self.stopped_at + KILL_DELAY:
            return ended and self.group.is_empty()
        self.group.send(signals.SIGKILL)
        return ended or now >= self.stopped_at + KILL_DELAY + KILL_GRACE

    def _read_some(self, now: float) -> None:
        pause = min(TICK, max(0.0, self.deadline - now))
        if not self.open:
            # Nothing will arrive. The shell mostly ends within a moment after its output.
            pause = min(pause, self._pause) if self.stopped_at is None else min(TICK, self._pause)
            self._pause *= 2
        elif self.stopped_at is not None:
            pause = TICK
        if not self._poll.poll(math.ceil(pause * 1000)) or not self.open:
            return
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.on_output(data)
        else:
            self.open = False
            self._poll.unregister(self._fd)
