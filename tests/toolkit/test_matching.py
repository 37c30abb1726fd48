"""What an edit finds and makes of a text is what a slow and simple reading of the rules says; the diff tells it all."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentcore.toolkit import _matching
from agentcore.toolkit._diff import unified_diff
from agentcore.toolkit._matching import Edit, Match, applied, find_matches
from agentcore.toolkit._results import Refusal

TEXTS = st.text(alphabet="ab\n\r\u2028é", max_size=24) | st.lists(
    st.sampled_from(["a", "b", "\n", "\r\n", "\r", "a\n", "a\r\n", "\n\n"]), max_size=14
).map("".join)
FINDS = st.text(alphabet="ab\n\r", min_size=1, max_size=5) | st.lists(
    st.sampled_from(["a", "b", "\n", "\r\n"]), min_size=1, max_size=4
).map("".join)
REPLACEMENTS = st.text(alphabet="xab\n\r", max_size=5)


# --- the rules, read slowly and simply ---


def end_of_match(text: str, position: int, find: str) -> int | None:
    """Return where text that is to be found ends if it begins at a position; a line end stands for LF and CRLF."""
    if "\n" not in find:
        return position + len(find) if text.startswith(find, position) else None
    wanted = find.replace("\r\n", "\n")
    for character in wanted:
        if character != "\n":
            if text[position : position + 1] != character:
                return None
            position += 1
        elif text[position : position + 2] == "\r\n":
            position += 2
        elif text[position : position + 1] == "\n" and text[position - 1 : position] != "\r":
            position += 1
        else:
            return None
    return position


def all_places(text: str, find: str) -> list[tuple[int, int]]:
    ends = ((start, end_of_match(text, start, find)) for start in range(len(text)))
    return [(start, end) for start, end in ends if end is not None]


def without_overlaps(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for start, end in places:
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def line_end_at(text: str, start: int, end: int) -> str:
    """Return the line end that a replacement gets: that of most lines it replaces, else of the next line or the last."""
    here = text[start:end]
    if "\n" in here:
        with_cr = len(re.findall("\r\n", here))
        return "\r\n" if with_cr >= here.count("\n") - with_cr else "\n"
    found = re.search("\r?\n", text[end:])
    if found is None:
        before = re.findall("\r?\n", text[:start])
        return before[-1] if before else "\n"
    # The CR may be the last character that is replaced; what follows is CRLF all the same.
    position = end + found.end() - 1
    return "\r\n" if text[position - 1 : position] == "\r" else "\n"


def with_line_ends(replacement: str, line_end: str) -> str:
    return replacement if line_end == "\n" else re.sub("(?<!\r)\n", "\r\n", replacement)


def edited(text: str, edit: Edit) -> str | None:
    """Return the text after an edit, `None` if it is to be refused."""
    places = all_places(text, edit.find)
    if edit.replace_all:
        places = without_overlaps(places)
    elif len(places) != 1:
        return None
    after, position = "", 0
    for start, end in places:
        after += text[position:start] + with_line_ends(edit.replacement, line_end_at(text, start, end))
        position = end
    after += text[position:]
    return None if after == text else after


@given(TEXTS, FINDS, REPLACEMENTS, st.booleans())
@example("a\r\n", "a\r", "x\n", False)
@example("x\na", "a", "b\n", False)
@example("x\r\na", "a", "b\n", False)
@example("a\na\r\n", "a", "b\n", True)
@example("\n\r\n", "\n\r", "x", False)
@example("aaa", "aa", "b", False)
@example("aaaa", "aa", "b", True)
@example("a\r\nb\nc", "\r\nb\n", "x\ny", False)
def test_one_edit_does_what_the_rules_say(text: str, find: str, replacement: str, replace_all: bool) -> None:
    edit = Edit(find, replacement, replace_all)
    expected = edited(text, edit)

    try:
        after = applied(text, find_matches(text, [edit], "file"))
    except Refusal:
        after = None
    # Replacements that come to the same text as a whole, but not each by itself, are made.
    assert after == (text if expected is None and after == text else expected)


@given(TEXTS, st.lists(st.builds(Edit, FINDS, REPLACEMENTS, st.booleans()), min_size=2, max_size=4))
def test_several_edits_are_all_made_in_the_original_or_none_is(text: str, edits: list[Edit]) -> None:
    try:
        alone = [find_matches(text, [edit], "file") for edit in edits]
    except Refusal:
        alone = None
    changed = [] if alone is None else [set(range(one.start, one.end)) for matches in alone for one in matches]
    fine = alone is not None and sum(map(len, changed)) == len(set().union(*changed))

    if not fine:
        with pytest.raises(Refusal, match="Nothing was changed"):
            find_matches(text, edits, "file")
        return
    matches = find_matches(text, edits, "file")
    assert [(one.start, one.end) for one in matches] == sorted((one.start, one.end) for each in alone for one in each)
    for number, each in enumerate(alone):
        assert [one.replacement for one in matches if one.edit == number] == [one.replacement for one in each]


# --- the diff ---


def patched(text: str, diff: str) -> str:
    """Return a text with a unified diff applied; every line that stays or goes has to be there."""
    pieces = re.findall(r"[^\n]*\n|[^\n]+", text)
    name, other, *lines = re.findall(r"[^\n]*\n", diff)
    assert (name, other) == ("--- name\n", "+++ name\n")
    after: list[str] = []
    at = 0
    while lines:
        header = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n", lines.pop(0))
        assert header is not None
        old_first, old_count, new_first, new_count = map(int, header.groups())
        begin = old_first - (old_count > 0)
        assert begin >= at
        after += pieces[at:begin]
        assert len(after) == new_first - (new_count > 0)
        at, made = begin, len(after)
        while lines and not lines[0].startswith("@@"):
            line = lines.pop(0)
            if lines and lines[0].startswith("\\"):
                lines.pop(0)
                line = line[:-1]
            mark, content = line[0], line[1:]
            if mark in " -":
                assert pieces[at] == content
                at += 1
            if mark in " +":
                after.append(content)
        assert (at - begin, len(after) - made) == (old_count, new_count)
    return "".join([*after, *pieces[at:]])


def contexts(diff: str) -> list[tuple[int, int, int, int]]:
    """Return for each hunk: its first old line, its old lines, and how many it shows before and after the changes."""
    found = []
    for hunk in re.split(r"^(?=@@)", diff, flags=re.MULTILINE)[1:]:
        header, *lines = re.findall(r"[^\n]*\n", hunk)
        first, count = map(int, re.findall(r"\d+", header)[:2])
        marks = "".join(line[0] for line in lines if line[0] != "\\")
        before, after = len(marks) - len(marks.lstrip(" ")), len(marks) - len(marks.rstrip(" "))
        found.append((first, count, before, after))
    return found


@given(
    st.lists(st.sampled_from(["a", "b", "", "}", "é\u2028\x0c", "c\r"]), min_size=12, max_size=40),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", "x", "x\ny", "\n\n"])), min_size=1, max_size=8),
    st.booleans(),
)
def test_the_diff_makes_the_new_text_of_the_old_one(
    lines: list[str], cuts: list[tuple[float, str]], final_end: bool
) -> None:
    # Every line is another one, so that what is the same before and after is so for a reason.
    text = "\n".join(f"{number} {line}" for number, line in enumerate(lines)) + "\n" * final_end
    places = [(int(share * len(text)), replacement) for share, replacement in sorted(cuts)]
    matches = [
        Match(start, end, replacement, 0)
        for (start, replacement), (end, _) in zip(places[::2], [*places[1::2], (len(text), "")], strict=False)
    ]
    diff = unified_diff(text, matches, "name")

    assert patched(text, diff) == applied(text, matches)
    for first, count, before, after in contexts(diff):
        # Three lines of context on either side, but for the beginning and the end of the text.
        assert before == 3 or (before < 3 and first <= 1)
        assert after == 3 or (after < 3 and first + max(count, 1) - 1 == len(lines))


# --- what grows with the square of something ---


class Searched(str):
    """A text that counts how often all of it is searched for line ends."""

    searches = 0

    def find(self, wanted: str, *where: int) -> int:  # type: ignore[override]
        Searched.searches += wanted == "\n"
        return super().find(wanted, *where)

    def index(self, wanted: str, *where: int) -> int:  # type: ignore[override]
        Searched.searches += wanted == "\n"
        return super().index(wanted, *where)

    def rfind(self, wanted: str, *where: int) -> int:  # type: ignore[override]
        Searched.searches += wanted == "\n"
        return super().rfind(wanted, *where)

    def count(self, wanted: str, *where: int) -> int:  # type: ignore[override]
        Searched.searches += wanted == "\n"
        return super().count(wanted, *where)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,2," * 1000, ",\n"), ("1,2," * 1000 + "\r\nend", ",\r\n"), ("\r\n" + "1,2," * 1000, ",\r\n")],
)
def test_line_ends_are_not_looked_for_at_every_place_of_a_long_line(text: str, expected: str) -> None:
    Searched.searches = 0
    matches = find_matches(Searched(text), [Edit(",", ",\n", True)], "file")

    assert [one.replacement for one in matches] == [expected] * 2000
    assert Searched.searches <= 2


def test_of_very_many_overlaps_some_are_named_and_the_others_not_looked_into() -> None:
    Searched.searches = 0
    with pytest.raises(Refusal) as refusal:
        find_matches(Searched("a\n" * 2000), [Edit("a", "b", True), Edit("a", "c", True)], "file")

    assert str(refusal.value).count("touch the same text") == 20
    assert Searched.searches <= 25


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_texts_with_line_ends_of_one_kind_are_searched_without_patterns(
    monkeypatch: pytest.MonkeyPatch, line_end: str
) -> None:
    # On a text of equal lines a pattern takes as many steps as it has lines, times those of what is looked for.
    class NoPatterns:
        @staticmethod
        def compile(*_args: object) -> None:
            raise AssertionError("a pattern")

    monkeypatch.setattr(_matching, "re", NoPatterns)
    text = f"}}{line_end}" * 100_000

    with pytest.raises(Refusal, match="was not found"):
        find_matches(text, [Edit("}\n" * 3000 + "q", "x")], "file")
    assert len(find_matches(text, [Edit("}\r\n}\n", "x", True)], "file")) == 50_000


def test_of_very_many_equal_lines_the_rarest_say_where_the_whole_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matching, "_VOTES_HEARD", 0)
    text = "}\n" * 40 + "rare\n" + "}\n" * 40
    with pytest.raises(Refusal) as refusal:
        find_matches(text, [Edit("}\n}\n rare\n}\n", "x")], "file")

    assert [line for line in str(refusal.value).splitlines() if " | " in line] == [
        "39 | }", "40 | }", "41 | rare", "42 | }",
    ]  # fmt: skip


# --- what is said of text that is not there ---


@pytest.mark.parametrize("find", ["12: ", "1: \n2: ", " 3 | "])
def test_line_numbers_alone_are_not_taken_for_numbered_lines(find: str) -> None:
    with pytest.raises(Refusal) as refusal:
        find_matches("some\n\ntext\n", [Edit(find, "x")], "file")

    assert "line numbers at the beginning" not in str(refusal.value)


def test_the_nearest_lines_begin_where_the_whole_would_though_its_first_line_is_another() -> None:
    with pytest.raises(Refusal) as refusal:
        find_matches(
            "".join(f"line {number}\n" for number in range(1, 10)), [Edit("another\nline  5\nline  6", "x")], "file"
        )

    lines = str(refusal.value).splitlines()
    assert [line for line in lines if " | " in line] == ["4 | line 4", "5 | line 5", "6 | line 6"]


def test_of_the_line_ends_that_are_replaced_most_decide_and_crlf_when_it_is_half_of_them() -> None:
    def after(text: str, find: str) -> str:
        return applied(text, find_matches(text, [Edit(find, "x\ny")], "file"))

    assert after("a\r\nb\nc", "a\nb\nc") == "x\r\ny"
    assert after("a\r\nb\nc\nd", "a\nb\nc\nd") == "x\ny"
    assert after("a\nb\r\nc\r\nd", "a\nb\nc\nd") == "x\r\ny"
