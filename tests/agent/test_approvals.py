"""Only a clear yes to exactly what would run lets a call run; everything else keeps it from running."""

import builtins
import io
import json
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AbortSignal,
    AgentContext,
    AgentTool,
    AssistantMessage,
    BeforeToolCallContext,
    ToolCall,
    ToolResultMessage,
    allow,
    approvals,
    deny,
)
from agentcore.testing import call, reply
from tests.agent.agent_support import agent_with, tool, transcript_problems


def asked_about(args: dict[str, Any], one: AgentTool | None = None, name: str = "bash") -> BeforeToolCallContext:
    """Return what a hook is given for a call."""
    made = ToolCall("id", name, args)
    return BeforeToolCallContext(AssistantMessage([made]), made, args, AgentContext(tools=[one] if one else []))


def never() -> AbortSignal:
    return AbortController().signal


# --- waiting --------------------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_event() -> None:
    event = threading.Event()
    timer = threading.Timer(0.01, event.set)
    timer.start()
    assert approvals.wait(event, never()) is True
    timer.join()
    assert approvals.wait(event, never()) is True


def test_waiting_ends_with_the_signal_and_an_abort_wins() -> None:
    event = threading.Event()
    assert approvals.wait(event, AbortSignal.timeout(0.01)) is False
    event.set()
    assert approvals.wait(event, AbortSignal.timeout(0)) is False


def test_a_hook_that_waits_holds_the_call_until_the_answer_comes() -> None:
    question, answered = threading.Event(), threading.Event()
    ran: list[str] = []

    def ask(context: Any, signal: Any) -> Any:
        question.set()
        return allow() if approvals.wait(answered, signal) else deny()

    agent = agent_with(
        reply(call("echo", id="a")),
        "Done.",
        tools=[tool(execute=lambda *given: ran.append("ran") or "ran")],
        before_tool_call=ask,
    )
    stream = agent.stream("hi")
    assert question.wait(20)
    assert (agent.status().phase, agent.state.pending_tool_calls, ran) == ("running tools", {"a"}, [])
    answered.set()
    stream.result(20)

    assert ran == ["ran"]


def test_an_abort_ends_a_hook_that_waits_for_ever_and_the_call_does_not_run() -> None:
    ran: list[str] = []

    def ask(context: Any, signal: Any) -> Any:
        question.set()
        approvals.wait(threading.Event(), signal)
        return None

    question = threading.Event()
    agent = agent_with(
        reply(call("echo", id="a"), call("echo", id="b")),
        tools=[tool(execute=lambda *given: ran.append("ran") or "ran")],
        before_tool_call=ask,
    )
    stream = agent.stream("hi")
    assert question.wait(20)
    agent.abort()
    stream.result(20)

    assert ran == []
    assert transcript_problems(agent.messages) == []
    assert all(one.is_error for one in agent.messages if isinstance(one, ToolResultMessage))


# --- a hook that goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["no", "yes", 0, 1, True, False, {"block": False}, ToolCall("a", "echo", {})])
def test_a_hook_that_returns_something_else_blocks(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []
    agent = agent_with(
        reply(call("echo", id="a")),
        "Done.",
        tools=[tool(execute=lambda *given: ran.append("ran") or "ran")],
        before_tool_call=lambda context, signal: answer,
    )

    assert agent.prompt("hi").text == "Done."

    assert ran == []
    result = agent.messages[2]
    assert isinstance(result, ToolResultMessage)
    assert (result.is_error, type(answer).__name__ in result.text) == (True, True)
    assert "TypeError" in caplog.text


def test_a_hook_that_raises_blocks_its_call_and_no_other() -> None:
    def guard(context: Any, signal: Any) -> None:
        if context.tool_call.id == "b":
            raise RuntimeError("the guard is ill")

    ran: list[str] = []
    agent = agent_with(
        reply(*[call("echo", id=one) for one in "abc"]),
        "Done.",
        tools=[tool(execute=lambda tool_call_id, *given: ran.append(tool_call_id) or "ran")],
        before_tool_call=guard,
    )
    agent.prompt("hi")

    assert sorted(ran) == ["a", "c"]
    assert [one.is_error for one in agent.messages if isinstance(one, ToolResultMessage)] == [False, True, False]


def test_a_coroutine_function_as_a_hook_blocks() -> None:
    async def guard(context: Any, signal: Any) -> None: ...

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool()], before_tool_call=guard)
    agent.prompt("hi")

    result = agent.messages[2]
    assert isinstance(result, ToolResultMessage)
    assert (result.is_error, "plain function" in result.text) == (True, True)


