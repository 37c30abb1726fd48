"""What the read tool shows, by offset and limit, is what a slow and simple reading of its rules says."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.toolkit import ReadToolOptions, create_read_tool
from tests.toolkit.conftest import text_of_result, use_tool

CONTENTS = st.lists(
    st.sampled_from(["", "a", "bc", "é", "漢字", "🎙️", "\r", "x" * 9, "\u2028", "\x0c", "\x85", "\ufeff"]), max_size=12
).map("\n".join)


def shown(
    content: str, offset: int, limit: int | None, max_lines: int, max_size: int
) -> tuple[str, int, str | None] | None:
    """Return the text that is shown, the lines there are, and what ends it; `None` when there is none of it."""
    pieces = content.split("\n")
    lines = [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    if offset > len(lines) and offset > 1:
        return None
    text = ""
    most = min(max_lines, limit or max_lines)
    for count, line in enumerate(lines[offset - 1 :]):
        if count == most:
            return text, len(lines), "lines"
        if len((text + line).encode()) > max_size:
            if not count:
                text = line.encode()[:max_size].decode(errors="ignore")
            return text, len(lines), "bytes" if count else "part"
        text += line
    return text, len(lines), None


@given(
    CONTENTS,
    st.booleans(),
    st.integers(1, 14),
    st.none() | st.integers(1, 6),
    st.integers(1, 6),
    st.integers(4, 40),
)
def test_any_part_is_what_the_rules_say(
    tmp_path_factory: pytest.TempPathFactory,
    content: str,
    mark: bool,
    offset: int,
    limit: int | None,
    max_lines: int,
    max_size: int,
) -> None:
    content = content.removeprefix("\ufeff")
    path = tmp_path_factory.getbasetemp() / f"read-{os.getpid()}"
    path.write_bytes(b"\xef\xbb\xbf" * mark + content.encode())
    tool = create_read_tool(ReadToolOptions(max_lines=max_lines, max_size=max_size))
    result = use_tool(tool, path=str(path), offset=offset, limit=limit)
    expected = shown(content, offset, limit, max_lines, max_size)

    text = text_of_result(result)
    if expected is None:
        assert result.is_error
        assert f"`offset` {offset} is past the end" in text
        return
    assert not result.is_error
    part, total, end = expected
    assert result.details.size == path.stat().st_size
    if end is None:
        assert (text, result.details.truncation) == (part or "(the file is empty)", None)
        return
    truncation = result.details.truncation
    assert text.startswith(part + "\n" * (not part.endswith("\n")) + "\n[")
    assert truncation.total_lines == total
    assert truncation.total_bytes == path.stat().st_size
    assert truncation.shown_bytes == len(part.encode())
    assert truncation.limit == ("lines" if end == "lines" else "bytes")
    assert truncation.partial_line == (end == "part")
    if end == "part":
        begin = 3 * mark + len("".join(f"{line}\n" for line in content.split("\n")[: offset - 1]).encode())
        assert f"tail -c +{begin + len(part.encode()) + 1} " in text
        assert (f"offset={offset + 1}." in text) == (offset < total)
    else:
        last = offset + truncation.shown_lines - 1
        assert text.endswith(f"\n[Lines {offset}-{last} of {total:,}. Continue with offset={last + 1}.]")


def test_the_rest_of_a_line_is_what_the_advice_gives(tmp_path: Path) -> None:
    # Read in pieces by the tool and by the command that it names, a line is whole.
    path = tmp_path / "it's a file"
    path.write_text("first\n" + "né漢🎙" * 40 + "\nlast\n")
    result = use_tool(create_read_tool(ReadToolOptions(max_size=21)), path=str(path), offset=2)
    text, _, note = text_of_result(result).rpartition("\n\n[")
    command = note.partition("`")[2].partition("`")[0]

    with os.popen(command) as rest:
        assert text + rest.read() == "né漢🎙" * 40 + "\nlast\n"
