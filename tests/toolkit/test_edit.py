"""The edit tool changes what it was asked to change, and not one byte more."""

import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentcore.abort import AbortController
from agentcore.toolkit import Edit, EditToolDetails, EditToolOptions, _atomic, create_edit_tool, create_read_tool
from tests.toolkit.conftest import text_of_result, use_tool


@pytest.fixture
def tool(tmp_path: Path):
    return create_edit_tool(EditToolOptions(cwd=tmp_path))


@pytest.fixture
def edit(tool, tmp_path: Path):
    """`edit(content, find=..., ...)` edits a file of this content; returns the result and the content afterwards."""

    def edit(content: bytes, **params):
        path = tmp_path / "file.txt"
        path.write_bytes(content)
        result = use_tool(tool, path="file.txt", **params)
        after = path.read_bytes()
        assert result.is_error == (after == content)
        assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]
        return result, after

    return edit


# --- one edit ---


def test_an_edit_replaces_the_one_place(edit, text_of) -> None:
    result, after = edit(b"Version 1.0.0\nrest\n", find="1.0.0", replacement="2.0.0")

    assert after == b"Version 2.0.0\nrest\n"
    assert text_of(result) == "Edit applied: file.txt (1 replacement, at line 1)"
    assert result.details == EditToolDetails(
        (Edit("1.0.0", "2.0.0"),),
        "Version 1.0.0\nrest\n",
        "Version 2.0.0\nrest\n",
        "--- file.txt\n+++ file.txt\n@@ -1,2 +1,2 @@\n-Version 1.0.0\n+Version 2.0.0\n rest\n",
    )


def test_text_can_be_deleted(edit) -> None:
    assert edit(b"a\nb\nc\n", find="b\n", replacement="")[1] == b"a\nc\n"


def test_every_place_is_replaced_when_asked_for(edit, text_of) -> None:
    result, after = edit(b"x y x\nx\n", find="x", replacement="xx", replace_all=True)

    assert after == b"xx y xx\nxx\n"
    assert text_of(result) == "Edit applied: file.txt (3 replacements, at lines 1, 1, 2)"
    assert edit(b"aaaa", find="aa", replacement="b", replace_all=True)[1] == b"bb"


def test_characters_of_patterns_mean_themselves(edit) -> None:
    assert (
        edit(b"a.c\\d[0]\n(x)\nabc\n", find="a.c\\d[0]\n(x)", replacement="\\1 $1 \\g<0>")[1] == b"\\1 $1 \\g<0>\nabc\n"
    )


# --- line ends, marks, encodings ---


def test_lf_in_find_and_replacement_means_the_files_crlf(edit) -> None:
    assert edit(b"a\r\nb\r\nc\r\n", find="a\nb", replacement="A\nB")[1] == b"A\r\nB\r\nc\r\n"
    assert edit(b"a\r\nb\r\nc\r\n", find="b", replacement="1\n2")[1] == b"a\r\n1\r\n2\r\nc\r\n"
    assert edit(b"a\r\nb", find="b", replacement="1\n2")[1] == b"a\r\n1\r\n2"
    assert edit(b"a\r\nb\r\n", find="\nb\n", replacement="\nB\nC\n")[1] == b"a\r\nB\r\nC\r\n"


def test_crlf_in_find_matches_lf_and_explicit_crlf_stays(edit) -> None:
    assert edit(b"a\nb\nc\n", find="a\r\nb", replacement="A\nB")[1] == b"A\nB\nc\n"
    assert edit(b"a\r\nb\r\nc\r\n", find="a\r\nb", replacement="A\r\nB")[1] == b"A\r\nB\r\nc\r\n"
    assert edit(b"a\nb\nc\n", find="b", replacement="B\r\nb")[1] == b"a\nB\r\nb\nc\n"


def test_in_mixed_files_the_line_ends_around_the_place_decide(edit) -> None:
    mixed = b"one\r\ntwo\r\nthree\nfour\n"

    assert edit(mixed, find="two", replacement="2\n2")[1] == b"one\r\n2\r\n2\r\nthree\nfour\n"
    assert edit(mixed, find="three", replacement="3\n3")[1] == b"one\r\ntwo\r\n3\n3\nfour\n"
    assert edit(mixed, find="three\nfour", replacement="3\n4")[1] == b"one\r\ntwo\r\n3\n4\n"


