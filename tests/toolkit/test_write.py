"""The write tool replaces whole files in one step, and keeps what belongs to the file rather than to its content."""

import codecs
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.abort import AbortController
from agentcore.toolkit import WriteToolOptions, _atomic, create_edit_tool, create_write_tool
from tests.toolkit.conftest import use_tool


@pytest.fixture
def tool(tmp_path: Path):
    return create_write_tool(WriteToolOptions(cwd=tmp_path))


# --- content ---


def test_a_new_file_is_made_with_the_folders_on_the_way(use, text_of, tool, tmp_path: Path) -> None:
    result = use(tool, path="a/b/output.txt", content="Hello World")

    assert text_of(result) == "File written: a/b/output.txt (11 bytes)"
    assert (tmp_path / "a/b/output.txt").read_bytes() == b"Hello World"
    assert not result.is_error


def test_all_of_an_old_file_is_replaced(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("much longer than what comes\n" * 100)

    assert text_of(use(tool, path="a.txt", content="né\r\n\n")) == "File written: a.txt (6 bytes)"
    assert (tmp_path / "a.txt").read_bytes() == "né\r\n\n".encode()


@given(st.text(max_size=200))
def test_any_text_is_written_as_it_is(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    for _ in range(2):
        assert not use_tool(create_write_tool(), path=str(path), content=content).is_error
        # A file that begins with a byte order mark keeps it.
        assert path.read_bytes() == content.encode()


def test_missing_content_is_refused_and_empty_content_is_meant(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("precious")

    for params in ({}, {"content": None}, {"content": 5}, {"content": ["x"]}):
        result = use(tool, path="a.txt", **params)
        assert result.is_error
        assert "`content` is missing" in text_of(result)
        assert (tmp_path / "a.txt").read_text() == "precious"
    assert use(tool, content="x").is_error

    assert text_of(use(tool, path="a.txt", content="")) == "File written: a.txt (0 bytes)"
    assert (tmp_path / "a.txt").read_text() == ""
    assert tool.parameters["required"] == ["path", "content"]


def test_half_a_character_is_refused(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    result = use(tool, path="a.txt", content="ok \ud83d")

    assert result.is_error
    assert r"the lone surrogate \ud83d at position 3" in text_of(result)
    assert (tmp_path / "a.txt").read_text() == "old"


# --- encodings ---


def test_a_byte_order_mark_stays(use, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfx=1\n")

    assert not use(create_edit_tool(), path=str(tmp_path / "a.txt"), find="x=1", replacement="x=2").is_error
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfx=2\n"
    use(tool, path="a.txt", content="y=1\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfy=1\n"
    use(tool, path="a.txt", content="\ufeffz=1\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfz=1\n"


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf_16_stays_utf_16(use, text_of, tool, tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(mark + "old".encode("utf-16-le"))

    result = use(tool, path="a.txt", content="né 漢\n")

    assert (tmp_path / "a.txt").read_bytes().startswith(mark)
    assert (tmp_path / "a.txt").read_bytes().decode("utf-16") == "né 漢\n"
    assert "It is UTF-16, as it was before" in text_of(result)


def test_a_change_of_encoding_or_line_ends_is_told(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "crlf").write_bytes(b"a\r\nb\r\n")

    assert "It is UTF-8 now; before, it was in another encoding" in text_of(use(tool, path="latin", content="é\n"))
    assert (tmp_path / "latin").read_text() == "é\n"
    assert "Its lines end with LF now; before, they ended with CRLF" in text_of(use(tool, path="crlf", content="a\n"))
    assert (tmp_path / "crlf").read_bytes() == b"a\n"


# --- what belongs to the file ---


@pytest.mark.parametrize("mode", [0o755, 0o644, 0o600, 0o640, 0o4755])
def test_the_mode_is_kept(use, tool, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.sh"
    path.touch()
    path.chmod(mode)

    use(tool, path="run.sh", content="#!/bin/sh\n")

    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_new_file_follows_the_umask(use, tool, tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        use(tool, path="new", content="x")
    finally:
        os.umask(old)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(use, tool, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    os.chown(path, 1234, 5678)
    path.chmod(0o6755)

    use(tool, path="a.txt", content="x")

    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 5678, 0o6755)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_extended_attributes_are_kept(use, tool, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("the file system has no extended attributes")

    use(tool, path="a.txt", content="x")

    assert os.getxattr(path, "user.note") == b"mine"


def test_links_stay_links(use, tool, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real/a.txt")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "dangling").symlink_to("real/new.txt")

    use(tool, path="link.txt", content="1")
    assert (tmp_path / "link.txt").readlink() == Path("real/a.txt")
    assert (tmp_path / "real" / "a.txt").read_text() == "1"
    use(tool, path="folder/a.txt", content="2")
    assert (tmp_path / "real" / "a.txt").read_text() == "2"
    use(tool, path="dangling", content="3")
    assert (tmp_path / "real" / "new.txt").read_text() == "3"
    assert (tmp_path / "dangling").is_symlink()


# --- what cannot be written ---


def test_what_is_no_file_is_refused(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")

    refused = {
        path: text_of(use(tool, path=path, content="x"))
        for path in ("folder", "pipe", "/dev/null", "new/", "file/below", "", "x" * 300, "a\0b", ".")
        if use(tool, path=path, content="x").is_error
    }

    assert len(refused) == 9
    assert "is a folder" in refused["folder"]
    assert "is a named pipe" in refused["pipe"]
    assert "is a device" in refused["/dev/null"]
    assert "ends like the path of a folder" in refused["new/"]
    assert "a part of the path is a file" in refused["file/below"]
    assert "the name is too long" in refused["x" * 300]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]


FORBIDDEN = """
import os, sys, tempfile
from agentcore.toolkit import create_edit_tool, create_write_tool
write, edit = create_write_tool(), create_edit_tool()
if os.geteuid() == 0:
    os.setuid(65534)  # nothing is forbidden to root
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("protected", "w") as file:
        file.write("x")
    os.chmod("protected", 0o444)
    os.mkdir("closed")
    os.chmod("closed", 0o555)
    for tool, params in (
        (write, {"path": "protected", "content": "y"}),
        (edit, {"path": "protected", "find": "x", "replacement": "y"}),
        (write, {"path": "closed/new", "content": "y"}),
    ):
        result = tool.execute("1", params, None, None, None)
        print(result.is_error, result.content[0].text)
    os.mkdir("strays")
    for number, mode in enumerate((0o444, 0o200, 0o600)):
        os.close(os.open(f"strays/.agentcore-write-{number}.tmp", os.O_CREAT, mode))
    write.execute("1", {"path": "strays/new", "content": "x"}, None, None, None)
    print(os.listdir("strays"))
    os.mkdir("unreadable")
    with open("unreadable/file", "w") as file:
        file.write("old")
    os.chmod("unreadable/file", 0o200)
    os.chmod("unreadable", 0o300)
    print(write.execute("1", {"path": "unreadable/file", "content": "new"}, None, None, None).content[0].text)
    os.chmod("unreadable/file", 0o600)
    with open("unreadable/file") as file:
        print(file.read())
    os.chmod("unreadable", 0o700)
    with open("protected") as file:
        print(file.read(), os.listdir("closed"))
"""


def test_write_protection_is_respected(python) -> None:
    output, errors = python(FORBIDDEN).communicate(timeout=30)

    assert output.splitlines() == [
        "True Could not write protected: permission denied.",
        "True Could not edit protected: permission denied.",
        "True Could not write closed/new: permission denied.",
        "['new']",
        "File written: unreadable/file (3 bytes)",
        "new",
        "x []",
    ], errors


def test_an_aborted_call_writes_nothing(use, text_of, tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    controller = AbortController()
    controller.abort("enough")

    result = use(tool, path="a.txt", content="new", signal=controller.signal)

    assert text_of(result) == "The call was aborted: enough. Nothing was done."
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(use, text_of, tool, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("old")

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_atomic, "_write", full)
    result = use(tool, path="a.txt", content="new")

    assert text_of(result) == "Could not write a.txt: no space left on the disk."
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


# --- names ---


def test_quotes_and_home_are_understood_and_an_at_sign_is_part_of_a_name(
    use, tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for path in ('"quoted.txt"', "~/at home.txt", "@scope/package.json", " spaces.txt "):
        assert not use(tool, path=path, content="x").is_error

    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"quoted.txt", "home/at home.txt", "@scope/package.json", "spaces.txt"}


def test_the_tool_describes_itself_and_understands_other_names_for_the_path(tool) -> None:
    assert (tool.name, tool.label) == ("write", "write")
    assert all(prop["description"] for prop in tool.parameters["properties"].values())
    assert tool.prepare_arguments({"file_path": "a", "content": ""}) == {"path": "a", "content": ""}


# --- crashes ---

KILLED = """
import os, random, signal, sys, time
from agentcore.toolkit import create_read_tool, create_write_tool
path = sys.argv[1]
folder = os.path.dirname(path)
tool = create_write_tool()
contents = [letter * 300_000 for letter in "abcdefgh"]
write = lambda content: tool.execute("1", {"path": path, "content": content}, None, None, None)
write(contents[0])
generator = random.Random(11)
interrupted = torn = 0
strays = set()
for number in range(50):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"x")
        while True:
            write(generator.choice(contents))
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    time.sleep(generator.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(path) as file:
        torn += file.read() not in contents
    strays.update(name for name in os.listdir(folder) if name != os.path.basename(path))
write(contents[1])
print(torn, len(strays), os.listdir(folder))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_that_is_killed_leaves_the_old_content_or_the_new_and_nothing_that_stays(
    python, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    output, errors = python(KILLED, path).communicate(timeout=100)
    torn, strays, left = output.strip().split(" ", 2) if output else pytest.fail(errors)

    assert torn == "0"
    assert left == "['file']"
    # Some were killed between making the temporary file and renaming it: else this test would prove nothing.
    assert int(strays) > 0


def test_a_temporary_file_that_is_in_use_is_not_cleaned_up(use, tool, tmp_path: Path) -> None:
    live = _atomic._Temporary(None, str(tmp_path))
    live.make(0o600)
    dead = tmp_path / f"{_atomic._PREFIX}dead.tmp"
    dead.touch()
    (tmp_path / f"{_atomic._PREFIX}folder").mkdir()
    (tmp_path / f"{_atomic._PREFIX}link").symlink_to("a.txt")
    (tmp_path / "a.txt").write_text("old")

    use(tool, path="b.txt", content="x")

    assert Path(live.path).exists()
    assert not dead.exists()
    assert (tmp_path / "a.txt").read_text() == "old"
    live.remove()
    use(tool, path="b.txt", content="x")
    assert not Path(live.path).exists()


def test_a_temporary_file_that_was_cleaned_up_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch) -> None:
    lock = _atomic._lock
    victims = []

    def late(descriptor: int) -> bool:
        if not victims:
            victims.extend(tmp_path.iterdir())
            victims[0].unlink()
        return lock(descriptor)

    monkeypatch.setattr(_atomic, "_lock", late)
    _atomic.replace_content(None, str(tmp_path / "file"), b"x", None, lambda: None)

    assert len(victims) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


INTERRUPTED = """
import os, random, signal, sys
from agentcore.toolkit import create_edit_tool, create_write_tool, _file_locks
path = sys.argv[1]
write, edit = create_write_tool(), create_edit_tool()
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
generator = random.Random(3)
with open(path, "w") as file:
    file.write("0\\n")
before = len(os.listdir("/dev/fd"))
interrupted = 0
for number in range(600):
    try:
        signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.00002, 0.0008))
        write.execute("1", {"path": path, "content": "1\\n" * 9}, None, None, None)
        edit.execute("1", {"path": path, "find": "1", "replacement": "0", "replace_all": True}, None, None, None)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    with open(path) as file:
        assert file.read() in ("0\\n", "1\\n" * 9, "0\\n" * 9)
signal.setitimer(signal.ITIMER_REAL, 0)
after = len(os.listdir("/dev/fd"))
write.execute("1", {"path": path, "content": "end"}, None, None, None)
print(interrupted > 100, after - before, os.listdir(os.path.dirname(path)), len(_file_locks._locks))
"""


def test_interrupts_at_random_moments_leave_no_file_descriptor_or_lock_behind(python, tmp_path: Path) -> None:
    output, errors = python(INTERRUPTED, tmp_path / "file").communicate(timeout=60)

    assert output == "True 0 ['file'] 0\n", errors


def test_two_processes_that_write_one_file_do_not_disturb_each_other(python, tmp_path: Path) -> None:
    script = """
import sys
from agentcore.toolkit import create_write_tool
path, letter = sys.argv[1:]
tool = create_write_tool()
print(sum(tool.execute("1", {"path": path, "content": letter * 5000}, None, None, None).is_error for _ in range(200)))
"""
    writers = [python(script, tmp_path / "file", letter) for letter in "abc"]
    outputs = [writer.communicate(timeout=60) for writer in writers]

    assert outputs == [("0\n", "")] * 3
    assert (tmp_path / "file").read_text() in [letter * 5000 for letter in "abc"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_module_works_without_what_only_posix_has(python, tmp_path: Path) -> None:
    # As near to Windows as a test can come elsewhere: its name, and nothing of what it lacks.
    script = """
import importlib, os, sys
import select, signal, subprocess, tempfile, threading, time, shutil, pathlib, attrs, agentcore.tools, agentcore.abort
os.chdir(sys.argv[1])
sys.platform = "win32"
sys.modules["fcntl"] = None
os.supports_dir_fd = set()
os.supports_effective_ids = set()
for module, names in {
    select: ["poll", "POLLIN"],
    os: ["killpg", "setsid", "fchmod", "fchown", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_DIRECTORY",
         "O_PATH", "getxattr", "setxattr", "listxattr", "getuid", "geteuid"],
    signal: ["SIGKILL"],
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
from agentcore.toolkit import *
try:
    create_bash_tool()
except OSError as error:
    print(error)
write, read, edit = create_write_tool(), create_read_tool(), create_edit_tool()
for tool, params in (
    (write, {"path": "a/b.txt", "content": "x = 1\\n"}),
    (edit, {"path": "a/b.txt", "find": "1", "replacement": "2"}),
    (read, {"path": "a/b.txt"}),
    (read, {"path": "a"}),
    ("confined", {"path": "c.txt", "content": "y"}),
    ("confined", {"path": "../c.txt", "content": "y"}),
):
    tool = create_write_tool(WriteToolOptions(root="a")) if tool == "confined" else tool
    print(tool.execute("1", params, None, None, None).content[0].text.strip())
for name, age in (("old", 7200), ("new", 60)):
    stray = pathlib.Path(f"a/.agentcore-write-{name}.tmp")
    stray.touch()
    os.utime(stray, (time.time() - age,) * 2)
write.execute("1", {"path": "a/c.txt", "content": "y"}, None, None, None)
print(sorted(os.listdir("a")))
"""
    output, errors = python(script, tmp_path).communicate(timeout=30)

    assert output.splitlines() == [
        "the bash tool needs a POSIX shell, process groups and signals; Windows has none of them",
        "File written: a/b.txt (6 bytes)",
        "Edit applied: a/b.txt (1 replacement, at line 1)",
        "x = 2",
        "a is a folder, not a file. It holds: b.txt.",
        "File written: c.txt (1 byte)",
        "../c.txt is outside the folder that this tool may use, "
        + os.path.realpath(tmp_path / "a")
        + ". Nothing was done. Use a path inside it.",
        "['.agentcore-write-new.tmp', 'b.txt', 'c.txt']",
    ], errors
