"""Asking a person before a tool call runs: in a terminal, in a notebook cell, by waiting, or by pausing the run.

Each function that takes `(context, signal)` goes into `before_tool_call`. What is shown is exactly what would run, and
only a clear yes lets it run: whatever goes wrong, nobody to ask included, keeps it from running.

A hook of your own may wait as long as it likes, if it waits on its signal too::

    def ask(context, signal):
        question = show_buttons(context.tool_call.name, context.args)   # sets `question.answered` when one is pressed
        return allow() if approvals.wait(question.answered, signal) and question.yes else deny()

Buttons are pressed on the main thread, which must be free meanwhile: run such an agent with `Agent.stream`, whose
hooks run on a background thread.
"""

from __future__ import annotations

import builtins
import json
import os
import select
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final, Protocol, TextIO
from weakref import WeakKeyDictionary

from agentcore._resume import allow, deny
from agentcore.abort import AbortSignal
from agentcore.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.tools import AgentTool

__all__ = ["ask_in_terminal", "ask_with_input", "pause_for_approval", "wait"]

_SECONDS_BETWEEN_LOOKS: Final = 0.05
_CHOICES: Final = "Allow it? [y]es, [n]o (and why), [a]lways with exactly these arguments: "

_always: WeakKeyDictionary[AgentTool, set[str]] = WeakKeyDictionary()
"""What is allowed from now on: by tool, and forgotten with it, the arguments."""

_asking: dict[str, object] = {}
"""Whose question is in the terminal, claimed by `setdefault`: an answer belongs to the question that is shown."""


class _Flag(Protocol):
    """What `threading.Event` has."""

    def is_set(self) -> bool: ...


class _NoAnswer(Exception):
    """Nobody has answered; it says why."""


def wait(event: _Flag, signal: AbortSignal) -> bool:
    """Wait until a `threading.Event` is set; return false if the signal is aborted first.

    It may wait on the main thread: Ctrl-C ends it, and the event may be set by a signal handler.
    """
    # The event is only looked at: a wait in it can be left locked by an interrupt, and must not meet a handler's `set`.
    while not event.is_set():
        if signal.wait(_SECONDS_BETWEEN_LOOKS):
            return False
    return not signal.aborted


def pause_for_approval(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
    """Leave the call unanswered and end the run after this turn; `Agent.resume` goes on, in another process too."""
    return BeforeToolCallResult(pause=True)


def ask_in_terminal(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
    """Ask in the terminal, and wait for the answer or for the signal.

    The answers are yes, no with a reason for the model, and always: for this tool and exactly these arguments, as long
    as the tool exists. What was typed before the question is dropped. Without a terminal the call is denied.

    Threads: questions of several threads are asked one after another.
    """
    return _ask(context, signal, _read_from_terminal)


def ask_with_input(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
    """Ask with `input()`, as a notebook shows it below the cell; otherwise as `ask_in_terminal`.

    `input()` cannot be ended by the signal, but by the interrupt of the notebook. In a notebook it works on the main
    thread, that is, with `Agent.prompt`.
    """
    return _ask(context, signal, _read_with_input)


# --- questions and answers ------------------------------------------------------------------------------------------


def _ask(
    context: BeforeToolCallContext, signal: AbortSignal, read: Callable[[str, AbortSignal], str]
) -> BeforeToolCallResult:
    name, arguments = context.tool_call.name, _canonical(context.args)
    tool = next((tool for tool in context.context.tools if tool.name == name), None)
    if tool is not None and arguments is not None and arguments in _always.get(tool, ()):
        return allow()
    shown = f"\nThe model wants to run {_visible(json.dumps(name, ensure_ascii=False))} with\n{_shown(context.args)}\n"
    while True:
        try:
            answer = read(shown, signal)
        except _NoAnswer as nobody:
            return deny(f"`{name}` was not run: {nobody}.")
        word, _, reason = answer.strip().partition(" ")
        word = word.lower().rstrip(",.:;")
        if word in ("n", "no"):
            return deny(f"The user did not allow the call of `{name}`{': ' if reason else ''}{reason.strip()}")
        if word in ("y", "yes", "a", "always") and not reason:
            if word.startswith("a") and tool is not None and arguments is not None:
                _always.setdefault(tool, set()).add(arguments)
            return allow()


def _canonical(args: dict[str, Any]) -> str | None:
    """Return arguments as text that is equal only for equal ones; `None` if JSON cannot hold them exactly."""
    try:
        text = json.dumps(args, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return text if json.loads(text) == args else None


def _shown(args: dict[str, Any]) -> str:
    """Return arguments as a person can read them, all of them, with nothing invisible left."""
    lines = json.dumps(args, indent=2, ensure_ascii=False, default=repr).split("\n")
    return "\n".join(_visible(line) for line in lines)


def _visible(text: str) -> str:
    """Return text with its control characters, direction marks and other invisible characters escaped."""
    return "".join(char if char.isprintable() else _escaped(ord(char)) for char in text)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# --- where the answers come from ------------------------------------------------------------------------------------


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _raise_if_aborted(signal: AbortSignal) -> None:
    # Not `AbortRequested`, which would end the run: it may be this one call that was aborted.
    if signal.aborted:
        raise _NoAnswer("the call was aborted while the user was asked")


def _read_with_input(question: str, signal: AbortSignal) -> str:
    _raise_if_aborted(signal)
    if isinstance(builtins.input, BuiltinFunctionType) and not _is_terminal(sys.stdin):
        raise _NoAnswer("there is nobody to ask, for the input is no terminal")
    try:
        answer = input(question + _CHOICES)
    except (EOFError, NotImplementedError):  # the latter: a notebook that is run by a program
        raise _NoAnswer("the user gave no answer") from None
    _raise_if_aborted(signal)
    return answer


def _read_from_terminal(question: str, signal: AbortSignal) -> str:
    mine = object()
    try:
        while _asking.setdefault("question", mine) is not mine:
            signal.wait(_SECONDS_BETWEEN_LOOKS)
            _raise_if_aborted(signal)
        return _asked_in_terminal(question, signal)
    finally:
        if _asking.get("question") is mine:
            _asking.pop("question", None)


def _asked_in_terminal(question: str, signal: AbortSignal) -> str:
    screen = next((stream for stream in (sys.stderr, sys.stdout) if _is_terminal(stream)), None)
    if not _is_terminal(sys.stdin) or screen is None:
        raise _NoAnswer("there is no terminal to ask the user in")
    import termios  # only where there are terminals of this kind

    terminal = sys.stdin.fileno()
    _write(screen, question)
    # What was typed until now is no answer; who waits for the choices to be shown may answer at once.
    termios.tcflush(terminal, termios.TCIFLUSH)
    _write(screen, _CHOICES)
    typed = b""
    while b"\n" not in typed:
        if signal.aborted:
            _write(screen, "\n")
        _raise_if_aborted(signal)
        # In short pieces: a signal that comes just before the sleep would otherwise not be noticed before its end.
        if not select.select([terminal], [], [], _SECONDS_BETWEEN_LOOKS)[0]:
            continue
        # Past Python's own buffer, which may hold what was typed earlier.
        arrived = os.read(terminal, 4096)
        if not arrived:
            _write(screen, "\n")
            raise _NoAnswer("the user gave no answer")
        typed += arrived
    return typed.partition(b"\n")[0].decode("utf-8", "replace")


def _write(screen: TextIO, text: str) -> None:
    encoding = screen.encoding or "ascii"
    screen.write(text.encode(encoding, "backslashreplace").decode(encoding))
    screen.flush()
