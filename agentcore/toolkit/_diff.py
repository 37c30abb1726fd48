"""A unified diff of the changes that are known to have been made: no search for them over the whole text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from agentcore.toolkit._matching import Match, applied

__all__ = ["unified_diff"]

_CONTEXT: Final = 3
_MOST_COMPARED: Final = 1_000


@attrs.define
class _Region:
    """Whole lines around changes: numbers (from 0) of the first and the one behind the last, and the changes."""

    first: int
    last: int
    matches: list[Match]


def unified_diff(text: str, matches: Sequence[Match], name: str) -> str:
    """Return the diff that the matches make of a text."""
    lines = _lines(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    hunks: list[str] = []
    shift = 0
    for region in _regions(text, matches, len(lines)):
        begin, end = starts[region.first], starts[region.last]
        moved = [Match(one.start - begin, one.end - begin, one.replacement, one.edit) for one in region.matches]
        old = lines[region.first : region.last]
        new = _lines(applied(text[begin:end], moved))
        hunks += _hunks(old, new, region.first, region.first + shift)
        shift += len(new) - len(old)
    return "".join([f"--- {name}\n+++ {name}\n", *hunks])


def _regions(text: str, matches: Sequence[Match], line_count: int) -> Iterator[_Region]:
    """Join changes that are so near one another that their contexts meet."""
    current: _Region | None = None
    position = line = 0
    for match in matches:
        line += text.count("\n", position, match.start)
        first = max(0, line - _CONTEXT)
        line += text.count("\n", match.start, match.end)
        position = match.end
        # The line in which a match ends takes part, though nothing of it may be touched: it may be joined.
        last = min(line_count, line + 1 + _CONTEXT)
        if current is not None and first <= current.last:
            current.matches.append(match)
            current.last = last
            continue
        if current is not None:
            yield current
        current = _Region(first, last, [match])
    if current is not None:
        yield current


def _hunks(old: list[str], new: list[str], old_first: int, new_first: int) -> Iterator[str]:
    if len(old) + len(new) > _MOST_COMPARED:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    else:
        groups = list(difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT))
    for group in groups:
        _, old_from, _, new_from, _ = group[0]
        _, _, old_to, _, new_to = group[-1]
        yield f"@@ -{_span(old_first, old_from, old_to)} +{_span(new_first, new_from, new_to)} @@\n"
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from (_marked(" ", line) for line in old[a:b])
            else:
                yield from (_marked("-", line) for line in old[a:b])
                yield from (_marked("+", line) for line in new[c:d])


def _span(first: int, start: int, end: int) -> str:
    length = end - start
    return f"{first + start + (length > 0)},{length}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one."""
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines
