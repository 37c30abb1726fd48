"""The words that displays share: harmless, short, and never untrue."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import AgentToolResult, ErrorInfo, ImageContent, TextContent, ToolCall, Usage
from agentcore.display._plain import preview
from agentcore.display._text import (
    call_words,
    content_text,
    diff_of,
    duration,
    end_words,
    error_words,
    exact,
    one_line,
    shortened_line,
    usage_words,
    visible,
)
from tests.display.display_support import HOSTILE

TEXTS = st.text(st.characters(codec=None, categories=None), max_size=60)


@given(TEXTS)
def test_visible_text_has_no_control_characters_and_keeps_all_others(text: str) -> None:
    shown = visible(text)

    assert not [char for char in shown if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs")]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert visible(shown) == shown
    if text.isprintable():
        assert shown == text


def test_control_characters_are_shown_as_pictures() -> None:
    assert visible("a\x1b[0m\x00\r\nb\r\x7f\x9b\tc") == "a␛[0m␀\nb␍␡\ufffd\tc"


@given(TEXTS)
def test_one_line_is_one_line(text: str) -> None:
    assert one_line(text).splitlines() in ([], [one_line(text)])
    assert len(shortened_line(text, 20)) <= 20


@given(TEXTS, TEXTS)
def test_exact_text_is_printable_and_equal_only_for_equal_texts(left: str, right: str) -> None:
    assert exact(left).isprintable()
    if left != right and "\\" not in left + right:
        assert exact(left) != exact(right)


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("bash", {"command": "ls -l\nrm x", "timeout": 3}, "bash ls -l⏎rm x timeout=3"),
        ("read", {"path": "a.txt", "offset": 5}, "read a.txt offset=5"),
        ("write", {"path": "a.txt", "content": "long"}, "write a.txt"),
        ("edit", {"path": "a.txt", "edits": [{"find": "x"}]}, "edit a.txt"),
        ("search", {"query": "x y", "limit": None, "tags": ["a"]}, 'search query=x y limit=null tags=["a"]'),
        ("bash", {}, "bash"),
        ("bash", {"command": 7}, "bash command=7"),
        ("\x1b[0m", {"\x1b": "\x1b"}, "␛[0m ␛=␛"),
    ],
)
def test_a_call_is_named_on_one_line(name: str, args: dict[str, object], words: str) -> None:
    assert call_words(name, args) == words


def test_the_text_of_blocks_names_what_is_no_text() -> None:
    blocks = [TextContent("a\x1b"), ImageContent("QUJD", "image/png"), ToolCall("c", "x", {})]

    assert content_text(blocks) == "a\x1b\n[image image/png, 3 bytes]\n[tool]"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0.0s"), (59.94, "59.9s"), (61, "1m01s"), (3600, "1h00m"), (7290.9, "2h01m")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("usage", "cost", "words"),
    [
        (Usage(input=1, output=2), None, "1 tokens in, 2 out"),
        (Usage(input=1000, output=2, cache_read=500, cache_write=7), 0.0, "1,507 tokens in (500 cached), 2 out, $0.00"),
        (Usage(), 0.00001, "0 tokens in, 0 out, under $0.0001"),
        (Usage(), 0.0123, "0 tokens in, 0 out, $0.0123"),
        (Usage(), 12.345, "0 tokens in, 0 out, $12.35"),
    ],
)
def test_usage_and_cost(usage: Usage, cost: float | None, words: str) -> None:
    assert usage_words(usage, cost) == words


def test_why_a_run_ended_and_what_went_wrong() -> None:
    assert end_words("completed") is None
    assert end_words("error") is None
    assert end_words("limit:turns") == "Stopped: the most turns allowed are used up."
    assert end_words("new\nreason") == "Ended: new⏎reason."
    assert error_words(ErrorInfo("timeout", "no answer\nfor 3 s.")) == "no answer⏎for 3 s"
    assert error_words(ErrorInfo("rate_limit", "")) == "rate limit"
    assert error_words(None) == "the response failed"


def test_a_diff_is_found_in_details_in_memory_and_from_a_file() -> None:
    class Details:
        diff = "--- a\n+++ a\n"

    assert diff_of(Details()) == diff_of({"diff": "--- a\n+++ a\n"}) == "--- a\n+++ a\n"
    assert [diff_of(value) for value in (None, {}, {"diff": 3}, "diff", {"diff": ""})] == [None] * 5


def test_a_long_result_is_cut_and_says_so() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 10))

    assert list(preview("bash", AgentToolResult(text))) == [
        ("… 4 earlier lines", "dim"),
        *[(f"line {number}", "dim") for number in range(5, 10)],
    ]
    assert list(preview("read", AgentToolResult(text))) == [
        *[(f"line {number}", "dim") for number in range(1, 6)],
        ("… 4 more lines", "dim"),
    ]


def test_a_diff_is_shown_in_place_of_the_result_unless_it_failed() -> None:
    details = {"diff": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n z"}

    shown = list(preview("edit", AgentToolResult("Edited.", details)))

    assert shown == [("@@ -1 +1 @@", "cyan"), ("-x", "red"), ("+y", "green"), (" z", "dim")]
    assert list(preview("edit", AgentToolResult("No.", details, is_error=True))) == [("No.", "dim")]
    long = {"diff": "--- a\n+++ a\n" + "+x\n" * 300}
    assert list(preview("edit", AgentToolResult("Edited.", long)))[-1] == ("… 100 more lines", "dim")


def test_hostile_text_is_harmless_in_every_word() -> None:
    words = [call_words(HOSTILE, {HOSTILE: HOSTILE}), error_words(ErrorInfo("x", HOSTILE)), str(end_words(HOSTILE))]

    assert all(visible(text) == text and "\n" not in text for text in words)
