"""Heads and tails of texts hold what fits, and count what does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.toolkit._truncate import Head, Tail, count_of, line_count, size_of

TEXTS = st.lists(st.text(alphabet="ab\né漢🎙\u2028", max_size=30), max_size=12)


@given(TEXTS, st.integers(1, 8), st.integers(1, 60))
def test_a_tail_is_the_longest_end_of_whole_lines_that_fits(pieces: list[str], max_lines: int, max_bytes: int) -> None:
    tail = Tail(max_lines, max_bytes)
    kept_whole = True
    for piece in pieces:
        tail.feed(piece)
        if tail.cut:
            tail.trim()
        else:
            kept_whole = kept_whole and "".join(tail.pieces) == "".join(pieces[: pieces.index(piece) + 1])
    text = "".join(pieces)
    shown, truncation = tail.shown()

    assert tail.total_bytes == len(text.encode())
    assert tail.total_lines == line_count(text)
    fits = line_count(text) <= max_lines and len(text.encode()) <= max_bytes
    if fits:
        assert (shown, truncation) == (text, None)
        return
    assert truncation is not None
    assert text.endswith(shown)
    assert (truncation.shown_lines, truncation.shown_bytes) == (line_count(shown), len(shown.encode()))
    assert line_count(shown) <= max_lines
    assert len(shown.encode()) <= max_bytes
    rest = text[: len(text) - len(shown)]
    if truncation.partial_line:
        assert line_count(shown) <= 1
        assert len((rest[-1:] + shown).encode()) > max_bytes
    else:
        assert rest.endswith("\n")
        one_more = rest[:-1].rpartition("\n")[2] + "\n" + shown
        assert line_count(one_more) > max_lines or len(one_more.encode()) > max_bytes
        assert truncation.limit == "lines" or len(one_more.encode()) > max_bytes
        assert truncation.limit == "bytes" or line_count(one_more) > max_lines


def test_the_limit_that_was_reached_is_named_and_what_just_fits_is_shown() -> None:
    def shown(text: str, max_lines: int, max_bytes: int) -> tuple[str, str]:
        tail = Tail(max_lines, max_bytes)
        tail.feed(text)
        end, truncation = tail.shown()
        assert truncation is not None
        return end, truncation.limit

    assert shown("a\nb\nc\n", 2, 100) == ("b\nc\n", "lines")
    assert shown("a\nb\nc\n", 2, 2) == ("c\n", "bytes")
    assert shown("a\nb\nc\n", 2, 4) == ("b\nc\n", "bytes")
    assert shown("abc\n", 2, 2) == ("c\n", "bytes")


def test_a_tail_holds_no_more_than_it_may_show_and_one_piece() -> None:
    tail = Tail(10, 1000)
    for _ in range(5000):
        tail.feed("x" * 37)
        if tail.cut:
            tail.trim()

    assert sum(map(len, tail.pieces)) <= 1000 + 37
    assert tail.total_bytes == 5000 * 37


@given(st.lists(st.text(alphabet="abé漢\n", max_size=12), max_size=10), st.integers(1, 5), st.integers(1, 40))
def test_a_head_takes_lines_as_long_as_they_fit(texts: list[str], max_lines: int, max_bytes: int) -> None:
    head = Head(max_lines, max_bytes)
    taken = 0
    for text in texts:
        if not head.take(text):
            break
        taken += 1

    assert head.lines == texts[:taken]
    assert head.size == len("".join(head.lines).encode()) <= max_bytes
    assert taken <= max_lines
    assert (head.limit is None) == (taken == len(texts))
    if head.limit == "lines":
        assert taken == max_lines
    if head.limit == "bytes":
        assert head.size + len(texts[taken].encode()) > max_bytes


@given(st.binary(min_size=1, max_size=200), st.integers(16, 60))
def test_a_part_of_a_line_fits_and_says_how_much_of_it_that_is(line: bytes, max_bytes: int) -> None:
    head = Head(1, max_bytes)
    used = head.take_part(line)

    assert head.size == len("".join(head.lines).encode()) <= max_bytes
    assert used > 0
    # What follows is not cut inside a character: both parts together read as the whole does.
    if used < len(line):
        both = line[:used].decode(errors="replace") + line[used:].decode(errors="replace")
        assert both == line.decode(errors="replace")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (51200, "50 KiB"),
        (1_000_000, "977 KiB"),
        (1_047_552, "1023 KiB"),
        (3 * 1024**3, "3 GiB"),
        (5 * 1024**5, "5120 TiB"),
    ],
)
def test_sizes_are_written_as_people_do(size: int, expected: str) -> None:
    assert size_of(size) == expected


def test_counts_agree_with_their_nouns() -> None:
    assert [count_of(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
