"""The bytes a program prints become harmless text, the same however they were cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.toolkit._terminal_text import TerminalText

HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def converted(*pieces: bytes) -> str:
    text = TerminalText()
    return "".join([*(text.feed(piece) for piece in pieces), text.finish()])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        ("naïve 漢字 🎙️\u2028".encode(), "naïve 漢字 🎙️\u2028"),
        (b"caf\xe9!", "caf\ufffd!"),
        (b"cut \xe6\xbc", "cut \ufffd"),
        (b"a\r\nb\rc\r", "a\nb\nc\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[?25lhidden\x1b[2K\x1b[1A", "hidden"),
        (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        (b"\x1b]52;c;ZXZpbA==\x07", ""),
        (b"\x1bPq#0;2;0\x1b\\after", "after"),
        (b"\x1b(Bline\x1b=\x1b>\x1b7\x1bM\x1bc", "line"),
        ("\x9b31mred\x9d0;t\x9c.".encode(), "red."),
        (b"nul\0bell\abackspace\bdelete\x7f", "nul␀bell␇backspace␈delete␡"),
        (b"form\ffeed\vtab", "form␌feed␋tab"),
        (b"\x1b", "␛"),
        (b"\x1b[", "␛["),
        (b"\x1b[31", "␛[31"),
        (b"\x1b]never ends\nnext line", "␛]never ends\nnext line"),
        (b"\x1b]" + b"x" * 10_000 + b"\x07", "␛]" + "x" * 10_000 + "␇"),
        (b"\x1b\x1b[0m", "␛"),
        (b"a\r\x1b[0m\nb", "a\nb"),
        (b"a\r\x1bm\x1bm\nb\r\x1b[0m", "a\nb\n"),
    ],
)
def test_becomes_harmless_text(data: bytes, expected: str) -> None:
    assert converted(data) == expected
    assert converted(*(bytes([byte]) for byte in data)) == expected


PIECES = st.sampled_from(
    [
        b"\x1b",
        b"\x1b[",
        b"31m",
        b"m",
        b"]0;",
        b"\x07",
        b"\\",
        b"\r",
        b"\n",
        b"text",
        b"\xe6\xbc\xa2",
        b"\xc2\x9b",
        b"\0",
        b" ",
        b"P",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=3), max_size=40), st.data())
def test_the_text_does_not_depend_on_how_the_bytes_were_cut(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert converted(*parts) == converted(whole)


@given(st.binary(max_size=2000))
def test_nothing_harmful_is_left_of_any_bytes(data: bytes) -> None:
    assert HARMFUL.search(converted(data)) is None


def test_a_sequence_without_end_does_not_hold_the_output_back() -> None:
    text = TerminalText()
    shown = text.feed(b"\x1b]")
    for fed in range(1000, 11_000, 1000):
        shown += text.feed(b"x" * 1000)
        assert len(shown) >= fed - 4200

    assert shown + text.finish() == "␛]" + "x" * 10_000