def test_arguments_that_cannot_be_read_never_come_to_the_hook() -> None:
    asked: list[Any] = []
    broken = ToolCall("a", "echo", {}, partial_json="{rm -rf")
    agent = agent_with(
        reply(broken), "Done.", tools=[tool()], before_tool_call=lambda context, signal: asked.append(context)
    )
    agent.prompt("hi")

    assert asked == []
    assert agent.messages[2].is_error


# --- the terminal ---------------------------------------------------------------------------------------------------


class Terminal:
    """A terminal with a person at the other end."""

    def __init__(self) -> None:
        self.person, self.device = pty.openpty()
        self.stdin = os.fdopen(os.dup(self.device), encoding="utf-8")
        self.screen = os.fdopen(os.dup(self.device), "w", encoding="utf-8")
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.person, text.encode())

    def read_until(self, text: str, times: int = 1) -> str:
        """Return what is shown, once it holds a text so many times."""
        deadline = time.monotonic() + 20
        while self.shown.count(text) < times:
            assert select.select([self.person], [], [], max(0.0, deadline - time.monotonic()))[0], self.shown
            self.shown += os.read(self.person, 65536).decode("utf-8", "replace")
        return self.shown

    def close(self) -> None:
        self.stdin.close()
        self.screen.close()
        os.close(self.device)
        os.close(self.person)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    one = Terminal()
    # Not the real ones: pytest puts its own in their place when the test begins.
    monkeypatch.setattr(approvals, "sys", SimpleNamespace(stdin=one.stdin, stderr=one.screen, stdout=one.screen))
    yield one
    one.close()


QUESTION = "these arguments:"


