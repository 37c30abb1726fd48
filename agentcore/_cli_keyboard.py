"""What a user types: keys of a terminal made into lines, on a thread of their own.

The terminal gives every key at once and shows none; the line is edited here and shown by the view, so that what is
typed and what a run shows do not write over one another. Ctrl-C stays what it is: the interrupt of the main thread.
"""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Callable
from queue import Empty
from typing import Any, Final

from agentcore._mailbox import Mailbox, start_daemon
from agentcore.abort import AbortController

__all__ = ["KeyDecoder", "Keyboard", "LineEditor", "PlainLines", "is_in_foreground"]

_SECONDS_FOR_A_SEQUENCE: Final = 0.05
_SECONDS_TO_CLOSE: Final = 2.0
_PASTE_BEGINS: Final = "\x1b[200~"
_PASTE_ENDS: Final = "\x1b[201~"

_KEYS: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[7~": "home",
    "\x1b[8~": "end",
    "\x1b[3~": "delete",
    "\x1b[1;5C": "word right",
    "\x1b[1;5D": "word left",
    "\x1bf": "word right",
    "\x1bb": "word left",
    "\x1b\r": "line feed",
    "\x1b\n": "line feed",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x01": "home",
    "\x02": "left",
    "\x04": "end of input",
    "\x05": "end",
    "\x06": "right",
    "\x0b": "kill right",
    "\x0e": "down",
    "\x10": "up",
    "\x15": "kill left",
    "\x17": "kill word",
}


def is_in_foreground(terminal: int) -> bool:
    """Return whether a file is a terminal and this process may read from it."""
    return os.isatty(terminal) and os.tcgetpgrp(terminal) == os.getpgrp()


class KeyDecoder:
    """Makes keys of the bytes that a terminal sends, however they are cut.

    A key is a name such as `left`, or `text:` and what was typed or pasted.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._pasted: list[str] | None = None

    @property
    def holds_something(self) -> bool:
        """Whether the beginning of a sequence has come, and not its end."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys of the next bytes."""
        text = self._held + self._decoder.decode(data)
        self._held = ""
        keys: list[str] = []
        while text:
            text = self._pasted_part(text, keys) if self._pasted is not None else self._one(text, keys)
        return keys

    def give_up(self) -> None:
        """Forget the beginning of a sequence that does not go on, such as a press of Escape."""
        if self._pasted is None:
            self._held = ""

    def _pasted_part(self, text: str, keys: list[str]) -> str:
        assert self._pasted is not None
        before, end, rest = text.partition(_PASTE_ENDS)
        if end:
            pasted = "".join([*self._pasted, before]).replace("\r\n", "\n").replace("\r", "\n")
            self._pasted = None
            keys.append(f"text:{pasted}")
            return rest
        # The end may be cut in two.
        cut = max((n for n in range(1, len(_PASTE_ENDS)) if text.endswith(_PASTE_ENDS[:n])), default=0)
        self._pasted.append(text[: len(text) - cut])
        self._held = text[len(text) - cut :]
        return ""

    def _one(self, text: str, keys: list[str]) -> str:
        """Take one key off the text; return the rest."""
        if text[0] == "\x1b":
            length = _sequence_length(text)
            if length is None:
                self._held = text
                return ""
            sequence, text = text[:length], text[length:]
            if sequence == _PASTE_BEGINS:
                self._pasted = []
            elif sequence in _KEYS:
                keys.append(_KEYS[sequence])
            return text
        if text[0] in _KEYS:
            keys.append(_KEYS[text[0]])
            return text[1:]
        length = next((at for at, char in enumerate(text) if ord(char) < 32 or char == "\x7f"), len(text))
        if length:
            keys.append(f"text:{text[:length]}")
            return text[length:]
        return text[1:]  # a control character that means nothing here


def _sequence_length(text: str) -> int | None:
    """Return how long the escape sequence is that a text begins with; `None` if it is not all there."""
    if len(text) < 2:
        return None
    if text[1] not in "[O":
        return 2
    for at, char in enumerate(text[2:], start=2):
        if "@" <= char <= "~":
            return at + 1
        if not " " <= char <= "?":
            return at  # broken off
    return None if len(text) < 32 else len(text)


