"""Conversations in a real terminal, driven and looked at through tmux, wide and narrow."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcore.sessions import Session
from agentcore.testing.gate import Gate
from agentcore.testing.sse_server import Stall
from tests.cli.cli_support import ROOT, says, server_of

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="tmux is not installed: a terminal cannot be driven"
)

SECONDS = 30.0
PROMPT = "ready$"


class Terminal:
    """A terminal with a shell in it."""

    def __init__(self, folder: Path, columns: int, lines: int) -> None:
        # The path of a socket must be short, which that of the folder may not be.
        self._sockets = Path(tempfile.mkdtemp(prefix="agentcore-"))
        self._socket = str(self._sockets / "tmux")
        self.folder = folder
        shell = f"env PS1='{PROMPT} ' PYTHONPATH={ROOT} PATH={Path(sys.executable).parent}:/usr/bin:/bin sh"
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(folder), shell)
        self.wait_for(PROMPT)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def title(self) -> str:
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def screen(self, *options: str) -> list[str]:
        """Return the lines with all that has scrolled away, without blank ones at the end."""
        text = self._tmux("capture-pane", "-p", "-S", "-", *options)
        return [line.rstrip() for line in text.rstrip("\n").split("\n")]

    def wait_for(self, what: str | Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen holds a text, or satisfies a function; return it."""
        deadline = time.monotonic() + SECONDS
        while True:
            screen = self.screen()
            if (what in "\n".join(screen)) if isinstance(what, str) else what(screen):
                return screen
            if time.monotonic() > deadline:
                pytest.fail(f"{what} never came; the screen is\n" + "\n".join(screen))
            time.sleep(0.02)

    def wait_for_row(self, pattern: str) -> list[str]:
        """Wait until a row of the screen matches a pattern as a whole."""
        return self.wait_for(lambda screen: any(re.fullmatch(pattern, row) for row in screen))

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, stdin=subprocess.DEVNULL)
        shutil.rmtree(self._sockets)


OpenTerminal = Callable[..., Terminal]


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[OpenTerminal]:
    opened: list[Terminal] = []

    def open_one(columns: int = 80, lines: int = 40) -> Terminal:
        terminal = Terminal(tmp_path, columns, lines)
        opened.append(terminal)
        return terminal

    yield open_one
    for terminal in opened:
        terminal.close()


def start(terminal: Terminal, url: str, *arguments: str) -> None:
    """Start a conversation, and wait until it is there."""
    words = ["python", "-m", "agentcore", "--model", "m", "--base-url", f"{url}/v1", *arguments]
    terminal.enter(shlex.join(words))
    terminal.wait_for("› ask something, or /help")


def wait_for_idle(terminal: Terminal, runs: int) -> list[str]:
    """Wait until so many runs are over and the next prompt can be typed."""

    def is_idle(screen: list[str]) -> bool:
        over = sum(" turn" in row and " · " in row for row in screen)
        return over == runs and screen[-1] == "› ask something, or /help"

    return terminal.wait_for(is_idle)


def masked(rows: list[str]) -> list[str]:
    """Return rows with their times masked, and without blank ones."""
    return [re.sub(r"\d+\.\ds", "Ts", row) for row in rows if row]


WIDE = """\
› Tidy up.
I look at the plan.
The model wants to run bash:
  command │ echo one; echo two
? y
✓ bash echo one; echo two · Ts
  one
  two
Now I wait.
The model wants to run bash:
  command │ echo begun; sleep 600; echo a long command
? a
✗ bash echo begun; sleep 600; echo a long command · Ts
  begun
  [The command was aborted: interrupted.]
Stopped.
2,400 tokens in, 68 out · 2 turns · Ts
› And now?
The plan is tidy: it has all the lines that it had before, in the same order,
and nothing else.
1,200 tokens in, 34 out · 1 turn · Ts"""

NARROW = """\
› Tidy up.
I look at the plan.
The model wants to run bash:
  command │ echo one; echo two
? y
✓ bash echo one; echo two · Ts
  one
  two
Now I wait.
The model wants to run bash:
  command │ echo begun; sleep 600; echo
          │ a long command
? a
✗ bash echo begun; sleep 600; echo a lon
g command · Ts
  begun
  [The command was aborted: interrupted.
]
Stopped.
2,400 tokens in, 68 out · 2 turns · Ts
› And now?
The plan is tidy: it has all the lines
that it had before, in the same order,
and nothing else.
1,200 tokens in, 34 out · 1 turn · Ts"""