class Asking:
    """A question on another thread, and its answer."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(ask,), daemon=True)
        self._thread.start()

    def _work(self, ask: Callable[[], Any]) -> None:
        try:
            self._answers.put(ask())
        except BaseException as error:
            self._answers.put(error)

    def answer(self) -> Any:
        got = self._answers.get(timeout=20)
        self._thread.join(20)
        if isinstance(got, BaseException):
            raise got
        return got


def ask(args: Any, one: AgentTool | None = None, signal: AbortSignal | None = None, name: str = "bash") -> Asking:
    return Asking(lambda: approvals.ask_in_terminal(asked_about(args, one, name), signal or never()))


@pytest.mark.parametrize("typed", ["y", "yes", "YES", " y ", "Yes."])
def test_yes_allows(terminal: Terminal, typed: str) -> None:
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    terminal.type(typed + "\n")

    assert asking.answer() == allow()


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("n", "The user did not allow the call of `bash`"),
        ("NO", "The user did not allow the call of `bash`"),
        ("no, use the trash instead", "The user did not allow the call of `bash`: use the trash instead"),
        ("n yes", "The user did not allow the call of `bash`: yes"),
    ],
)
def test_no_denies_with_the_reason_for_the_model(terminal: Terminal, typed: str, reason: str) -> None:
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    terminal.type(typed + "\n")

    assert asking.answer() == deny(reason)


@pytest.mark.parametrize("typed", ["", "maybe", "yes but only once", "yn", "always ask", "1", "y n"])
def test_an_answer_that_is_not_clear_is_asked_for_again(terminal: Terminal, typed: str) -> None:
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    terminal.type(typed + "\n")
    terminal.read_until(QUESTION, 2)
    terminal.type("n\n")

    assert asking.answer().block is True


def test_an_answer_may_come_in_pieces(terminal: Terminal) -> None:
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    terminal.type("n too ")
    threading.Event().wait(0.1)
    terminal.type("früh\n")

    assert asking.answer().reason.endswith("too früh")


def test_yes_is_for_this_one_call(terminal: Terminal) -> None:
    bash = tool("bash")
    for time_asked in (1, 2):
        asking = ask({"command": "ls"}, bash)
        terminal.read_until(QUESTION, time_asked)
        terminal.type("y\n")
        assert asking.answer() == allow()


def test_always_is_for_this_tool_and_exactly_these_arguments(terminal: Terminal) -> None:
    bash, other = tool("bash"), tool("bash")
    asking = ask({"command": "ls", "timeout": 1}, bash)
    terminal.read_until(QUESTION)
    terminal.type("a\n")
    assert asking.answer() == allow()

    again = approvals.ask_in_terminal(asked_about({"timeout": 1, "command": "ls"}, bash), never())
    assert again == allow()
    asked = 1
    for args, one in [
        ({"command": "ls"}, bash),
        ({"command": "ls", "timeout": 1.0}, bash),
        ({"command": "ls", "timeout": True}, bash),
        ({"command": "ls", "timeout": "1"}, bash),
        ({"command": "ls ", "timeout": 1}, bash),
        ({"command": "ls", "timeout": 1, "cwd": "/"}, bash),
        ({"command": "ls", "timeout": 1}, other),
        ({"command": "ls", "timeout": 1}, None),
    ]:
        asking = ask(args, one)
        asked += 1
        terminal.read_until(QUESTION, asked)
        terminal.type("n\n")
        assert asking.answer().block is True


@pytest.mark.parametrize("args", [{"what": object()}, {"ratio": float("nan")}, {1: "one"}, {"pair": (1, 2)}])
def test_arguments_that_json_cannot_hold_are_allowed_once_at_the_most(terminal: Terminal, args: Any) -> None:
    bash = tool("bash")
    for time_asked in (1, 2):
        asking = ask(args, bash)
        terminal.read_until(QUESTION, time_asked)
        terminal.type("always\n")
        assert asking.answer() == allow()


def test_what_is_allowed_always_is_forgotten_with_the_tool() -> None:
    before = len(approvals._always)
    bash = tool("bash")
    approvals._always.setdefault(bash, set()).add("{}")
    assert len(approvals._always) == before + 1
    del bash
    assert len(approvals._always) == before


def test_exactly_the_arguments_are_shown_with_nothing_invisible(terminal: Terminal) -> None:
    args = {
        "command": "ls\x1b[2K\r\nrm -rf ~ # \u202egpj.ls",
        "path": "C:\\new 漢字 \U000e0041 \ud800 \x7f \u00a0\u2028",
        "many": ["x" * 5000],
    }
    asking = ask(args, name="ba\x1b[8msh")
    shown = terminal.read_until(QUESTION)
    terminal.type("n\n")
    asking.answer()

    assert '"ba\\u001b[8msh"' in shown
    assert "ls\\u001b[2K\\r\\nrm -rf ~ # \\u202egpj.ls" in shown
    assert "C:\\\\new 漢字 \\U000e0041 \\ud800 \\u007f \\u00a0\\u2028" in shown
    assert "x" * 5000 in shown
    assert "\x1b" not in shown
    block = shown[shown.index("{") : shown.rindex("}") + 1].replace("\r\n", "\n")
    assert json.loads(block.replace("\\U000e0041", "\U000e0041")) == args


def test_a_terminal_that_knows_few_characters_shows_the_others_escaped(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(terminal.device, "w", encoding="ascii", closefd=False) as screen:
        monkeypatch.setattr(approvals.sys, "stderr", screen)
        asking = ask({"path": "漢"})
        shown = terminal.read_until(QUESTION)
        terminal.type("n\n")
        asking.answer()

    assert "\\u6f22" in shown


def test_what_was_typed_before_the_question_is_dropped(terminal: Terminal) -> None:
    terminal.type("y\ny\nye")
    asking = ask({"command": "rm"})
    terminal.read_until(QUESTION)
    threading.Event().wait(0.1)
    terminal.type("n\n")

    assert asking.answer().block is True


def test_what_python_had_read_before_the_question_is_no_answer(terminal: Terminal) -> None:
    terminal.type("first line\n")
    assert terminal.stdin.readline() == "first line\n"
    terminal.type("y\n")
    terminal.stdin.buffer.peek()
    asking = ask({"command": "rm"})
    terminal.read_until(QUESTION)
    terminal.type("n\n")

    assert asking.answer().block is True


def test_the_end_of_the_input_denies(terminal: Terminal) -> None:
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    threading.Event().wait(0.05)
    terminal.type("\x04")

    assert "no answer" in asking.answer().reason


def test_an_abort_ends_the_question(terminal: Terminal) -> None:
    controller = AbortController()
    asking = ask({"command": "ls"}, signal=controller.signal)
    terminal.read_until(QUESTION)
    controller.abort()

    assert "aborted" in asking.answer().reason


def test_stopping_one_call_that_is_asked_about_lets_the_run_go_on(terminal: Terminal) -> None:
    agent = agent_with(
        reply(call("bash", id="a")), "Done.", tools=[tool("bash")], before_tool_call=approvals.ask_in_terminal
    )
    stream = agent.stream("hi")
    terminal.read_until(QUESTION)
    assert agent.abort_tool("a")
    stream.result(20)

    assert agent.messages[-1].text == "Done."
    assert agent.messages[2].is_error


def test_questions_of_several_threads_come_one_after_another(terminal: Terminal) -> None:
    first = ask({"command": "one"})
    terminal.read_until(QUESTION)
    second = ask({"command": "two"})
    gone = ask({"command": "three"}, signal=AbortSignal.timeout(0.05))
    assert "aborted" in gone.answer().reason
    assert '"two"' not in terminal.shown
    terminal.type("y\n")
    assert first.answer() == allow()
    terminal.read_until(QUESTION, 2)
    terminal.type("n\n")

    assert second.answer().block is True


@pytest.mark.parametrize("stdin", ["none", "closed", "pipe"])
def test_without_a_terminal_to_read_from_the_call_is_denied(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, stdin: str
) -> None:
    replacement = None if stdin == "none" else io.StringIO("y\ny\n")
    if stdin == "closed":
        assert replacement is not None
        replacement.close()
    monkeypatch.setattr(approvals.sys, "stdin", replacement)

    answer = approvals.ask_in_terminal(asked_about({"command": "ls"}), never())

    assert (answer.block, "no terminal" in str(answer.reason)) == (True, True)


def test_a_question_that_nobody_could_see_is_denied(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals.sys, "stderr", io.StringIO())
    monkeypatch.setattr(approvals.sys, "stdout", io.StringIO())
    terminal.type("y\n")

    assert approvals.ask_in_terminal(asked_about({"command": "ls"}), never()).block is True


def test_the_question_is_shown_on_stdout_when_stderr_goes_elsewhere(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals.sys, "stderr", io.StringIO())
    monkeypatch.setattr(approvals.sys, "stdout", terminal.screen)
    asking = ask({"command": "ls"})
    terminal.read_until(QUESTION)
    terminal.type("y\n")

    assert asking.answer() == allow()


IN_A_SCRIPT = """
from agentcore import Agent, AgentTool, approvals
from agentcore.testing import call, reply, scripted, scripted_model
work = AgentTool("work", "Work", "Works.", {"type": "object"}, lambda *given: "ran")
agent = Agent(
    scripted_model(), tools=[work], stream_fn=scripted(reply(call("work", id="a")), "Done."), before_tool_call=approvals.%s
)
try:
    agent.prompt("hi")
