"""Finding the processes of a command that have left its group, by a mark in the environment that they have inherited.

A process that calls `setsid` is out of reach of signals to the group, and once its parent has ended nothing leads from
the command to it but this. Where there is no `/proc` (macOS), or a process has another owner or has been started with
an empty environment, it is not found.
"""

from __future__ import annotations

import os
import secrets
import signal as signals
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from agentcore.toolkit._files import descriptors

__all__ = ["Escaped"]

_NAME: Final = "AGENTCORE_COMMANDS"
# A process may start another one while we look: what was missed is found the next time.
_MOST_ROUNDS: Final = 5


class Escaped:
    """The processes that carry a mark of their own and are not in the command's group.

    Marks add up: a command that itself runs commands in this way leaves its own mark with all that those start.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._owner = os.getpid()

    def marked(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the mark, beside those that this process carries."""
        marks = [mark for mark in (os.environ.get(_NAME), self._mark) if mark]
        return {**environment, _NAME: ":".join(marks)}

    def terminate(self, group: int) -> bool:
        """Ask them to end; return whether there are any."""
        return self._send(group, signals.SIGTERM)

    def kill(self, group: int) -> None:
        """End them."""
        for _ in range(_MOST_ROUNDS):
            if not self._send(group, signals.SIGKILL):
                break

    def _send(self, group: int, number: signals.Signals) -> bool:
        # A forked process has inherited this object, but the command is its parent's.
        if sys.platform != "linux" or os.getpid() != self._owner:
            return False
        found = False
        for pid in _processes():
            if self._is_one(pid, group):
                found = True
                self._send_to(pid, group, number)
        return found

    def _send_to(self, pid: int, group: int, number: signals.Signals) -> None:
        with descriptors() as held:
            if sys.platform == "linux" and hasattr(os, "pidfd_open"):
                try:
                    held.append(os.pidfd_open(pid))
                except OSError:
                    pass  # it has ended, or the kernel is an old one
            # Looked at again: the descriptor stays with one process, whoever gets its number.
            if not self._is_one(pid, group):
                return
            try:
                if sys.platform == "linux" and held:
                    signals.pidfd_send_signal(held[0], number)
                else:
                    os.kill(pid, number)
            except OSError:
                pass

    def _is_one(self, pid: int, group: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
            return self._is_marked(environment) and os.getpgid(pid) != group
        except OSError:
            return False

    def _is_marked(self, environment: bytes) -> bool:
        mark, begin = self._mark.encode(), f"{_NAME}=".encode()
        return mark in environment and any(
            entry.startswith(begin) and mark in entry.removeprefix(begin).split(b":")
            for entry in environment.split(b"\0")
        )


def _processes() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    return (int(name) for name in names if name.isdecimal())