def test_a_byte_order_mark_and_a_missing_final_line_end_are_kept(edit) -> None:
    assert edit(b"\xef\xbb\xbfx=1\n", find="x=1", replacement="x=2")[1] == b"\xef\xbb\xbfx=2\n"
    assert edit(b"\xef\xbb\xbfx=1", find="x=1", replacement="x=2")[1] == b"\xef\xbb\xbfx=2"
    assert edit(b"a\nb", find="b", replacement="c")[1] == b"a\nc"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"const x = 1;\n// caf\xe9\n", 2),
        ("const x = 1;\n".encode("utf-16"), 1),
        ("const x = 1; 日本\n".encode("shift-jis"), 1),
        (b"const x = 1;\nstart \xf0\x9f\x99\n", 2),
    ],
)
def test_a_file_that_is_not_utf8_is_refused_and_untouched(edit, text_of, content: bytes, line: int) -> None:
    result, after = edit(content, find="x = 1", replacement="x = é")

    assert after == content
    assert f"file.txt is not UTF-8 text (first at line {line}: byte 0x" in text_of(result)
    assert "iconv" in text_of(result)


def test_half_a_character_is_refused(edit, text_of) -> None:
    result, _ = edit(b"a\n", find="a", replacement="\udc80")

    assert "half of a character" in text_of(result)


ENDS = st.sampled_from(["\n", "\r\n", "\r", ""])
LINES = st.text(alphabet="ab\té漢🎙\u2028\x0c \ufeff", max_size=6)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, str]:
    """A file with mixed line ends, and a piece of its text."""
    text = "".join(draw(st.lists(st.tuples(LINES, ENDS).map("".join), min_size=1, max_size=12)))
    assume(text)
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    assume(not text.startswith("\ufeff"))
    start = draw(st.integers(0, len(text) - 1))
    end = draw(st.integers(start + 1, min(len(text), start + 12)))
    # A pair of CR and LF is one line end: half of it is found nowhere on its own, or is part of another place.
    piece = text[start:end]
    assume(not (piece[0] == "\n" and text[start - 1 : start] == "\r"))
    assume(not (piece[-1] == "\r" and text[end : end + 1] == "\n"))
    # With LF for CRLF, CR CR LF would read as CRLF.
    assume("\r\r\n" not in piece)
    return mark + text.encode(), piece


@given(files(), st.text(alphabet="xyz\né", max_size=6))
@settings(max_examples=120)
def test_every_byte_outside_the_match_stays_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[bytes, str], replacement: str
) -> None:
    content, piece = file
    path = tmp_path_factory.mktemp("edit") / "file"
    path.write_bytes(content)
    # What a model sends has LF only.
    find = piece.replace("\r\n", "\n")
    result = use_tool(create_edit_tool(), path=str(path), find=find, replacement=replacement)
    after = path.read_bytes()
    places = [
        place
        for spelling in {find, piece}
        for place in [m.span() for m in re.finditer(f"(?={re.escape(spelling)})", content.decode())]
    ]
    if result.is_error:
        assert after == content
        assert len(places) > 1 or "occurs" in text_of_result(result) or "the same" in text_of_result(result)
        return
    raw = piece.encode()
    assert raw in content
    accepted = {replacement.encode(), replacement.replace("\n", "\r\n").encode()}
    # What looks like the character of the mark may be in the text too; the mark itself is no part of it.
    start = content.index(raw, 3 if content.startswith(b"\xef\xbb\xbf") else 0)
    assert after[:start] == content[:start]
    assert after[len(after) - (len(content) - start - len(raw)) :] == content[start + len(raw) :]
    assert after[start : len(after) - (len(content) - start - len(raw))] in accepted


# --- what goes wrong ---


