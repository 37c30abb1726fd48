"""One use of the command line: the agent, what shows it, what the user types, and how they meet.

The main thread owns the runs, so that Ctrl-C is raised there. Another thread reads what is typed and puts whole lines
into a mailbox: between runs they are prompts and commands, during a run they steer it, while a question is open they
answer it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from queue import Empty
from typing import Any, Final, TextIO

from agentcore._cli_approvals import Approver
from agentcore._cli_commands import Commands, command_of
from agentcore._cli_keyboard import Keyboard, PlainLines, is_in_foreground
from agentcore._cli_models import UsageError, key_hint, model_words
from agentcore._cli_settings import Settings
from agentcore._mailbox import Mailbox
from agentcore.abort import AbortSignal
from agentcore.agent import Agent
from agentcore.display.terminal import LiveView, PlainView, View, can_be_live
from agentcore.errors import AgentCoreError
from agentcore.events import AgentEndEvent, AgentEvent, MessageEndEvent, TurnEndEvent
from agentcore.messages import AssistantMessage
from agentcore.sessions import Session

__all__ = ["CommandLine"]

_DONE, _FAILED, _INTERRUPTED = 0, 1, 130
_SECONDS_BETWEEN_LOOKS: Final = 0.1

_MARKS: Final = {"idle": "› ", "running": "› ", "asking": "? "}
_HINTS: Final = {
    "idle": "ask something, or /help",
    "running": "type to steer, Ctrl-C stops",
    "asking": "y yes · n no, and why · a always",
}


class _JsonView:
    """Prints each event as a line of JSON to one file, and notes to another."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._notes = PlainView(err, err)

    def __call__(self, event: AgentEvent, signal: AbortSignal | None = None) -> None:
        # ASCII only: it passes every encoding, and nothing in it can move a cursor.
        self._out.write(json.dumps(event.to_dict()) + "\n")
        self._out.flush()

    def note(self, text: str) -> None:
        self._notes.note(text)

    def lines(self, text: str) -> None:
        self._notes.lines(text)

    def close(self) -> None:
        self._notes.close()