class LineEditor:
    """A line that is being typed, and those that were typed before it."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._history: list[str] = []
        self._at = 0
        self._newest = ""

    def press(self, key: str) -> str | None:
        """Take in a key; return the line if it is complete."""
        if key.startswith("text:"):
            self._replace(self.cursor, self.cursor, key.removeprefix("text:"))
        elif key == "line feed":
            self._replace(self.cursor, self.cursor, "\n")
        elif key == "enter":
            return self._take()
        elif key == "backspace":
            self._replace(max(0, self.cursor - 1), self.cursor)
        elif key == "delete":
            self._replace(self.cursor, self.cursor + 1)
        elif key == "kill left":
            self._replace(0, self.cursor)
        elif key == "kill right":
            self._replace(self.cursor, len(self.text))
        elif key == "kill word":
            self._replace(self._word_left(), self.cursor)
        elif key in ("up", "down"):
            self._recall(self._at + (1 if key == "down" else -1))
        else:
            self._move(key)
        return None

    def set(self, text: str) -> None:
        """Begin with a text."""
        self.text, self.cursor = text, len(text)

    def _take(self) -> str:
        line = self.text
        if line.strip() and self._history[-1:] != [line]:
            self._history.append(line)
        self._at, self._newest = len(self._history), ""
        self.set("")
        return line

    def _replace(self, start: int, end: int, text: str = "") -> None:
        self.text = self.text[:start] + text + self.text[end:]
        self.cursor = start + len(text)

    def _recall(self, at: int) -> None:
        if not 0 <= at <= len(self._history):
            return
        if self._at == len(self._history):
            self._newest = self.text
        self._at = at
        self.set(self._newest if at == len(self._history) else self._history[at])

    def _move(self, key: str) -> None:
        places = {
            "left": max(0, self.cursor - 1),
            "right": min(len(self.text), self.cursor + 1),
            "home": 0,
            "end": len(self.text),
            "word left": self._word_left(),
            "word right": self._word_right(),
        }
        self.cursor = places.get(key, self.cursor)

    def _word_left(self) -> int:
        before = self.text[: self.cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _word_right(self) -> int:
        after = self.text[self.cursor :]
        begins = len(after) - len(after.lstrip())
        ends = next((at for at, char in enumerate(after) if at >= begins and char.isspace()), len(after))
        return self.cursor + ends


class Keyboard:
    """Reads keys on a thread, and says what becomes of them, on that thread.

    `submitted(line)` is called with each line, and with `None` at the end of the input; `changed()` when `typed`, the
    line as it is being typed, has changed.

    Threads: `set_aside`, `bring_back`, `replace` and `close` may be called from any thread; the rest happens on the
    keyboard's.
    """

    def __init__(self, terminal: int, submitted: Callable[[str | None], object], changed: Callable[[], object]) -> None:
        self._terminal = terminal
        self._submitted = submitted
        self._changed = changed
        self._editor = LineEditor()
        self._aside: str | None = None
        self._jobs: Mailbox[Callable[[], object] | None] = Mailbox()
        self._wake_reader, self._wake_writer = os.pipe()
        self._ended = AbortController()
        self._before: Any = None

    @property
    def text(self) -> str:
        """What is being typed."""
        return self._editor.text

    @property
    def typed(self) -> tuple[str, int]:
        """What is being typed, and where the cursor is in it."""
        text, cursor = self._editor.text, self._editor.cursor
        return text, min(cursor, len(text))

    def start(self) -> None:
        """Take the terminal over and begin to read."""
        import termios

        self._before = termios.tcgetattr(self._terminal)
        start_daemon(self._run, "agentcore-keyboard")
        self._take_terminal()

    def give_back(self) -> None:
        """Leave the terminal as it was, for a while; safe in a signal handler."""
        import termios

        if self._before is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def come_back(self) -> None:
        """Take the terminal over again, if this process may; safe in a signal handler."""
        if is_in_foreground(self._terminal):
            self._take_terminal()
            self.show()

    def _take_terminal(self) -> None:
        """Have the terminal give every key and show none."""
        import termios

        settings = termios.tcgetattr(self._terminal)
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, settings)

    def close(self) -> None:
        """Stop reading, and leave the terminal as it was."""
        if self._before is not None:
            self._post(None)
            self._ended.signal.wait(_SECONDS_TO_CLOSE)
            self.give_back()
        os.close(self._wake_writer)
        os.close(self._wake_reader)

    def set_aside(self) -> None:
        """Put what is being typed aside: the next line answers a question."""
        self._post(self._set_aside)

    def bring_back(self) -> None:
        """Go on with what was put aside."""
        self._post(self._bring_back)

    def replace(self, text: str) -> None:
        """Put a text in place of what is being typed."""
        self._post(lambda: self._editor.set(text))

    def show(self) -> None:
        """Have it shown once more; safe in a signal handler."""
        self._post(lambda: None)

    def _post(self, job: Callable[[], object] | None) -> None:
        self._jobs.put(job)
        os.write(self._wake_writer, b"!")

    def _set_aside(self) -> None:
        if self._aside is None:
            self._aside = self._editor.text
            self._editor.set("")

    def _bring_back(self) -> None:
        if self._aside is not None:
            self._editor.set(self._aside)
            self._aside = None

    def _run(self) -> None:
        decoder = KeyDecoder()
        try:
            while self._work():
                timeout = _SECONDS_FOR_A_SEQUENCE if decoder.holds_something else None
                ready = select.select([self._terminal, self._wake_reader], [], [], timeout)[0]
                if not ready:
                    decoder.give_up()
                if self._wake_reader in ready:
                    os.read(self._wake_reader, 4096)
                if self._terminal in ready and not self._read(decoder):
                    return
        finally:
            self._ended.abort("ended")

    def _work(self) -> bool:
        """Do what others have asked for; return whether to go on."""
        while True:
            try:
                job = self._jobs.get(0)
            except Empty:
                return True
            if job is None:
                return False
            job()
            self._changed()

    def _read(self, decoder: KeyDecoder) -> bool:
        try:
            data = os.read(self._terminal, 4096)
        except OSError:
            data = b""
        for key in decoder.feed(data):
            if key == "end of input":
                if not self._editor.text:
                    self._submitted(None)
                continue
            line = self._editor.press(key)
            self._changed()
            if line is not None:
                self._submitted(line)
        if not data:
            self._submitted(None)
        return bool(data)


class PlainLines:
    """Reads lines as the terminal itself edits them, on a thread that nobody waits for."""

    def __init__(self, terminal: int, submitted: Callable[[str | None], object]) -> None:
        self._terminal = terminal
        self._submitted = submitted
        self._started = False

    def start(self) -> None:
        """Begin to read, if that has not been done."""
        if not self._started:
            self._started = True
            start_daemon(self._run, "agentcore-lines")

    def _run(self) -> None:
        pending = b""
        while True:
            try:
                data = os.read(self._terminal, 4096)
            except OSError:
                data = b""
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._submitted(line.decode("utf-8", "replace").rstrip("\r"))
            if not data:
                # An end of input ends a line that is not empty, and may be followed by more.
                self._submitted(pending.decode("utf-8", "replace") if pending else None)
                if not pending:
                    return
                pending = b""