def test_text_that_occurs_several_times_is_an_error_with_the_lines(edit, text_of) -> None:
    result, _ = edit(b"x\ny\nx\n", find="x", replacement="z")

    assert text_of(result) == (
        "Nothing was changed.\n\n`find` occurs 2 times in file.txt: at lines 1, 3. Add text around it until it fits "
        "one place only, or set `replace_all`."
    )


def test_lines_are_named_for_text_of_several_lines_and_for_places_that_overlap(edit, text_of) -> None:
    several, _ = edit(b"0\na\r\nb\n1\na\nb\n", find="a\nb", replacement="c")
    overlapping, _ = edit(b"\naaa\n", find="aa", replacement="b")
    many, _ = edit(b"x\n" * 100, find="x", replacement="y")

    assert "occurs 2 times in file.txt: at lines 2, 5." in text_of(several)
    assert "occurs 2 times in file.txt: at line 2." in text_of(overlapping)
    assert "occurs more than 20 times in file.txt: at lines 1, 2," in text_of(many)
    assert ", 20 and more." in text_of(many)


SOURCE = b"""import os

def load(path):
\tif not path:
\t\treturn None
    return open(path).read()

class Reader:
    def run(self):
        self.load_the_whole_configuration_file("a")
"""


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        (
            "def load(path):\n    if not path:\n        return None",
            ["3 | def load(path):", "4 | \tif not path:", "5 | \t\treturn None", "in white space only"],
        ),
        (
            'self.load_the_whole_config_file("a")',
            ['10 |         self.load_the_whole_configuration_file("a")', "Copy the text exactly"],
        ),
        ("class Reader:\n    def go(self):\n        pass", ["8 | class Reader:", " 9 |     def run(self):"]),
        ("zzz qqq", ["Nothing in the file is like it", "Read the file again"]),
        (" 3 | def load(path):\n 4 | \tif not path:", ["Without the line numbers"]),
        ("     3\tdef load(path):\n     4\t\tif not path:", ["Without the line numbers"]),
        ("import os\\n\\ndef load", ["It holds \\n as two characters"]),
        ("class Reader :", ["8 | class Reader:"]),
    ],
)
def test_text_that_does_not_occur_is_an_error_with_what_is_near(edit, text_of, find: str, expected: list[str]) -> None:
    result, _ = edit(SOURCE, find=find, replacement="x")

    assert text_of(result).startswith("Nothing was changed.\n\n`find` was not found in file.txt. ")
    assert [each for each in expected if each not in text_of(result)] == []


def test_what_is_near_stays_short_and_quick_in_a_large_file(edit, text_of) -> None:
    content = b"".join(b"some line number %d of the file\n" % n for n in range(100_000)) + b"y" * 100_000
    far, _ = edit(content, find="some lime number 77 of a file\n" * 50, replacement="x")
    wide, _ = edit(content, find="y" * 100_001, replacement="x")

    assert len(text_of(far)) < 2_000
    assert len(text_of(wide)) < 2_000


def test_an_empty_find_and_a_change_that_is_none_are_errors(edit, text_of) -> None:
    assert "`find` is empty" in text_of(edit(b"a\n", find="", replacement="x")[0])
    assert "are the same" in text_of(edit(b"a\n", find="a", replacement="a")[0])
    assert "are the same" in text_of(edit(b"a\r\nb\r\n", find="a\nb", replacement="a\nb")[0])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"find": "a"}, "`replacement` is missing"),
        ({"replacement": "a"}, "`find` is missing"),
        ({}, "`find` is missing"),
        ({"find": 5, "replacement": "x"}, "`find` is missing"),
        ({"edits": []}, "`find` is missing"),
        ({"edits": [{"find": "a"}]}, "`edits[0].replacement` is missing"),
        ({"edits": ["a"]}, "`edits[0]` must be an object"),
        ({"find": "a", "replacement": "b", "edits": [{"find": "a", "replacement": "b"}]}, "not both"),
        ({"find": "a", "replacement": "b", "path": None}, "`path` is missing"),
    ],
)
def test_incomplete_arguments_are_refused(use, text_of, tool, tmp_path: Path, params: dict, expected: str) -> None:
    (tmp_path / "file.txt").write_text("a\n")

    result = use(tool, **{"path": "file.txt", **params})

    assert result.is_error
    assert expected in text_of(result)
    assert (tmp_path / "file.txt").read_text() == "a\n"


