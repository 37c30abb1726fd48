"""The live view of a terminal: what it sends is only what it means to send, whatever it shows."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore import AbortSignal, Agent, AgentLoopConfig, AgentTool, agent_loop
from agentcore.config import AgentContext
from agentcore.display import terminal
from agentcore.display.terminal import LiveView, can_be_live
from agentcore.messages import message_from_dict
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from agentcore.tools import OnUpdate
from tests.display.display_support import HOSTILE, HOSTILE_MARKDOWN, full_agent, hostile_agent

pytest.importorskip("rich", reason="rich is not installed: there is no live view")

OWN_SEQUENCES = re.compile(r"\x1b\[(?:\?2026[hl]|\?25[hl]|\?2004[hl]|\d*[ACJ]|[\d;]*m)")


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(agent: Agent, *prompts: str) -> str:
    """Return what is sent to a terminal while an agent runs."""
    screen = Screen()
    view = LiveView(screen)
    stop = agent.subscribe(view)
    for prompt in prompts:
        agent.prompt(prompt)
    stop()
    view.close()
    return screen.getvalue()


def test_a_run_is_shown_with_everything_in_it(tmp_path: Path) -> None:
    sent = shown(full_agent(tmp_path), "Improve the plan.", "More.")

    text = OWN_SEQUENCES.sub("", sent)
    for line in (
        "The plan needs *cheese*.",
        "- draw a **picture**",
        "✓ edit plan.txt · 0.0s",
        "  +buy cheese",
        "  [image image/png, ",
        "  [The command failed with exit code 3.]",
        "print('<not html>')",
        "4,000 tokens in (1,600 cached), 68 out, $0.0060 · 2 turns · ",
        "error: the server is overloaded",
    ):
        assert line in text
    assert "\x1b[2;3mThe plan needs" in sent  # dim italic
    assert "\x1b[32m  +buy cheese" in sent


def test_hostile_texts_send_nothing_to_the_terminal_and_are_stored_exactly() -> None:
    agent = hostile_agent()

    sent = OWN_SEQUENCES.sub("", shown(agent, HOSTILE))

    assert not [char for char in sent if char not in "\n\r" and (ord(char) < 32 or 127 <= ord(char) < 160)]
    assert "\u202e" not in sent
    assert "[/bold] [red]x[/red] {braces} {0} %s </details>" in sent
    messages = agent.messages
    assert messages[0].content == HOSTILE
    assert messages[1].content[1].text == HOSTILE_MARKDOWN
    assert messages[2].content[0].text == HOSTILE
    assert all(message_from_dict(message.to_dict()) == message for message in messages)


def test_what_the_user_types_is_shown_harmless() -> None:
    screen = Screen()
    view = LiveView(screen)
    view.typing("› ", f"{HOSTILE}\n{HOSTILE}", 10)
    view.said(HOSTILE)
    view.note(HOSTILE)
    view.lines(HOSTILE)
    view.close()

    sent = OWN_SEQUENCES.sub("", screen.getvalue())
    assert not [char for char in sent if char not in "\n\r" and (ord(char) < 32 or 127 <= ord(char) < 160)]


def slow_tool(gate: Gate) -> AgentTool:
    def work(tool_call_id: str, params: object, signal: AbortSignal, on_update: OnUpdate, context: object) -> str:
        on_update("\n".join(f"line {number}" for number in range(10)))
        gate.hold(signal)
        return "done"

    return AgentTool("slow", "Slow", "Takes its time.", {"type": "object"}, work)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_call_that_goes_on_shows_the_end_of_its_output(tmp_path: Path) -> None:
    agent = Agent(
        scripted_model(),
        tools=[slow_tool(gate := Gate())],
        stream_fn=scripted(reply(call("slow")), "Done."),
    )
    screen = Screen()
    view = LiveView(screen)
    agent.subscribe(view)
    with gate, agent.stream("go") as stream:
        gate.wait_reached()
        wait_until(lambda: "line 9" in screen.getvalue())
        gate.open()
        stream.result(10)
    view.close()

    live = OWN_SEQUENCES.sub("", screen.getvalue()).partition("line 9")[0]
    assert "slow" in live
    assert "line 5" in live
    assert "line 4" not in live


def test_a_terminal_that_is_gone_is_reported_once() -> None:
    screen = Screen()
    failures: list[str] = []
    view = LiveView(screen, lambda: failures.append("gone"))
    screen.close()
    view.note("one")
    view.note("two")
    view.close()

    assert failures == ["gone"]


def test_an_encoding_without_the_signs_gets_others() -> None:
    class Ascii(Screen):
        encoding = "ascii"

    screen = Ascii()
    view = LiveView(screen)
    view.note("déjà ✓ vu ✗")
    view.close()

    assert "d?j? + vu x" in screen.getvalue()


def test_only_a_terminal_that_can_be_drawn_on_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_live(Screen())
    assert not can_be_live(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not can_be_live(Screen())


def test_without_rich_a_terminal_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "find_spec", lambda name: None)

    assert not can_be_live(Screen())


# --- show -----------------------------------------------------------------------------------------------------------


def test_show_prints_the_run_of_a_stream_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    config = AgentLoopConfig(model=scripted_model())
    stream = agent_loop("hi", AgentContext(), config, stream_fn=scripted("Hello."))

    terminal.show(stream)

    assert capsys.readouterr().out == "Hello.\n"
    assert [message.role for message in stream.result()] == ["user", "assistant"]


def test_show_leaves_what_ended_a_stream_to_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(messages: object, signal: object) -> list[object]:
        raise LookupError("not today")

    config = AgentLoopConfig(model=scripted_model(), transform_context=refuse)
    stream = agent_loop("hi", AgentContext(), config, stream_fn=scripted("Hello."))

    terminal.show(stream)

    with pytest.raises(LookupError, match="not today"):
        stream.result()


def test_show_prints_every_run_of_an_agent_until_hide(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent(scripted_model(), stream_fn=scripted("One.", "Two.", "Three."))
    terminal.show(agent)
    terminal.show(agent)
    agent.prompt("first")
    agent.prompt("second")
    terminal.hide(agent)
    terminal.hide(agent)
    agent.prompt("third")

    assert capsys.readouterr().out == "One.\nTwo.\n"


def test_show_draws_live_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    agent = Agent(scripted_model(), stream_fn=scripted("One."))
    terminal.show(agent)
    agent.prompt("first")

    assert "One." in screen.getvalue()
    assert "\x1b[?25l" in screen.getvalue()


def test_show_refuses_what_it_cannot_show() -> None:
    with pytest.raises(TypeError, match="`show` takes an `Agent` or an `EventStream`, not str"):
        terminal.show("agent")  # type: ignore[arg-type]


def test_something_that_cannot_be_shown_does_not_hide_what_comes_after_it(caplog: pytest.LogCaptureFixture) -> None:
    screen = Screen()
    view = LiveView(screen)
    view.note(None)  # type: ignore[arg-type]
    view.note("still here")
    view.close()

    assert "still here" in screen.getvalue()
    assert caplog.messages == ["something could not be shown"]
