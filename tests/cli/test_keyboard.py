"""Keys and lines: what a terminal sends becomes the same keys however it is cut, and lines can be edited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore._cli_keyboard import KeyDecoder, LineEditor


def keys_of(*pieces: bytes) -> list[str]:
    decoder = KeyDecoder()
    return [key for piece in pieces for key in decoder.feed(piece)]


def joined(keys: list[str]) -> list[str]:
    """Return keys with neighbouring texts joined: where a text is cut says nothing."""
    found: list[str] = []
    for key in keys:
        if found and key.startswith("text:") and found[-1].startswith("text:"):
            found[-1] += key.removeprefix("text:")
        else:
            found.append(key)
    return found


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"hello", ["text:hello"]),
        ("é☃".encode(), ["text:é☃"]),
        (b"a\rb\n", ["text:a", "enter", "text:b", "enter"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1b[H\x1b[4~\x1b[3~\x7f\x08", ["home", "end", "delete", "backspace", "backspace"]),
        (b"\x1b[1;5C\x1bb\x17\x15\x0b", ["word right", "word left", "kill word", "kill left", "kill right"]),
        (b"\x1b\rx", ["line feed", "text:x"]),
        (b"\x1b[200~one\r\ntwo\x1b[A\x1b[201~x", ["text:one\ntwo\x1b[A", "text:x"]),
        (b"\x1b[99zx\x1b[1;3Qy\x1bZz", ["text:x", "text:y", "text:z"]),
        (b"a\x00\x07b", ["text:a", "text:b"]),
        (b"\x04", ["end of input"]),
        (b"\xffx", ["text:\ufffdx"]),
        (b"\x1b[" + b"1" * 40, []),
        (b"\x1b[1\x01x", ["home", "text:x"]),
    ],
)
def test_what_a_terminal_sends_becomes_keys(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


PIECES = st.sampled_from(
    [
        b"a",
        "é☃".encode(),
        b"\r",
        b"\x1b[A",
        b"\x1bOD",
        b"\x1b[1;5C",
        b"\x1b[200~",
        b"\x1b[201~",
        b"\x1b[3~",
        b"\x7f",
        b"\x1bf",
    ]
)


@given(st.lists(PIECES, max_size=12).map(b"".join), st.data())
def test_keys_do_not_depend_on_how_the_bytes_are_cut(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    assert joined(keys_of(*pieces)) == joined(keys_of(data))


def test_a_lone_escape_is_forgotten_when_nothing_follows() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.holds_something

    decoder.give_up()

    assert decoder.feed(b"[A") == ["text:[A"]


def test_a_paste_that_takes_its_time_is_not_given_up() -> None:
    decoder = KeyDecoder()
    decoder.feed(b"\x1b[200~one\x1b[2")
    decoder.give_up()

    assert decoder.feed(b"01~") == ["text:one"]


def edited(*keys: str) -> tuple[str, int]:
    editor = LineEditor()
    for key in keys:
        editor.press(key)
    return editor.text, editor.cursor


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["text:hello"], ("hello", 5)),
        (["text:helo", "left", "text:l"], ("hello", 4)),
        (["text:hello", "home", "text:>"], (">hello", 1)),
        (["text:hello", "home", "right", "right", "backspace"], ("hllo", 1)),
        (["text:hello", "home", "delete", "left", "left"], ("ello", 0)),
        (["text:hello", "end", "delete", "right"], ("hello", 5)),
        (["text:one two three", "kill word"], ("one two ", 8)),
        (["text:one two  ", "kill word"], ("one ", 4)),
        (["text:one two", "word left", "kill left"], ("two", 0)),
        (["text:one two", "home", "word right", "kill right"], ("one", 3)),
        (["text:one", "line feed", "text:two"], ("one\ntwo", 7)),
        (["backspace", "delete", "left", "kill word", "up", "down"], ("", 0)),
        (["text:one", "enter", "text:two", "enter", "up", "up"], ("one", 3)),
        (["text:one", "enter", "text:new", "up", "down"], ("new", 3)),
        (["text:one", "enter", "text:one", "enter", "up", "up", "up"], ("one", 3)),
        (["text: ", "enter", "up"], ("", 0)),
    ],
)
def test_a_line_can_be_edited(keys: list[str], expected: tuple[str, int]) -> None:
    assert edited(*keys) == expected


def test_enter_gives_the_line_and_begins_a_new_one() -> None:
    editor = LineEditor()
    editor.press("text:hello")

    assert editor.press("enter") == "hello"
    assert (editor.text, editor.cursor) == ("", 0)


NAMES = (
    "left,right,home,end,backspace,delete,up,down,enter,kill left,kill right,kill word,word left,word right,line feed"
)
KEYS = st.sampled_from(NAMES.split(",")) | st.text(max_size=4).map("text:{}".format)


@given(st.lists(KEYS, max_size=40))
def test_the_cursor_stays_inside_the_line(keys: list[str]) -> None:
    editor = LineEditor()
    for key in keys:
        editor.press(key)
        assert 0 <= editor.cursor <= len(editor.text)
