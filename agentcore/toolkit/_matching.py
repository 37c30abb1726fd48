"""Finding what an edit means in a text, and saying what is near when it is not there."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, repeat
from typing import Final

import attrs

from agentcore._records import Record
from agentcore.toolkit._results import Refusal
from agentcore.toolkit._truncate import count_of

__all__ = ["Edit", "Match", "applied", "find_matches"]

_LINES_NAMED: Final = 20
_LINES_SHOWN: Final = 12
_LONGEST_SHOWN: Final = 300
_LINES_COMPARED: Final = 5_000
_VOTES_HEARD: Final = 100_000

_LINE_END: Final = re.compile(r"\r\n|\n")
_BARE_LINE_FEED: Final = re.compile(r"(?<!\r)\n")
_LINE_NUMBER: Final = re.compile(r"^[ ]*\d+[ ]?(?:[|:\t→][ ]?)", re.MULTILINE)


@attrs.frozen(repr=False)
class Edit(Record):
    """Text to find, and what to put in its place; it must occur exactly once, unless all places are meant."""

    find: str
    replacement: str
    replace_all: bool = False


@attrs.frozen
class Match:
    """A place in a text (character positions) and what comes there."""

    start: int
    end: int
    replacement: str
    edit: int


def find_matches(text: str, edits: Sequence[Edit], given: str) -> list[Match]:
    """Return where the edits apply, in order of place; all are looked for in the same text.

    A line feed to be found stands for CRLF too, and one of a replacement becomes what the lines around it end with.
    Raises `Refusal` with everything that is wrong, if any edit is not found, is found more than once, changes
    nothing, or touches what another one changes.
    """
    matches: list[Match] = []
    problems: list[str] = []
    for number, edit in enumerate(edits):
        name = "`find`" if len(edits) == 1 else f"`edits[{number}].find`"
        try:
            matches += _matches_of(text, edit, number, name, given)
        except Refusal as refusal:
            problems.append(str(refusal))
    matches.sort(key=lambda match: (match.start, match.end))
    if not problems:
        overlaps = ((first, second) for first, second in pairwise(matches) if second.start < first.end)
        problems = [
            f"`edits[{first.edit}]` and `edits[{second.edit}]` touch the same text, at line "
            f"{_line_number(text, second.start)} of {given}. Make one edit of the two."
            for first, second in islice(overlaps, _LINES_NAMED)
        ]
    if problems:
        raise Refusal("\n\n".join(["Nothing was changed.", *problems[:_LINES_NAMED]]))
    return matches


def applied(text: str, matches: Sequence[Match]) -> str:
    """Return the text with the replacements made."""
    pieces = []
    position = 0
    for match in matches:
        pieces += [text[position : match.start], match.replacement]
        position = match.end
    return "".join([*pieces, text[position:]])


def _matches_of(text: str, edit: Edit, number: int, name: str, given: str) -> list[Match]:
    if not edit.find:
        raise Refusal(f"{name} is empty. Give the text to replace; to make a file or replace all of one, use `write`.")
    if edit.replace_all:
        places = list(_places(text, edit.find))
    else:
        places = list(islice(_places(text, edit.find, overlapping=True), _LINES_NAMED + 1))
    if not places:
        raise Refusal(f"{name} was not found in {given}. {_hint(text, edit.find)}")
    if len(places) > 1 and not edit.replace_all:
        lines = list(dict.fromkeys(_line_number(text, start) for start, _ in places[:_LINES_NAMED]))
        more = " and more" if len(places) > _LINES_NAMED else ""
        times = f"more than {_LINES_NAMED}" if more else len(places)
        where = "line" if len(lines) == 1 else "lines"
        raise Refusal(
            f"{name} occurs {times} times in {given}: at {where} {', '.join(map(str, lines))}{more}. Add text around "
            "it until it fits one place only, or set `replace_all`."
        )
    replacements = _with_line_ends_around(text, places, edit.replacement)
    matches = [Match(start, end, one, number) for (start, end), one in zip(places, replacements, strict=True)]
    if all(match.replacement == text[match.start : match.end] for match in matches):
        raise Refusal(f"{name} and its replacement are the same, so there is nothing to change in {given}.")
    return matches


def _places(text: str, find: str, *, overlapping: bool = False) -> Iterator[tuple[int, int]]:
    with_cr = text.count("\r\n") if "\n" in find else 0
    if "\n" not in find or with_cr in (0, text.count("\n")):
        # All line ends are of one kind. A pattern can take time that grows with the square of a text of equal lines.
        find = ("\r\n" if with_cr else "\n").join(_LINE_END.split(find))
        start = text.find(find)
        while start >= 0:
            yield start, start + len(find)
            start = text.find(find, start + (1 if overlapping else len(find)))
        return
    pattern = re.compile(r"(?:\r\n|(?<!\r)\n)".join(map(re.escape, _LINE_END.split(find))))
    match = pattern.search(text)
    while match:
        yield match.span()
        match = pattern.search(text, match.start() + 1 if overlapping else match.end())


def _with_line_ends_around(text: str, places: Sequence[tuple[int, int]], replacement: str) -> Iterator[str]:
    """Give for each place the replacement with the line ends of what is there, or else of the nearest line."""
    with_crlf = _BARE_LINE_FEED.sub("\r\n", replacement)
    if with_crlf == replacement:
        yield from repeat(replacement, len(places))
        return
    # Both are found once, not once a place: on a line of megabytes that would take hours.
    last, following = text.rfind("\n"), -1
    for start, end in places:
        here = text[start:end]
        if "\n" in here:
            crlf = 2 * here.count("\r\n") >= here.count("\n")
        else:
            if following < end <= last:
                following = text.index("\n", end)
            nearest = following if end <= last else last
            crlf = nearest > 0 and text[nearest - 1] == "\r"
        yield with_crlf if crlf else replacement


def _line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# --- what is near ---


def _hint(text: str, find: str) -> str:
    """Return what may have been meant by text that does not occur."""
    unnumbered = _LINE_NUMBER.sub("", find)
    if unnumbered.strip() and unnumbered != find and next(_places(text, unnumbered), None):
        return "Without the line numbers at the beginning of its lines it would be found: leave them out."
    for escaped, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"')):
        if escaped in find and next(_places(text, find.replace(escaped, meant)), None):
            return f"It holds {escaped} as two characters where the file has one: send the character itself."
    lines = text.split("\n")
    found = _nearest(lines, find.strip("\r\n").split("\n"))
    if found is None:
        return "Nothing in the file is like it. Read the file again and copy the text from there."
    first, count = found
    shown = lines[first : first + min(count, _LINES_SHOWN)]
    width = len(str(first + len(shown)))
    numbered = [f"{first + 1 + index:>{width}} | {_short(line)}" for index, line in enumerate(shown)]
    if _squeezed(" ".join(lines[first : first + count])) == _squeezed(find):
        advice = "They differ from it in white space only: copy them exactly, with tabs and spaces as they are."
    else:
        advice = "Copy the text exactly, without the line numbers."
    return "\n".join(["The nearest lines are:", *numbered, advice])


def _nearest(lines: list[str], wanted: list[str]) -> tuple[int, int] | None:
    """Return where the lines begin that are most like the wanted ones, and how many they are."""
    # First by lines that are the same but for their white space: each says where the whole would begin.
    where: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        where.setdefault(_squeezed(line), []).append(index)
    begins: Counter[int] = Counter()
    heard = 0
    known = [(where[line], index) for index, line in enumerate(map(_squeezed, wanted)) if line and line in where]
    # The rarest lines say most, so that the others may go unheard in a text of very many equal ones.
    for places, index in sorted(known, key=lambda item: len(item[0])):
        if heard > _VOTES_HEARD:
            break
        heard += len(places)
        begins.update(max(0, place - index) for place in places[:_LINES_COMPARED])
    if begins:
        most = max(begins.values())
        return min(place for place, votes in begins.items() if votes == most), len(wanted)
    # Else by the line that says most.
    index, longest = max(enumerate(map(_squeezed, wanted)), key=lambda item: len(item[1]))
    candidates = [line[:_LONGEST_SHOWN] for line in islice(filter(None, where), _LINES_COMPARED)]
    close = difflib.get_close_matches(longest[:_LONGEST_SHOWN], candidates, n=1, cutoff=0.5)
    if not close:
        return None
    place = next(places[0] for line, places in where.items() if line[:_LONGEST_SHOWN] == close[0])
    return max(0, place - index), len(wanted)


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _short(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}… ({count_of(len(line), 'character')})"