except KeyboardInterrupt:
    agent.before_tool_call = None
    print("interrupted", agent.prompt("again").text)
print("RESULT", [message.text for message in agent.messages if message.role == "toolResult"])
"""


@pytest.mark.parametrize("hook", ["ask_in_terminal", "ask_with_input"])
def test_a_script_whose_input_is_a_pipe_of_yes_runs_nothing(hook: str) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", IN_A_SCRIPT % hook], input="y\n" * 50, capture_output=True, text=True, timeout=60
    )

    assert "RESULT" in outcome.stdout
    assert "ran" not in outcome.stdout
    assert "no terminal" in outcome.stdout


@pytest.mark.parametrize("hook", ["ask_in_terminal", "ask_with_input"])
def test_ctrl_c_at_the_question_ends_the_run_and_the_call_does_not_run(hook: str) -> None:
    person, device = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", IN_A_SCRIPT % hook], stdin=device, stdout=device, stderr=device, start_new_session=True
    )
    os.close(device)
    shown = ""
    try:
        while "arguments:" not in shown:
            shown += os.read(person, 65536).decode()
        child.send_signal(signal.SIGINT)
        while "RESULT" not in shown:
            # `input` does not notice a signal that comes just before it begins to read: a person tries again.
            if not select.select([person], [], [], 3)[0]:
                child.send_signal(signal.SIGINT)
            else:
                shown += os.read(person, 65536).decode()
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        os.close(person)

    assert "interrupted Done." in shown
    assert "ran" not in shown


# --- input() --------------------------------------------------------------------------------------------------------


class Person:
    """Takes the place of `input`, as a notebook does."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, question: str) -> str:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return str(answer() if callable(answer) else answer)


def ask_input(monkeypatch: pytest.MonkeyPatch, *answers: Any, signal: AbortSignal | None = None) -> tuple[Any, Person]:
    person = Person(*answers)
    monkeypatch.setattr(builtins, "input", person)
    return approvals.ask_with_input(asked_about({"command": "ls\x07"}), signal or never()), person


def test_a_notebook_is_asked_until_the_answer_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, person = ask_input(monkeypatch, "", "hm", "yes")

    assert answer == allow()
    assert len(person.asked) == 3
    assert "ls\\u0007" in person.asked[0]


@pytest.mark.parametrize("failure", [EOFError(), NotImplementedError("no input here")])
def test_a_notebook_that_cannot_ask_denies(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    answer, _ = ask_input(monkeypatch, failure)

    assert (answer.block, "no answer" in answer.reason) == (True, True)


def test_an_answer_after_the_abort_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = AbortController()

    def late() -> str:
        controller.abort()
        return "yes"

    answer, _ = ask_input(monkeypatch, late, signal=controller.signal)
    assert answer.block is True
    answer, person = ask_input(monkeypatch, "yes", signal=controller.signal)
    assert (answer.block, person.asked) == (True, [])


def test_input_that_is_no_terminal_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    answer = approvals.ask_with_input(asked_about({"command": "ls"}), never())

    assert (answer.block, "no terminal" in str(answer.reason)) == (True, True)


def test_input_in_a_terminal_asks_there(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(approvals.sys, name))
    asking = Asking(lambda: approvals.ask_with_input(asked_about({"command": "ls"}), never()))
    terminal.read_until(QUESTION)
    terminal.type("y\n")

    assert asking.answer() == allow()


def test_nothing_of_the_arguments_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.INFO):
        ask_input(monkeypatch, "n")

    assert caplog.text == ""


def test_the_modules_that_only_some_systems_have_are_imported_on_first_use() -> None:
    text = Path(approvals.__file__).read_text(encoding="utf-8")

    assert "\nimport termios" not in text