@pytest.mark.parametrize(("columns", "expected"), [(80, WIDE), (40, NARROW)], ids=["80 columns", "40 columns"])
def test_a_conversation_with_a_tool_an_interrupt_and_a_next_prompt(
    open_terminal: OpenTerminal, columns: int, expected: str
) -> None:
    stuck = "echo begun; sleep 600; echo a long command"
    prose = "The plan is tidy: it has all the lines that it had before, in the same order, and "
    with server_of(
        says("I look ", "at the plan.", calls=[("bash", {"command": "echo one; echo two"})]),
        says("Now I wait.", calls=[("bash", {"command": stuck})]),
        says(prose, "nothing else."),
    ) as server:
        terminal = open_terminal(columns)
        start(terminal, server.url)
        terminal.enter("Tidy up.")
        terminal.wait_for("? y yes · n no, and why · a always")
        terminal.enter("y")
        terminal.wait_for(lambda screen: sum("The model wants to run" in row for row in screen) == 2)
        terminal.enter("a")
        terminal.wait_for(lambda screen: screen[-2:] == ["  begun", "› type to steer, Ctrl-C stops"])
        terminal.press("C-c")
        wait_for_idle(terminal, 1)
        terminal.enter("And now?")
        screen = wait_for_idle(terminal, 2)
        terminal.enter("/quit")
        terminal.wait_for(lambda screen: screen[-1] == PROMPT)
        terminal.enter("echo status $?; stty -a | grep -o -- '-*icanon'; stty -a | grep -o -- '-*echo '; echo END $?")
        left = terminal.wait_for(lambda screen: "END 0" in screen)

    begin = next(at for at, row in enumerate(screen) if row.startswith("› Tidy"))
    assert "\n".join(masked(screen[begin:-1])) == expected
    asked = [message["content"] for message in server.requests[2].json()["messages"] if message["role"] == "user"]
    assert asked == ["Tidy up.", "And now?"]
    assert left[left.index("status 0") :][:3] == ["status 0", "icanon", "echo"]


def test_a_line_typed_during_a_run_steers_it_and_commands_wait(open_terminal: OpenTerminal) -> None:
    gate = Gate()
    with gate, server_of(says("I begin", Stall(gate), "."), says("I look at the other plan.")) as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.enter("Tidy up.")
        terminal.wait_for("I begin")
        terminal.enter("/cost")
        terminal.wait_for("/cost works when the run is over; Ctrl-C stops it.")
        terminal.enter("Look at the other plan.")
        terminal.wait_for("The model reads this after its turn: Look at the other plan.")
        gate.open()
        screen = wait_for_idle(terminal, 1)

    assert "› Look at the other plan." in screen
    asked = [message["content"] for message in server.requests[1].json()["messages"] if message["role"] == "user"]
    assert asked == ["Tidy up.", "Look at the other plan."]


def test_what_was_typed_and_not_read_comes_back_after_an_interrupt(open_terminal: OpenTerminal) -> None:
    gate = Gate()
    with gate, server_of(says("I begin", Stall(gate), "."), says("I see.")) as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.enter("Tidy up.")
        terminal.wait_for("I begin")
        terminal.enter("Not that one.")
        terminal.wait_for("The model reads this after its turn: Not that one.")
        terminal.press("C-c")
        terminal.wait_for(lambda screen: screen[-1] == "› Not that one.")
        terminal.press("Enter")
        wait_for_idle(terminal, 2)

    asked = [message["content"] for message in server.requests[1].json()["messages"] if message["role"] == "user"]
    assert asked == ["Tidy up.", "Not that one."]


def test_what_was_typed_before_a_question_does_not_answer_it(open_terminal: OpenTerminal, tmp_path: Path) -> None:
    gate = Gate()
    calls = [("bash", {"command": "touch x"})]
    with gate, server_of(says("I begin", Stall(gate), ".", calls=calls), says("I see.")) as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.enter("Tidy up.")
        terminal.wait_for("I begin")
        terminal.enter("y")
        terminal.type("and al")
        terminal.wait_for(lambda screen: screen[-1] == "› and al")
        gate.open()
        terminal.wait_for("? y yes · n no, and why · a always")
        terminal.enter("what?")
        terminal.wait_for("Please answer y (yes), n (no, and why if you like)")
        terminal.enter("n it is not needed")
        terminal.wait_for(lambda screen: screen[-1] == "› and al" and "I see." in screen)

    assert not (tmp_path / "x").exists()
    messages = server.requests[1].json()["messages"]
    assert [message["content"] for message in messages if message["role"] in ("user", "tool")] == [
        "Tidy up.",
        "The user did not allow the call of `bash`: it is not needed",
        "y",
    ]


