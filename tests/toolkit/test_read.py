"""The read tool gives text as it is, in portions that lead on to one another, and refuses what is no text."""

import base64
import os
import re
import socket
import subprocess
import sys
import unicodedata
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.abort import AbortController
from agentcore.content import ImageContent, TextContent
from agentcore.messages import Usage
from agentcore.toolkit import (
    ReadImageProcessor,
    ReadImageProcessorResult,
    ReadPrepare,
    ReadToolDetails,
    ReadToolInput,
    ReadToolOptions,
    Truncation,
    _files,
    create_read_tool,
)
from tests.toolkit.conftest import text_of_result, use_tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "image/gif": b"GIF89a\x01\x00\x01\x00",
    "image/webp": b"RIFF\x24\x00\x00\x00WEBPVP8 ",
}


@pytest.fixture
def tool(tmp_path: Path):
    return create_read_tool(ReadToolOptions(cwd=tmp_path))


# --- text ---


def test_text_comes_back_as_it_is(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("naïve 漢字\n\tend")

    result = use(tool, path="a.txt")

    assert text_of(result) == "naïve 漢字\n\tend"
    assert result.details == ReadToolDetails(18, False, os.path.realpath(tmp_path / "a.txt"))
    assert not result.is_error


def test_crlf_is_shown_and_a_byte_order_mark_is_not(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfx=1\r\ny=2\r\n")

    assert text_of(use(tool, path="a.txt")) == "x=1\r\ny=2\r\n"
    assert text_of(use(tool, path="a.txt", offset=2)) == "y=2\r\n"


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_said_to_be_empty(use, text_of, tool, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty").write_bytes(content)

    result = use(tool, path="empty")

    assert text_of(result) == "(the file is empty)"
    assert not result.is_error


def test_only_line_feeds_end_lines(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\x0cstill\u2028one\rone\ntwo\n".encode())

    assert text_of(use(tool, path="a.txt", offset=2)) == "two\n"


def test_a_part_is_read_by_offset_and_limit(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 101)))

    result = use(tool, path="a.txt", offset=10, limit=3)

    assert text_of(result) == "10\n11\n12\n\n[Lines 10-12 of 100. Continue with offset=13.]"
    assert result.details.truncated
    assert text_of(use(tool, path="a.txt", offset=99, limit=2)) == "99\n100\n"
    assert text_of(use(tool, path="a.txt", offset=99, limit=50)) == "99\n100\n"


def test_a_long_file_is_cut_at_two_thousand_lines(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 5001)))

    result = use(tool, path="a.txt")

    assert text_of(result).endswith("\n2000\n\n[Lines 1-2000 of 5,000. Continue with offset=2001.]")
    assert result.details == ReadToolDetails(
        23893,
        True,
        os.path.realpath(tmp_path / "a.txt"),
        Truncation(kept="head", limit="lines", shown_lines=2000, shown_bytes=8893, total_lines=5000, total_bytes=23893),
    )