class CommandLine:
    """Asks once, or holds a conversation; lets go of the terminal when the stack is closed.

    Threads: belongs to the main thread; what is typed arrives from another.
    """

    def __init__(
        self, agent: Agent, session: Session | None, settings: Settings, stack: ExitStack, *, as_json: bool, once: bool
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._lines: Mailbox[str | None] = Mailbox()
        self._mode = "running"
        self._ended = False
        self._output_failed = False
        self._reason = "completed"
        self._stack = stack
        live = not as_json and can_be_live(sys.stdout)
        self._view = self._open_view(as_json, live)
        self._stack.callback(self._view.close)
        self._keyboard = self._read_lines(live, once)
        if settings.ask_first:
            agent.before_tool_call = Approver(self._ask if self._keyboard is not None else None, _columns)
        agent.subscribe(self._on_event)
        self._commands = Commands(agent, session, settings, self._view)
        self._stack.callback(self._commands.close)

    def _open_view(self, as_json: bool, live: bool) -> View:
        if as_json:
            return _JsonView(sys.stdout, sys.stderr)
        if live:
            return LiveView(sys.stdout, self._output_gone)
        view = PlainView(sys.stdout, sys.stderr)
        if sys.stdout.isatty() and find_spec("rich") is None:
            view.note("This is plain text: pip install 'agentcore-loop[cli]' adds colours and tool calls that live.")
        return view

    def _read_lines(self, live: bool, once: bool) -> Keyboard | PlainLines | None:
        """Begin to read what is typed, if this process has the terminal to itself."""
        if not _has_terminal():
            return None
        terminal = sys.stdin.fileno()
        if not live:
            lines = PlainLines(terminal, self._submitted)
            # What is typed may be for a pager that reads our output: until there is a question it is not ours.
            if not once or sys.stdout.isatty():
                lines.start()
            return lines
        keyboard = Keyboard(terminal, self._submitted, lambda: self._show_typing(keyboard))
        self._stack.callback(keyboard.close)
        keyboard.start()
        # A screen that waits is not told of a new size, and a process that is suspended must leave the terminal first.
        self._on_signal(signal.SIGWINCH, lambda number, frame: keyboard.show())
        self._on_signal(signal.SIGTSTP, partial(self._suspend, keyboard))
        return keyboard

    def _on_signal(self, number: int, handler: Callable[[int, Any], object]) -> None:
        self._stack.callback(signal.signal, number, signal.signal(number, handler))

    def _suspend(self, keyboard: Keyboard, number: int, frame: Any) -> None:
        """Let go of the terminal, stop, and take it again when the process goes on."""
        assert isinstance(self._view, LiveView)
        self._view.pause()
        keyboard.give_back()
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # here it stops
        signal.signal(number, handler)
        keyboard.come_back()
        self._view.resume()

    # --- once -------------------------------------------------------------------------------------------------------

    def ask(self, prompt: str) -> int:
        """Run one prompt, and what is typed meanwhile; return the exit status."""
        if not self._settings.model_is_named or self._agent.model.provider == "demo":
            self._view.note(f"Asking {model_words(self._agent.model)}.")
        status = self._run(prompt)
        while status == _DONE and (typed := self._typed_lines()):
            status = self._run("\n".join(typed))
        return status

    def _run(self, prompt: str) -> int:
        """Run a prompt; return the exit status it would have."""
        self._turn_to("running")
        self._reason = "completed"
        try:
            message = self._prompt(prompt)
        except KeyboardInterrupt:
            if self._output_failed:
                return _FAILED
            self._after_interrupt()
            return _INTERRUPTED
        except (AgentCoreError, ValueError, TypeError, OSError) as error:
            self._view.note(f"error: {error}")
            return _FAILED
        if self._output_failed:
            raise BrokenPipeError
        if message.stop_reason == "error":
            return _FAILED
        return _FAILED if self._reason.startswith("limit:") else _DONE

    def _prompt(self, prompt: str) -> AssistantMessage:
        if not self._agent.pending_calls:
            return self._agent.prompt(prompt)
        # An earlier process ended in the middle of these calls. They are answered as not run, then comes the prompt.
        self._agent.steer(prompt)
        return self._agent.resume({})

    def _after_interrupt(self) -> None:
        """Give back what was typed and has not been read by the model."""
        waiting = self._agent.status().steering_queue
        self._agent.clear_steering_queue()
        unread = [str(getattr(message, "content", "")) for message in waiting] + self._typed_lines()
        if unread and isinstance(self._keyboard, Keyboard):
            self._keyboard.replace("\n".join(unread))
        elif unread:
            self._view.note(f"not sent: {' ⏎ '.join(unread)}")

    # --- a conversation ---------------------------------------------------------------------------------------------

    def converse(self) -> int:
        """Hold a conversation until the user leaves; return the exit status."""
        self._commands.greet()
        leaving = False
        while not self._ended:
            self._turn_to("idle")
            try:
                line = self._lines.get()
                leaving = False
                if line is None:
                    break
                if command_of(line) is not None:
                    if not self._commands.run(line):
                        break
                elif line.strip():
                    self._run(line)
            except KeyboardInterrupt:
                if isinstance(self._keyboard, Keyboard) and self._keyboard.text:
                    self._keyboard.replace("")
                    leaving = False
                elif leaving:
                    break
                else:
                    leaving = True
                    self._view.note("Press Ctrl-C again to leave.")
            except UsageError as error:
                self._view.note(f"{error}.")
        return _DONE

    # --- events and questions, on the thread of the run -------------------------------------------------------------

    def _on_event(self, event: AgentEvent, signal: AbortSignal) -> None:
        try:
            self._view(event, signal)
        except (OSError, ValueError):
            self._output_gone()
        if isinstance(event, TurnEndEvent):
            self._steer()  # just before the run looks for it
        elif isinstance(event, AgentEndEvent):
            self._reason = event.reason
        elif isinstance(event, MessageEndEvent) and isinstance(event.message, AssistantMessage):
            self._explain(event.message)

    def _explain(self, message: AssistantMessage) -> None:
        """Say more about a failure than the provider does."""
        error = message.error
        if error is None or message.stop_reason != "error":
            return
        if isinstance(self._view, _JsonView):
            self._view.note(f"error: {error.message}")
        if error.kind == "authentication" and (hint := key_hint(self._agent.model)):
            self._view.note(hint)

    def _output_gone(self) -> None:
        self._output_failed = True
        self._agent.abort("nobody reads the output")

    def _steer(self) -> None:
        for line in self._typed_lines():
            self._agent.steer(line)

    def _typed_lines(self) -> list[str]:
        """Take the lines that have been typed since."""
        lines: list[str] = []
        while True:
            try:
                line = self._lines.get(0)
            except Empty:
                return lines
            if line is None:
                self._ended = True
            elif line.strip():
                lines.append(line)

    def _ask(self, question: str, tool_call_id: str, signal: AbortSignal) -> str | None:
        """Show a question and wait for the line that answers it; what was typed before it answers nothing."""
        self._steer()
        if isinstance(self._view, LiveView):
            self._view.asks(tool_call_id, True)
        self._view.lines(question)
        if isinstance(self._keyboard, PlainLines):
            self._keyboard.start()
        self._turn_to("asking")
        try:
            while not signal.aborted and not self._ended:
                try:
                    return self._lines.get(_SECONDS_BETWEEN_LOOKS)
                except Empty:
                    pass
            return None
        finally:
            self._turn_to("running")
            if isinstance(self._view, LiveView):
                self._view.asks(tool_call_id, False)

    # --- what is typed ----------------------------------------------------------------------------------------------

    def _turn_to(self, mode: str) -> None:
        """Change what lines are for."""
        before, self._mode = self._mode, mode
        if isinstance(self._keyboard, Keyboard):
            if mode == "asking":
                self._keyboard.set_aside()
            elif before == "asking":
                self._keyboard.bring_back()
            self._show_typing(self._keyboard)
        elif isinstance(self._keyboard, PlainLines) and mode != "running":
            sys.stderr.write(f"{_HINTS[mode]} {_MARKS[mode]}" if mode == "asking" else _MARKS[mode])
            sys.stderr.flush()

    def _show_typing(self, keyboard: Keyboard) -> None:
        mode = self._mode
        if isinstance(self._view, LiveView):
            self._view.typing(_MARKS[mode], *keyboard.typed, _HINTS[mode], apart=mode == "idle")

    def _submitted(self, line: str | None) -> None:
        """Take a line in, on the thread that reads."""
        mode = self._mode
        if line is not None and line.strip():
            if mode == "running" and (command := command_of(line)) is not None:
                self._view.note(f"{command} works when the run is over; Ctrl-C stops it.")
                return
            self._echo(mode, line)
        self._lines.put(line)

    def _echo(self, mode: str, line: str) -> None:
        if isinstance(self._view, LiveView) and mode == "idle":
            self._view.said(line)
        elif mode == "running":
            self._view.note(f"The model reads this after its turn: {line}")
        elif isinstance(self._view, LiveView):
            self._view.note(f"? {line}")


def _columns() -> int:
    """Return how wide the terminal is in which questions are answered."""
    try:
        return os.get_terminal_size(sys.stdin.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _has_terminal() -> bool:
    """Return whether the input is a terminal and this process may read from it: one in the background may not."""
    try:
        return is_in_foreground(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False