def test_ctrl_c_clears_a_line_and_leaves_when_pressed_twice_at_an_empty_one(open_terminal: OpenTerminal) -> None:
    with server_of() as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.type("half a line")
        terminal.wait_for(lambda screen: screen[-1] == "› half a line")
        terminal.press("C-c")
        terminal.wait_for(lambda screen: screen[-1] == "› ask something, or /help")
        terminal.press("C-c")
        terminal.wait_for("Press Ctrl-C again to leave.")
        terminal.press("C-c")
        screen = terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    assert not any("Traceback" in row for row in screen)


def test_ctrl_d_leaves(open_terminal: OpenTerminal) -> None:
    with server_of() as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.press("C-d")
        terminal.wait_for(lambda screen: screen[-1] == PROMPT)


def test_a_pasted_text_is_one_prompt_and_can_be_edited(open_terminal: OpenTerminal) -> None:
    with server_of(says("I see.")) as server:
        terminal = open_terminal(30)
        start(terminal, server.url)
        terminal.paste("first line\nsecond line that is too long\n")
        terminal.wait_for(lambda screen: screen[-2:] == ["› first line⏎second line that", " is too long⏎"])
        terminal.press("BSpace", "Home")
        terminal.type("the ")
        terminal.press("End", "C-w", "C-w")
        terminal.enter("short\N{SNOWMAN}")
        terminal.wait_for(lambda screen: "I see." in screen and screen[-1] == "› ask something, or /help")

    assert (
        server.requests[0].json()["messages"][-1]["content"] == "the first line\nsecond line that is short\N{SNOWMAN}"
    )


def test_the_screen_stays_whole_when_the_terminal_changes_its_size(open_terminal: OpenTerminal) -> None:
    gate = Gate()
    calls = [("bash", {"command": "for word in one two three; do echo $word; done; read x < fifo; echo four"})]
    with gate, server_of(says("I begin.", calls=calls), says("I end.")) as server:
        terminal = open_terminal(70)
        terminal.enter("mkfifo fifo")
        start(terminal, server.url, "--yes")
        terminal.enter("Tidy up.")
        terminal.wait_for(lambda screen: "  three" in screen)
        terminal.resize(45, 40)
        terminal.wait_for(lambda screen: any(re.fullmatch(". bash for .{20,30}… · .*s", row) for row in screen))
        terminal.resize(100, 40)
        terminal.wait_for(lambda screen: any(re.fullmatch(". bash for .*echo four · .*s", row) for row in screen))
        (terminal.folder / "fifo").write_text("go\n")
        screen = wait_for_idle(terminal, 1)

    assert [row for row in screen if row.startswith(("✓ bash", "I begin", "I end", "› type"))] == [
        "I begin.",
        next(row for row in screen if row.startswith("✓ bash")),
        "I end.",
    ]


def test_hostile_output_and_text_do_nothing_to_the_terminal(open_terminal: OpenTerminal, tmp_path: Path) -> None:
    harm = "\x1b]0;stolen\x07\x1b[2J\x1b[H\x1b[31m[/bold]{0}\x9b2J\r\x08%s</details>"
    (tmp_path / "harm.txt").write_bytes(harm.encode())
    calls = [("read", {"path": "harm.txt"}), (harm, {harm: harm})]
    with server_of(says(f"First.\n{harm}", calls=calls), says("Last.")) as server:
        terminal = open_terminal(100)
        start(terminal, server.url, "--session", "talk.jsonl")
        terminal.enter("Read it.")
        wait_for_idle(terminal, 1)
        screen = terminal.screen()
        colours = terminal.screen("-e")
        terminal.enter("/quit")
        terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    assert {"First.", "Last."} <= set(screen)
    shown = "␛]0;stolen␇␛[2J␛[H␛[31m[/bold]{0}\ufffd2J␍␈%s</details>"
    assert sum(shown in row.replace("⏎", "") for row in screen) >= 2
    assert terminal.title() != "stolen"
    assert not any("31m[/bold]" in row.replace("␛[31m", "") for row in colours)
    messages = Session.read(tmp_path / "talk.jsonl").messages()
    assert messages[1].text == f"First.\n{harm}"
    assert messages[1].tool_calls[1].arguments == {harm: harm}
    assert messages[2].text == harm