def test_a_wide_file_is_cut_at_fifty_kibibytes(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{'é' * 499}\n" * 200)

    result = use(tool, path="a.txt")

    assert text_of(result).endswith("é\n\n[Lines 1-51 of 200. Continue with offset=52.]")
    assert result.details.truncation.limit == "bytes"
    assert result.details.truncation.shown_bytes == 51 * 999


def test_the_options_set_the_limits(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aaa\nbbb\nccc\n")

    by_lines = create_read_tool(ReadToolOptions(max_lines=2, cwd=tmp_path))
    by_bytes = create_read_tool(ReadToolOptions(max_size=5, cwd=tmp_path))
    by_default = create_read_tool(ReadToolOptions(max_size=None, max_lines=None, cwd=tmp_path))

    assert text_of(use(by_lines, path="a.txt", limit=50)).startswith("aaa\nbbb\n\n[Lines 1-2 of 3.")
    assert text_of(use(by_bytes, path="a.txt")).startswith("aaa\n\n[Lines 1-1 of 3.")
    assert text_of(use(by_default, path="a.txt")) == "aaa\nbbb\nccc\n"
    for wrong in ({"max_lines": 0}, {"max_size": 0}):
        with pytest.raises(ValueError):
            ReadToolOptions(**wrong)


@pytest.mark.parametrize(
    ("content", "lines"), [("1\n2\n3\n", "3 lines"), ("1\n2\n3", "3 lines"), ("1", "1 line"), ("", "0 lines")]
)
def test_an_offset_past_the_end_is_an_error_that_tells_the_length(
    use, text_of, tool, tmp_path: Path, content: str, lines: str
) -> None:
    (tmp_path / "a.txt").write_text(content)

    result = use(tool, path="a.txt", offset=4)

    assert result.is_error
    assert text_of(result) == f"`offset` 4 is past the end of a.txt, which has {lines}."


@pytest.mark.parametrize(
    "params",
    [
        {"offset": 0},
        {"offset": -1},
        {"limit": 0},
        {"offset": 1.5},
        {"limit": True},
        {"offset": "2"},
        {"path": None},
        {"path": 5},
    ],
)
def test_arguments_that_make_no_sense_are_refused(use, text_of, tool, tmp_path: Path, params: dict) -> None:
    (tmp_path / "a.txt").write_text("x\n")

    result = use(tool, **{"path": "a.txt", **params})

    assert result.is_error
    assert f"`{next(iter(params))}`" in text_of(result)


# --- lines that are too long ---


def test_one_giant_line_gives_a_part_and_a_hint_that_makes_progress(use, text_of, tool, tmp_path: Path) -> None:
    whole = '{"key": "' + "é1" * 70_000 + '"}'
    (tmp_path / "a file.json").write_text(whole)

    result = use(tool, path="a file.json")
    text, _, note = text_of(result).partition("\n\n[")

    assert 51_100 < len(text.encode()) <= 51_200
    assert "Line 1 of 1 is too long" in note
    assert "offset" not in note
    assert result.details.truncation.partial_line
    # The hint is followed until there is nothing more.
    command = re.search(r"`(tail -c \+(\d+) .*)`", note)
    data = subprocess.run(command[1], shell=True, capture_output=True, check=True).stdout
    assert (text.encode() + data) == whole.encode()[: len(text.encode()) + 51_200]
    assert int(command[2]) == len(text.encode()) + 1


def test_after_a_giant_line_the_next_line_is_named(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first\n" + "x" * 60_000 + "\nlast\n")

    assert text_of(use(tool, path="a.txt")) == "first\n\n[Lines 1-1 of 3. Continue with offset=2.]"
    second = text_of(use(tool, path="a.txt", offset=2))
    assert second.startswith("x" * 51_200 + "\n\n[Line 2 of 3 is too long: its first 51,200 bytes are shown.")
    assert second.endswith("The next line is at offset=3.]")
    assert text_of(use(tool, path="a.txt", offset=3)) == "last\n"


LINES = st.lists(
    st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\0", b"0"))
    | st.integers(0, 90).map(lambda n: b"y" * n),
    max_size=25,
)


@given(LINES, st.booleans(), st.integers(1, 6), st.integers(4, 70))
@settings(max_examples=100)
def test_following_the_hints_visits_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], final_end: bool, max_lines: int, max_size: int
) -> None:
    lines = [b"text" * 20, *lines]  # else it may count as binary
    path = tmp_path_factory.mktemp("read") / "file"
    path.write_bytes(b"\n".join(lines) + b"\n" * final_end)
    tool = create_read_tool(ReadToolOptions(max_lines=max_lines, max_size=max_size))
    if final_end is False and lines[-1] == b"":
        lines = lines[:-1]

    visited: list[int] = []
    offset: int | None = 1
    while offset is not None:
        result = use_tool(tool, path=str(path), offset=offset)
        assert not result.is_error
        text = text_of_result(result)
        truncation = result.details.truncation
        if truncation is None:
            visited += range(offset, len(lines) + 1)
            break
        assert truncation.shown_lines <= max_lines
        assert truncation.shown_bytes <= max_size
        assert truncation.total_lines == len(lines)
        visited += range(offset, offset + truncation.shown_lines)
        hint = re.search(r"(?:Continue with|next line is at) offset=(\d+)\.", text.rpartition("\n\n[")[2])
        following = int(hint[1]) if hint else None
        assert following is None or following > offset
        offset = following

    assert visited == list(range(1, len(lines) + 1))


# --- large files ---

MEASURED = r"""
import os, pathlib, re, resource, sys
from agentcore.toolkit import create_read_tool
path, offset, limit = sys.argv[1:]
tool = create_read_tool()
def peak():
    if os.path.exists("/proc/self/status"):
        return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
result = tool.execute("1", {"path": path, "offset": int(offset), "limit": int(limit)}, None, None, None)
print(peak() - before, result.is_error, repr(result.content[0].text))
"""


def large_file(path: Path, size: int) -> Path:
    """Make a file with text at both ends and nothing between: it takes no room on the disk."""
    with path.open("wb") as file:
        file.write(b"".join(b"line %d\n" % n for n in range(1, 2001)))
        file.seek(size)
        file.write(b"\nlast\n")
    return path


@pytest.mark.parametrize(
    ("size", "offset", "expected"),
    [
        (3 * 1024**3, 1, r"line 1\nline 2\n\n[Lines 1-2 of a file of 3 GiB. Continue with offset=3.]"),
        (300 * 1024**2, 2002, r"last\n"),
    ],
)
def test_a_large_file_is_read_in_bounded_memory(python, tmp_path: Path, size: int, offset: int, expected: str) -> None:
    path = large_file(tmp_path / "large", size)
    output, errors = python(MEASURED, path, offset, 2).communicate(timeout=100)
    path.unlink()
    assert errors == ""
    grown, rest = output.strip().split(" ", 1)

    assert int(grown) < 30 * 1024 * 1024
    assert rest == f"False '{expected}'"


def test_a_sparse_file_without_text_is_refused_at_once(use, text_of, tool, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 * 1024**3)

    result = use(tool, path="sparse", offset=1, limit=5)

    assert result.is_error
    assert "sparse is not a text file: it holds NUL bytes (3 GiB)" in text_of(result)


def test_an_abort_ends_the_reading_of_a_large_file(use, text_of, tool, tmp_path: Path) -> None:
    large_file(tmp_path / "large", 3 * 1024**3)
    controller = AbortController()
    controller.abort("enough")

    result = use(tool, path="large", offset=2002, signal=controller.signal)

    assert result.is_error
    assert "aborted: enough" in text_of(result)


# --- what is no text ---


def test_a_binary_file_is_refused_with_advice(use, text_of, tool) -> None:
    result = use(tool, path=sys.executable)

    assert result.is_error
    assert "is not a text file: it holds NUL bytes" in text_of(result)
    assert "bash" in text_of(result)


def test_nul_bytes_in_the_part_that_is_shown_are_refused_too(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"line\n" * 4000 + b"a\0b\n")

    assert not use(tool, path="log", limit=10).is_error
    assert use(tool, path="log", offset=4000).is_error


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text\n".encode("utf-16"), "is UTF-16 text, and this tool reads UTF-8. Use bash: `iconv -f UTF-16"),
        (b"%PDF-1.7\nstream", "it is a PDF"),
        ("привет мир\n".encode("cp1251") * 20, "most of it is not UTF-8"),
    ],
)
def test_other_formats_are_named(use, text_of, tool, tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file").write_bytes(content)

    result = use(tool, path="file")

    assert result.is_error
    assert expected in text_of(result)


def test_text_with_a_few_bytes_that_do_not_decode_is_shown_with_a_warning(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes(b"const x = 1;\n// caf\xe9\n")
    (tmp_path / "real.txt").write_text("a real \ufffd\n")

    result = use(tool, path="a.c")

    assert text_of(result).startswith("const x = 1;\n// caf\ufffd\n\n[Not all of it is UTF-8")
    assert "first in line 2" in text_of(result)
    assert "first in line 2" in text_of(use(tool, path="a.c", offset=2))
    assert text_of(use(tool, path="a.c", limit=1)).endswith("\n\n[Lines 1-1 of 2. Continue with offset=2.]")
    assert text_of(use(tool, path="real.txt")) == "a real \ufffd\n"


def test_a_file_that_ends_inside_a_character_is_shown_with_the_warning(use, text_of, tmp_path: Path) -> None:
    content = "text\nnaïve caf\u00e9".encode()
    (tmp_path / "torn").write_bytes(content[:-1])
    (tmp_path / "whole").write_bytes(content + b"!" * 40)

    # A line that is only cut for its length may end inside a character, and nothing is wrong with it.
    tool = create_read_tool(ReadToolOptions(cwd=tmp_path, max_size=len(content) - len(b"text\n") - 1))
    assert "first in line 2" in text_of(use(create_read_tool(ReadToolOptions(cwd=tmp_path)), path="torn"))
    assert "Not all of it is UTF-8" not in text_of(use(tool, path="whole", offset=2))


def test_limits_below_a_character_show_nothing_and_do_not_call_the_file_empty(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("é!\nend\n")
    result = use(create_read_tool(ReadToolOptions(cwd=tmp_path, max_size=1)), path="file")

    assert "its first 0 bytes are shown" in text_of(result)
    assert "The next line is at offset=2." in text_of(result)
    assert "is empty" not in text_of(result)


def test_what_is_no_regular_file_is_refused_without_waiting(
    use, text_of, tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        listener.bind("socket")
        refused = {name: use(tool, path=name) for name in ("pipe", "socket", "/dev/zero", "/dev/tty", "/dev/stdin")}

    assert all(result.is_error for result in refused.values())
    assert (
        text_of(refused["pipe"]) == "pipe is a named pipe, not a regular file. This tool works on regular files only."
    )
    assert "is a socket" in text_of(refused["socket"])
    assert "is a device" in text_of(refused["/dev/zero"])


def test_a_file_that_has_nothing_to_give_now_is_an_error_and_is_not_waited_for(
    use, text_of, tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files of the kernel can be like that; here a pipe that passes for one, whose other end is open.
    monkeypatch.setattr(_files, "refuse_special", lambda *_args: None)
    os.mkfifo(tmp_path / "pipe")
    other_end = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        result = use(tool, path="pipe")
    finally:
        os.close(other_end)

    assert text_of(result) == "Could not read pipe: it has nothing to give now, and is not waited for."
    assert result.is_error


def test_links_that_lead_in_a_circle_do_not_keep_a_folder_from_being_listed(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "link").symlink_to("folder")

    assert text_of(use(tool, path=".")).endswith("It holds: circle, file, folder/, link/, nowhere.")


def test_a_folder_is_refused_and_listed(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "b.py").touch()
    (tmp_path / "many").mkdir()
    for number in range(60):
        (tmp_path / "many" / f"{number:02}").touch()

    assert text_of(use(tool, path="folder")) == "folder is a folder, not a file. It holds: b.py, inner/."
    assert text_of(use(tool, path="folder/inner/")).endswith("It holds: nothing.")
    assert text_of(use(tool, path="many")).endswith(" 49, … (60 entries in all).")
    assert use(tool, path=".").is_error


def test_what_may_not_be_read_is_an_error(python) -> None:
    script = """
import os, tempfile
from agentcore.toolkit import create_read_tool
tool = create_read_tool()
if os.geteuid() == 0:
    os.setuid(65534)  # nothing is forbidden to root
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.close(os.open("secret", os.O_CREAT, 0o000))
    os.mkdir("closed", 0o000)
    for path in ("secret", "closed/file"):
        result = tool.execute("1", {"path": path}, None, None, None)
        print(result.is_error, result.content[0].text)
"""
    output, errors = python(script).communicate(timeout=30)

    assert output.splitlines() == [
        "True Could not read secret: permission denied.",
        "True closed/file cannot be reached: permission denied.",
    ], errors


# --- images ---


@pytest.mark.parametrize("mime_type", IMAGES)
def test_an_image_is_told_by_its_content_and_given_as_it_is(use, tool, tmp_path: Path, mime_type: str) -> None:
    (tmp_path / "picture.txt").write_bytes(IMAGES[mime_type])

    result = use(tool, path="picture.txt")

    assert result.content == (ImageContent(base64.b64encode(IMAGES[mime_type]).decode(), mime_type),)
    assert result.details == ReadToolDetails(len(IMAGES[mime_type]), False, os.path.realpath(tmp_path / "picture.txt"))


def test_text_with_an_images_name_is_text(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "fake.png").write_text("not a picture\n")

    assert text_of(use(tool, path="fake.png")) == "not a picture\n"


def test_an_image_processor_gets_the_path_and_may_give_any_content(use, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(PNG)
    seen = []

    def process(path, context):
        seen.append((path, context))
        return ReadImageProcessorResult([TextContent("a red dot")], Usage(input=7))

    options = ReadToolOptions(image_processor=process, cwd=tmp_path, context="mine", max_image_size=1)
    result = use(create_read_tool(options), path="picture")

    assert result.content == (TextContent("a red dot"),)
    assert result.usage == Usage(input=7)
    assert seen == [(os.path.realpath(tmp_path / "picture"), "mine")]

    own = ReadToolOptions(image_processor=ReadImageProcessor(process, "its own"), cwd=tmp_path, context="mine")
    use(create_read_tool(own), path="picture")
    assert seen[1][1] == "its own"


def test_an_image_processor_that_fails_is_an_error_and_one_that_declines_is_passed_over(
    use, text_of, tmp_path: Path
) -> None:
    (tmp_path / "picture").write_bytes(PNG)
    failing = create_read_tool(ReadToolOptions(image_processor=lambda *_: 1 / 0, cwd=tmp_path))
    declining = create_read_tool(ReadToolOptions(image_processor=lambda *_: None, cwd=tmp_path))

    assert use(failing, path="picture").is_error
    assert "ZeroDivisionError" in text_of(use(failing, path="picture"))
    assert isinstance(use(declining, path="picture").content[0], ImageContent)


def test_an_image_that_providers_would_refuse_is_refused(use, text_of, tool, tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.write(PNG)
        file.truncate(4_000_000)

    result = use(tool, path="huge.png")

    assert result.is_error
    assert "is an image of 3.81 MiB; at most 3.75 MiB can be shown" in text_of(result)


# --- finding the file ---


def test_a_missing_file_is_an_error_with_near_names_that_are_not_opened(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "settings.py").write_text("secret = 1\n")
    (tmp_path / "src" / "Setings.PY").write_text("secret = 2\n")

    result = use(tool, path="src/setting.py")

    assert result.is_error
    assert text_of(result) == "src/setting.py does not exist. Near names: src/settings.py, src/Setings.PY."


def test_without_near_names_the_last_folder_that_exists_is_named(use, text_of, tool, tmp_path: Path) -> None:
    folder = os.path.realpath(tmp_path)

    assert text_of(use(tool, path="x/y/z")).endswith(f"the last that exists is {folder}.")
    assert text_of(use(tool, path="zzz")) == f"zzz does not exist. Nothing in {folder} has a similar name."


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ("don’t.txt", "don't.txt"),
        ("“q”.txt", '"q".txt'),
        (unicodedata.normalize("NFD", "é.txt"), unicodedata.normalize("NFC", "é.txt")),
        (unicodedata.normalize("NFC", "é.txt"), unicodedata.normalize("NFD", "é.txt")),
        ("at 9.41\u202fAM.txt", "at 9.41 AM.txt"),
        ("a–b.txt", "a-b.txt"),
        ("plain.txt", "'plain.txt'"),
        ("plain.txt", '"plain.txt"'),
        ("plain.txt", "`plain.txt`"),
        ("plain.txt", "@plain.txt"),
        ("plain.txt", " plain.txt\n"),
        ("@odd.txt", "@odd.txt"),
        ("'odd'", "'odd'"),
        (" odd", " odd"),
    ],
)
def test_a_name_that_looks_the_same_is_found(use, text_of, tool, tmp_path: Path, there: str, asked: str) -> None:
    (tmp_path / there).write_text("found\n")

    assert text_of(use(tool, path=asked)) == "found\n"


def test_of_two_names_that_look_the_same_neither_is_taken(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "don’t.txt").write_text("1")
    (tmp_path / "donʼt.txt").write_text("2")

    result = use(tool, path="don't.txt")

    assert result.is_error
    assert "Near names" in text_of(result)


def test_the_home_folder_is_filled_in(use, text_of, tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a.txt").write_text("home\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert text_of(use(tool, path="~/a.txt")) == "home\n"
    assert (
        text_of(use(tool, path="~/b.txt"))
        == "~/b.txt does not exist. Near names: " + str(tmp_path / "home/a.txt") + "."
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "path is empty"),
        ("  ", "path is empty"),
        ("a\0b", "NUL"),
        ("x" * 300, "the name is too long"),
        ("\ud800", "half of a character"),
        ("file/below", "does not exist"),
    ],
)
def test_a_path_that_cannot_be_one_is_an_error(use, text_of, tool, tmp_path: Path, path: str, expected: str) -> None:
    (tmp_path / "file").touch()

    result = use(tool, path=path)

    assert result.is_error
    assert expected in text_of(result)


def test_links_are_followed_and_dangling_ones_explained(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("linked\n")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")

    assert text_of(use(tool, path="link")) == "linked\n"
    assert f"dangling is a symbolic link to {os.path.realpath(tmp_path)}/nowhere" in text_of(use(tool, path="dangling"))
    assert use(tool, path="loop").is_error


def test_without_a_folder_paths_start_where_the_process_is(use, text_of, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("here\n")
    monkeypatch.chdir(tmp_path)

    assert text_of(use(create_read_tool(), path="a.txt")) == "here\n"


# --- prepare ---


def test_prepare_may_change_what_is_read(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    seen = []

    def prepare(what, context, signal):
        seen.append((what, context, signal))
        return ReadToolInput("a.txt", offset=2)

    tool = create_read_tool(ReadToolOptions(prepare=prepare, cwd=tmp_path, context="mine"))
    signal = AbortController().signal

    assert text_of(use(tool, path="b.txt", limit=1, signal=signal)) == "2\n3\n"
    assert seen == [(ReadToolInput("b.txt", None, 1), "mine", signal)]

    own = ReadPrepare(lambda _what, context, _signal: seen.append(context), "its own")
    use(create_read_tool(ReadToolOptions(prepare=own, cwd=tmp_path)), path="a.txt")
    assert seen[1] == "its own"


def test_nothing_is_read_when_prepare_fails(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("secret\n")
    for prepare in (lambda *_: 1 / 0, lambda *_: "a.txt", lambda *_: False):
        result = use(create_read_tool(ReadToolOptions(prepare=prepare, cwd=tmp_path)), path="a.txt")

        assert result.is_error
        assert "`prepare`" in text_of(result)
        assert "secret" not in text_of(result)


@pytest.mark.parametrize("change", [{"offset": -5}, {"offset": 0}, {"limit": -1}, {"limit": 0}, {"path": None}])
def test_nothing_is_read_when_prepare_asks_for_what_there_cannot_be(
    use, text_of, tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / "a.txt").write_text("secret\n")
    tool = create_read_tool(ReadToolOptions(prepare=lambda what, *_: attrs.evolve(what, **change), cwd=tmp_path))
    result = use(tool, path="a.txt")

    assert result.is_error
    assert f"`{next(iter(change))}` is" in text_of(result)


# --- the tool itself ---


def test_the_tool_describes_itself_and_understands_other_names_for_the_path(tool) -> None:
    assert (tool.name, tool.label) == ("read", "read")
    assert set(tool.parameters["properties"]) == {"path", "offset", "limit"}
    assert all(prop["description"] for prop in tool.parameters["properties"].values())
    assert "2,000 lines or 50 KiB" in tool.description
    assert tool.prepare_arguments({"file_path": "a", "offset": 1}) == {"path": "a", "offset": 1}
    assert tool.prepare_arguments({"file_path": "a", "path": "b"}) == {"file_path": "a", "path": "b"}
    assert tool.prepare_arguments("text") == "text"


def test_signal_updates_and_context_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")

    result = create_read_tool().execute("tc2", {"path": str(tmp_path / "a.txt")}, None, None, None)

    assert result.content == (TextContent("x\n"),)