def test_a_missing_file_is_an_error_with_near_names(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("x")

    result = use(tool, path="mian.py", find="x", replacement="y")

    assert text_of(result) == "mian.py does not exist. Near names: main.py."


def test_what_is_no_file_is_refused(use, text_of, tool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert "is a named pipe" in text_of(use(tool, path="pipe", find="a", replacement="b"))
    assert "is a device" in text_of(use(tool, path="/dev/null", find="a", replacement="b"))
    assert "is a folder" in text_of(use(tool, path=".", find="a", replacement="b"))


def test_a_file_that_is_too_large_is_refused(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("abcdef")
    tool = create_edit_tool(EditToolOptions(cwd=tmp_path, max_file_size=5))

    assert "file is too large to edit (6 B; at most 5 B)" in text_of(use(tool, path="file", find="a", replacement="b"))


def test_a_file_that_says_it_is_empty_is_not_read_without_end(use, text_of, tmp_path: Path) -> None:
    # Files of the kernel have no size and any length.
    endless = Path("/proc/self/pagemap")
    if not os.access(endless, os.R_OK):
        pytest.skip("needs a file of that kind")
    tool = create_edit_tool(EditToolOptions(max_file_size=1000))

    assert "too large to edit (1001 B; at most 1000 B)" in text_of(
        use(tool, path=str(endless), find="a", replacement="b")
    )


def test_a_file_at_the_limit_is_edited(use, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("abcde")
    tool = create_edit_tool(EditToolOptions(cwd=tmp_path, max_file_size=5))

    assert not use(tool, path="file", find="a", replacement="b").is_error


def test_a_file_that_changes_meanwhile_is_not_overwritten(use, text_of, tool, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old\n")
    write = _atomic._write

    def interfered(descriptor: int, data: bytes) -> None:
        path.write_text("somebody else's\n")
        write(descriptor, data)

    monkeypatch.setattr(_atomic, "_write", interfered)
    result = use(tool, path="file.txt", find="old", replacement="new")

    assert "was changed by another program meanwhile" in text_of(result)
    assert path.read_text() == "somebody else's\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_an_aborted_call_changes_nothing(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("old")
    controller = AbortController()
    controller.abort()

    result = use(tool, path="file.txt", find="old", replacement="new", signal=controller.signal)

    assert text_of(result) == "The call was aborted. Nothing was done."
    assert (tmp_path / "file.txt").read_text() == "old"


# --- several edits ---


def several(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"find": find, "replacement": replacement} for find, replacement in pairs]


def test_all_edits_are_looked_for_in_the_original(edit, text_of) -> None:
    result, after = edit(b"a b\n", edits=several(("a", "b"), ("b", "c")))

    assert after == b"b c\n"
    assert result.details.edits == (Edit("a", "b"), Edit("b", "c"))
    assert "2 replacements, at lines 1, 1" in text_of(result)


def test_edits_may_touch_and_come_in_any_order(edit) -> None:
    assert edit(b"abcd", edits=several(("cd", "4"), ("b", "2"), ("a", "1")))[1] == b"124"


def test_edits_that_overlap_are_refused(edit, text_of) -> None:
    result, _ = edit(b"\nabcd\n", edits=several(("abc", "1"), ("cd", "2")))

    assert "`edits[0]` and `edits[1]` touch the same text, at line 2 of file.txt" in text_of(result)


def test_either_all_edits_are_made_or_none_and_every_problem_is_named(edit, text_of) -> None:
    result, _ = edit(b"a b b\n", edits=several(("a", "1"), ("zzz", "2"), ("b", "3"), ("", "4")))

    assert text_of(result).startswith("Nothing was changed.")
    assert "`edits[1].find` was not found" in text_of(result)
    assert "`edits[2].find` occurs 2 times" in text_of(result)
    assert "`edits[3].find` is empty" in text_of(result)
    assert "edits[0]" not in text_of(result)


def test_an_edit_of_several_can_replace_all(edit) -> None:
    edits = [{"find": "a", "replacement": "b", "replace_all": True}, {"find": "c", "replacement": "d"}]

    assert edit(b"a a c\n", edits=edits)[1] == b"b b d\n"


def test_what_is_said_once_about_all_places_holds_for_every_edit_that_does_not_say_otherwise(edit, text_of) -> None:
    _, after = edit(b"a b a b\n", edits=several(("a", "c"), ("b", "d")), replace_all=True)
    assert after == b"c d c d\n"

    own = [{"find": "a", "replacement": "c", "replace_all": False}]
    result, after = edit(b"a a\n", edits=own, replace_all=True)
    assert after == b"a a\n"
    assert "occurs 2 times" in text_of(result)


def test_unused_arguments_that_models_fill_with_nothing_do_no_harm(edit) -> None:
    assert edit(b"a\n", find="", replacement="", edits=several(("a", "b")))[1] == b"b\n"
    assert edit(b"a\n", find="a", replacement="b", edits=[], replace_all=None)[1] == b"b\n"
    assert edit(b"a\n", find="a", replacement="b", edits=None, reason="because")[1] == b"b\n"


# --- what models send ---


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "f", "find": "a", "replacement": "b"},
        {"file_path": "f", "old_string": "a", "new_string": "b"},
        {"path": "f", "old_text": "a", "new_text": "b"},
        {"path": "f", "oldText": "a", "newText": "b"},
        {"path": "f", "old_str": "a", "new_str": "b"},
    ],
)
def test_the_names_of_other_tools_are_understood(tool, arguments: dict) -> None:
    before = dict(arguments)

    assert tool.prepare_arguments(arguments) == {"path": "f", "find": "a", "replacement": "b"}
    assert arguments == before


@pytest.mark.parametrize(
    "edits",
    [
        [{"find": "a\n", "replacement": "b"}],
        [{"old_text": "a\n", "new_text": "b"}],
        [{"oldText": "a\n", "newText": "b"}],
        {"find": "a\n", "replacement": "b"},
        json.dumps([{"find": "a\n", "replacement": "b"}]),
        json.dumps([{"old_string": "a\n", "new_string": "b"}]),
        json.dumps({"old_text": "a\n", "new_text": "b"}),
        '[{"find": "a\n", "replacement": "b"}]',
    ],
)
def test_edits_are_understood_in_many_forms(tool, edits: object) -> None:
    prepared = tool.prepare_arguments({"path": "f", "edits": edits})

    assert prepared == {"path": "f", "edits": [{"find": "a\n", "replacement": "b"}]}
    assert jsonschema.Draft202012Validator(tool.parameters).is_valid(prepared)


@pytest.mark.parametrize("edits", ["not json", "5", 5, ["a"], [[]]])
def test_edits_that_are_not_understood_are_left_to_the_schema(tool, edits: object) -> None:
    prepared = tool.prepare_arguments({"path": "f", "edits": edits})

    assert not jsonschema.Draft202012Validator(tool.parameters).is_valid(prepared)


@pytest.mark.parametrize("arguments", ["text", ["ls"], 7, None])
def test_arguments_that_are_no_object_are_left_alone(tool, arguments: object) -> None:
    assert tool.prepare_arguments(arguments) == arguments


def test_a_name_that_is_there_is_never_replaced(tool) -> None:
    assert tool.prepare_arguments({"path": "f", "find": "a", "old_text": "b"})["find"] == "a"


def test_the_schema_is_one_that_every_provider_takes(tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.parameters)

    assert tool.parameters["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "not"} & set(tool.parameters)
    assert all(prop["description"] for prop in tool.parameters["properties"].values())


# --- the file ---


def test_mode_and_links_are_kept(use, tool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo 1\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("run.sh")

    use(tool, path="link", find="1", replacement="2")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "run.sh").read_text() == "echo 2\n"
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755


def test_what_the_read_tool_shows_can_be_edited(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(b"\xef\xbb\xbfa\r\n\tb\r\nc\x0cd\r\n")
    shown = text_of(use(create_read_tool(), path=str(tmp_path / "file.txt")))

    assert not use(tool, path="file.txt", find=shown, replacement="all").is_error
    assert (tmp_path / "file.txt").read_bytes() == b"\xef\xbb\xbfall"


def test_ten_parallel_edits_under_five_spellings_all_land(use, tool, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file.txt").write_text("".join(f"<{n}>\n" for n in range(10)))
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link.txt").symlink_to("folder/file.txt")
    spellings = [
        "real/file.txt",
        "folder/file.txt",
        "link.txt",
        str(tmp_path / "real" / "file.txt"),
        "folder/../real/./file.txt",
    ]
    together = threading.Barrier(10)
    results = []

    def work(number: int) -> None:
        together.wait(20)
        path = spellings[number % 5]
        results.append(use(tool, path=path, find=f"<{number}>", replacement=f"<done {number}>"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert [result.is_error for result in results] == [False] * 10
    assert (tmp_path / "real" / "file.txt").read_text() == "".join(f"<done {n}>\n" for n in range(10))


# --- the diff ---

DIFF_LINES = st.lists(st.sampled_from(["a", "b", "c", "", "é"]), min_size=1, max_size=40)


@given(DIFF_LINES, st.booleans(), st.data())
@settings(max_examples=40)
def test_the_diff_is_one_that_patch_applies(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], final_end: bool, data: st.DataObject
) -> None:
    # Every line is unique, so that an edit of any stretch has one place.
    text = "\n".join(f"{number} {line}" for number, line in enumerate(lines)) + "\n" * final_end
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), min_size=2, max_size=6)))
    pairs = [
        (text[a:b], data.draw(st.text(alphabet="xy\n", max_size=5)))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    folder = tmp_path_factory.mktemp("diff")
    (folder / "file").write_text(text)
    result = use_tool(create_edit_tool(EditToolOptions(cwd=folder)), path="file", edits=several(*pairs))
    assume(not result.is_error)
    after = (folder / "file").read_text()
    (folder / "file").write_text(text)
    (folder / "diff").write_text(result.details.diff)

    patched = subprocess.run(
        ["git", "apply", "--unidiff-zero", "-p0", "diff"], cwd=folder, capture_output=True, text=True
    )

    assert patched.returncode == 0, patched.stderr + result.details.diff
    assert (folder / "file").read_text() == after == result.details.after_content


def test_changes_that_are_far_apart_are_hunks_of_their_own(edit) -> None:
    content = "".join(f"line {n}\n" for n in range(1, 101))
    result, _ = edit(
        content.encode(), edits=several(("line 90\n", ""), ("line 10\n", "one\ntwo\n"), ("line 13\n", "x\n"))
    )

    assert [line for line in result.details.diff.splitlines() if line[0] in "@+-"] == [
        "--- file.txt",
        "+++ file.txt",
        "@@ -7,10 +7,11 @@",
        "-line 10",
        "+one",
        "+two",
        "-line 13",
        "+x",
        "@@ -87,7 +88,6 @@",
        "-line 90",
    ]


def test_very_many_changes_take_no_time_that_grows_with_their_square(edit) -> None:
    result, after = edit(b"a\n" * 50_000, find="a", replacement="b", replace_all=True)

    assert after == b"b\n" * 50_000
    assert result.details.diff.count("\n") == 3 + 100_000


def test_the_diff_of_a_large_change_is_made_without_comparing(edit) -> None:
    content = "".join(f"line {n}\n" for n in range(3000))
    result, _ = edit(content.encode(), find=content, replacement=content.upper())

    assert result.details.diff.startswith("--- file.txt\n+++ file.txt\n@@ -1,3000 +1,3000 @@\n-line 0\n-line 1\n")
    assert result.details.diff.count("\n") == 3 + 6000


def test_the_diff_says_where_a_final_line_end_is_missing(edit) -> None:
    result, _ = edit(b"a\nb", find="b", replacement="c")

    assert result.details.diff.endswith(" a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n")