def test_a_prompt_as_an_argument_runs_once_and_can_be_steered(open_terminal: OpenTerminal) -> None:
    gate = Gate()
    with gate, server_of(says("I begin", Stall(gate), "."), says("I end.")) as server:
        terminal = open_terminal()
        terminal.enter(f"python -m agentcore --model m --base-url {server.url}/v1 go; echo status $?")
        terminal.wait_for("I begin")
        terminal.enter("more")
        terminal.wait_for("The model reads this after its turn: more")
        gate.open()
        screen = terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    assert "status 0" in screen
    assert len(server.requests) == 2


def test_an_interrupted_prompt_has_status_130(open_terminal: OpenTerminal) -> None:
    gate = Gate()
    with gate, server_of(says("I begin", Stall(gate), ".")) as server:
        terminal = open_terminal()
        terminal.enter(f"python -m agentcore --model m --base-url {server.url}/v1 go; echo status $?")
        terminal.wait_for("I begin")
        terminal.press("C-c")
        screen = terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    assert "status 130" in screen
    assert "Stopped." in screen


def test_a_process_in_the_background_does_not_touch_the_terminal(open_terminal: OpenTerminal) -> None:
    with server_of(says("I am done.")) as server:
        terminal = open_terminal()
        terminal.enter("set -m")
        terminal.enter(
            f"python -m agentcore --model m --base-url {server.url}/v1 go >out 2>&1 & wait; cat out; echo END $?"
        )
        screen = terminal.wait_for(lambda screen: "END 0" in screen)

    assert any(row.endswith("I am done.") for row in screen)


def test_a_conversation_without_rich_is_plain_text(open_terminal: OpenTerminal, tmp_path: Path) -> None:
    calls = [("bash", {"command": "echo one"})]
    with server_of(says("I begin.", calls=calls), says("I end."), says("Again.")) as server:
        terminal = open_terminal()
        terminal.enter("export TERM=dumb")
        terminal.enter(f"clear; python -m agentcore --model m --base-url {server.url}/v1")
        terminal.wait_for(lambda screen: screen[-1] == "›")
        terminal.enter("Tidy up.")
        terminal.wait_for("y yes · n no, and why · a always ?")
        terminal.enter("y")
        terminal.wait_for("2 turns")
        terminal.wait_for(lambda screen: screen[-1] == "›")
        terminal.enter("More.")
        terminal.wait_for(lambda screen: screen[-1] == "›" and "Again." in screen)
        terminal.enter("/quit")
        screen = terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    assert [row for row in screen if row in ("I begin.", "  one", "I end.", "Again.")] == [
        *["I begin.", "  one", "I end.", "Again."]
    ]


def test_a_process_that_is_suspended_leaves_the_terminal_and_takes_it_again(open_terminal: OpenTerminal) -> None:
    with server_of(says("I see.")) as server:
        terminal = open_terminal()
        start(terminal, server.url)
        terminal.type("half a")
        terminal.wait_for(lambda screen: screen[-1] == "› half a")
        terminal.press("C-z")
        terminal.wait_for(lambda screen: screen[-1] == PROMPT)
        terminal.enter("stty -a | grep -o -- '-*icanon'; echo between")
        terminal.wait_for(lambda screen: screen[-3:] == ["icanon", "between", PROMPT])
        terminal.enter("fg")
        terminal.wait_for(lambda screen: screen[-1] == "› half a")
        terminal.enter(" line")
        screen = wait_for_idle(terminal, 1)

    assert server.requests[0].json()["messages"][-1]["content"] == "half a line"
    assert {"between", "icanon", "› half a line", "I see."} <= set(screen)
    assert "› half a" not in screen


def test_a_prompt_whose_output_is_read_by_another_program_leaves_the_keyboard_to_it_but_for_questions(
    open_terminal: OpenTerminal,
) -> None:
    gate = Gate()
    calls = [("bash", {"command": "echo one"})]
    with gate, server_of(says("I begin.\n", Stall(gate), calls=calls), says("I end.")) as server:
        terminal = open_terminal()
        ask = f"python -m agentcore --model m --base-url {server.url}/v1 go"
        terminal.enter(f"{ask} | (read line; echo out: $line; read key </dev/tty; echo key: $key; cat)")
        terminal.wait_for("out: I begin.")
        terminal.enter("for the pager")
        terminal.wait_for("key: for the pager")
        gate.open()
        terminal.wait_for("y yes · n no, and why · a always ?")
        terminal.enter("y")
        screen = terminal.wait_for(lambda screen: screen[-1] == PROMPT)

    # Two programs write to the terminal, so one may begin where the other one has not ended its line.
    assert any("I end." in line for line in screen)
    assert "  one" in screen
    roles = [message["role"] for message in server.requests[1].json()["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
