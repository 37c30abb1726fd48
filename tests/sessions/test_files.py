"""Session files: made for their owner alone, refused when they are none, and written by one at a time."""

import copy
import gc
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from agentcore import SessionCorruptError, SessionError, SessionLockedError, UserMessage
from agentcore.sessions import Session, SessionEntry, SessionProblem, session_path
from tests.sessions.session_support import problems_of, session_of, texts_of

# --- making and opening ---------------------------------------------------------------------------------------------


def test_a_new_session_has_a_header_and_one_line_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    before = time.time_ns() // 1_000_000
    with Session.create(path, cwd="/some/folder") as session:
        first = session.append(UserMessage("hé", timestamp=5))
        second = session.append(UserMessage("ho", timestamp=6))
    header, *lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    assert header == {
        "type": "session",
        "version": 1,
        "id": session.id,
        "created": session.created,
        "cwd": "/some/folder",
    }
    assert before <= session.created <= lines[0]["timestamp"] <= time.time_ns() // 1_000_000
    assert [list(line) for line in lines] == [["id", "parent_id", "timestamp", "kind", "message"]] * 2
    assert [(line["id"], line["parent_id"], line["kind"]) for line in lines] == [
        (first, None, "message"),
        (second, first, "message"),
    ]
    assert lines[0]["message"] == {"role": "user", "content": "hé", "timestamp": 5}
    assert path.read_bytes().startswith(b'{"type":"session","version":1,"id":"')
    assert "hé".encode() in path.read_bytes()


def test_an_opened_session_is_what_was_written_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with Session.create(path) as made:
        made.append(UserMessage("one", timestamp=1))
    with Session.open(str(path)) as session:
        assert (session.id, session.cwd, session.created, session.path) == (made.id, os.getcwd(), made.created, path)
        assert session.leaf_id == made.leaf_id
        session.append(UserMessage("two", timestamp=2))
        assert texts_of(session) == ["one", "two"]
        assert session.problems == ()

    assert texts_of(Session.read(path)) == ["one", "two"]
    assert repr(session) == f"Session({str(path)!r}, 2 entries)"


def test_two_sessions_have_different_ids(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as one, Session.create(tmp_path / "b") as two:
        ids = {one.id, two.id, one.append(UserMessage("x")), two.append(UserMessage("x"))}

    assert len(ids) == 4


def test_an_empty_file_is_initialised(tmp_path: Path) -> None:
    for content in (b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf"):
        path = tmp_path / "empty"
        path.write_bytes(content)
        assert Session.read(path).messages() == []
        assert (Session.read(path).id, Session.read(path).cwd, Session.read(path).created) == ("", "", 0)

        with Session.open(path) as session:
            session.append(UserMessage("hi"))
            assert session.id

        again = Session.read(path)
        assert (again.id, texts_of(again), again.problems) == (session.id, ["hi"], ())
        assert path.read_bytes().startswith(content)


def test_an_empty_file_may_be_made_a_new_session(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    Session.create(path).close()

    assert Session.read(path).id


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"# Notes\n\nbuy milk\n", 1),
        (b"just text", 1),
        (b"\x7fELF\x02\x01\x01\x00\x00", 1),
        (b'{"type":"agent","messages":[]}\n', 1),
        (b'{"type":"session","id":"x","timestamp":"2020-01-01","cwd":"/"}\n{"type":"message","id":"a"}\n', 1),
        (b'{"type":"session","version":0,"id":"x","created":1}\n', 1),
        (b'{"type":"session","version":"1","id":"x","created":1}\n', 1),
        (b'{"type":"session","version":1,"id":7,"created":1}\n', 1),
        (b'{"type":"session","version":1,"id":"x","created":"today"}\n', 1),
        (b'{"type":"other","version":1,"id":"x","created":1}\n', 1),
        (b"[1,2]\n", 1),
        (b"\n\nnull\n", 3),
        (b"\xff\xfe{\x00}\x00", 1),
        (b'{"id":"a","parent_id":null,"timestamp":1}\n', 1),
        (b"x" * (1 << 21), 1),
    ],
)
def test_a_file_that_is_no_session_is_refused_untouched(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    os.utime(path, ns=(1_000, 1_000))
    for opened in (Session.open, Session.read):
        with pytest.raises(SessionCorruptError, match=r"notes\.md is no session file") as caught:
            opened(path)
        assert (caught.value.path, caught.value.line) == (str(path), line)
    with pytest.raises(FileExistsError, match=r"notes\.md exists already"):
        Session.create(path)

    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == 1_000
    assert os.listdir(tmp_path) == ["notes.md"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for opened in (Session.open, Session.read, Session.create):
        for path in (pipe, Path("/dev/zero")):
            with pytest.raises(SessionCorruptError, match="is no ordinary file"):
                opened(path)
        with pytest.raises(IsADirectoryError):
            opened(tmp_path)

    assert os.listdir(tmp_path) == ["pipe"]


def test_a_missing_file_is_not_made_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`Session\.create` makes one"):
        Session.open(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        Session.read(tmp_path / "a")

    assert os.listdir(tmp_path) == []


def test_an_existing_session_is_not_made_anew(tmp_path: Path) -> None:
    path = session_of(tmp_path / "a", "one")
    content = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"`Session\.open` goes on with it"):
        Session.create(path)

    assert path.read_bytes() == content


def test_a_file_that_appears_while_a_session_is_made_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    acquire = filelock.FileLock.acquire

    def acquired(self: filelock.FileLock, *args: object) -> object:
        (tmp_path / "a").write_text("notes")
        return acquire(self)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)
    with pytest.raises(FileExistsError):
        Session.create(tmp_path / "a")
    monkeypatch.undo()

    assert (tmp_path / "a").read_text() == "notes"
    (tmp_path / "a").write_text("")
    Session.open(tmp_path / "a").close()


def test_a_folder_that_appears_while_a_session_is_made_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    acquire = filelock.FileLock.acquire

    def acquired(self: filelock.FileLock, *args: object) -> object:
        (tmp_path / "a").mkdir()
        return acquire(self)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)
    with pytest.raises(IsADirectoryError):
        Session.create(tmp_path / "a")


def test_a_file_that_is_exchanged_before_it_is_locked_is_refused_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    path = session_of(tmp_path / "a", "one")
    acquire = filelock.FileLock.acquire

    def acquired(self: filelock.FileLock, *args: object) -> object:
        path.write_text("notes")
        return acquire(self)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)
    with pytest.raises(SessionCorruptError):
        Session.open(path)
    monkeypatch.undo()

    assert path.read_text() == "notes"
    path.write_text("")
    Session.open(path).close()


# --- privacy --------------------------------------------------------------------------------------------------------


def test_new_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Session.create(tmp_path / "new" / "folder" / "a.jsonl") as session:
            session.append(UserMessage("secret"))
            forked = session.fork(tmp_path / "b.jsonl")
            forked.close()
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [*(tmp_path / "new" / "folder").iterdir(), *tmp_path.glob("b*"), tmp_path / "new" / "folder"]
    }

    assert modes == {
        "a.jsonl": 0o600,
        "a.jsonl.lock": 0o600,
        "b.jsonl": 0o600,
        "b.jsonl.lock": 0o600,
        "folder": 0o700,
    }


def test_the_mode_of_a_file_that_is_opened_stays(tmp_path: Path) -> None:
    path = session_of(tmp_path / "a", "one")
    path.chmod(0o640)
    with Session.open(path) as session:
        session.append(UserMessage("two"))

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_planted_links_are_not_followed_when_a_session_is_made(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name, target in (("a", victim), ("b.lock", victim)):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(FileExistsError):
        Session.create(tmp_path / "a")
    with pytest.raises(SessionError, match=r"b\.lock, which would be the lock of a session, is a link"):
        Session.create(tmp_path / "b")

    assert sorted(os.listdir(tmp_path)) == ["a", "b.lock"]


def test_a_link_that_appears_while_a_session_is_made_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    acquire = filelock.FileLock.acquire

    def acquired(self: filelock.FileLock, *args: object) -> object:
        (tmp_path / "a").symlink_to(tmp_path / "victim")
        return acquire(self)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)
    with pytest.raises(FileExistsError):
        Session.create(tmp_path / "a")

    assert not (tmp_path / "victim").exists()


def test_a_link_of_the_users_own_leads_to_its_session(tmp_path: Path) -> None:
    path = session_of(tmp_path / "a", "one")
    (tmp_path / "link").symlink_to(path)
    with Session.open(tmp_path / "link") as session:
        session.append(UserMessage("two"))
        with pytest.raises(SessionLockedError):
            Session.open(path)

    assert (tmp_path / "link").is_symlink()
    assert texts_of(Session.read(path)) == ["one", "two"]


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/abs", "a/b", "a\\b", ".", "..", ".hidden", "-rf", "", " ", "a b", "a\nb", "a\n", "nul\x00", "ü", "a:b", "x" * 101,
        "x" * 300, "CON", "con", "Nul.txt", "COM1", "lpt9.a.b", "aux", "prn", "ends.", "~", "$HOME", "a*",
    ],
)  # fmt: skip
def test_a_name_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name for a session") as caught:
        session_path(tmp_path, name)

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["a", "2024-05-06_fix-it.v2", "x" * 100, "console", "0", "com", "com10"])
def test_a_plain_name_is_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    path = session_path(str(tmp_path), name)

    assert path == tmp_path / f"{name}.jsonl"
    with Session.create(path) as session:
        assert session.path.parent == tmp_path


# --- one writer -----------------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_at_once_and_readers_may_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    session = Session.create(path)
    session.append(UserMessage("one"))
    began = time.monotonic()
    with pytest.raises(SessionLockedError, match=r"close it there, or `Session\.read` it"):
        Session.open(path)
    with pytest.raises(FileExistsError):
        Session.create(path)

    assert time.monotonic() - began < 5
    assert texts_of(Session.read(path)) == ["one"]
    session.append(UserMessage("two"))
    session.close()
    with Session.open(path) as again:
        assert texts_of(again) == ["one", "two"]


SECOND_WRITER = """
import sys
from agentcore import SessionLockedError, UserMessage
from agentcore.sessions import Session
path = sys.argv[1]
try:
    Session.open(path)
except SessionLockedError as error:
    print("locked")
print(len(Session.read(path).messages()))
"""


def test_a_second_process_is_refused_and_may_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        session.append(UserMessage("one"))
        told = subprocess.run(
            [sys.executable, "-c", SECOND_WRITER, str(path)], capture_output=True, text=True, timeout=60
        )
    assert (told.stdout.split(), told.stderr) == (["locked", "1"], "")

    told = subprocess.run([sys.executable, "-c", SECOND_WRITER, str(path)], capture_output=True, text=True, timeout=60)
    assert (told.stdout.split(), told.stderr) == (["1"], "")


def test_a_reader_sees_a_line_that_is_being_written_as_one_that_is_cut_off(tmp_path: Path) -> None:
    path = session_of(tmp_path / "a", "one")
    with path.open("ab") as file:
        file.write(b'{"id":"x","par')

    assert problems_of(Session.read(path)) == [(3, "cut off before its end; skipped")]


def test_what_was_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    session = Session.read(session_of(tmp_path / "a", "one"))
    with pytest.raises(SessionError, match="opened for reading only"):
        session.append(UserMessage("two"))

    assert texts_of(session) == ["one"]
    session.close()


def test_a_closed_session_can_be_looked_at_but_not_written(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "a")
    session.append(UserMessage("one"))
    session.close()
    session.close()
    with pytest.raises(SessionError, match="is not open for writing"):
        session.append(UserMessage("two"))

    assert texts_of(session) == ["one"]


def test_a_session_that_is_dropped_is_closed_and_python_warns_of_it(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Session.create(tmp_path / "a").append(UserMessage("one"))
        gc.collect()

    assert [warning.category for warning in caught] == [ResourceWarning]
    Session.open(tmp_path / "a").close()


def test_a_session_can_be_neither_pickled_nor_copied(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="open its file there"):
                act(session)


def test_writing_without_filelock_says_what_to_install_and_reading_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_of(tmp_path / "a", "one")
    monkeypatch.setitem(sys.modules, "filelock", None)
    for act in (lambda: Session.open(path), lambda: Session.create(tmp_path / "b")):
        with pytest.raises(SessionError, match=r"pip install 'agentcore-loop\[sessions\]'"):
            act()

    assert texts_of(Session.read(path)) == ["one"]
    assert not (tmp_path / "b").exists()


def test_a_session_belongs_to_the_process_that_opened_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session.create(tmp_path / "a") as session:
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        with pytest.raises(SessionError, match="was opened by the parent of this process"):
            session.append(UserMessage("x"))
        monkeypatch.undo()


def test_a_forked_process_cannot_write_and_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    script = """
import os, sys
from agentcore import SessionError, SessionLockedError, UserMessage
from agentcore.sessions import Session
session = Session.create(sys.argv[1])
if os.fork() == 0:
    try:
        session.append(UserMessage("child"))
    except SessionError as error:
        print("refused:", "parent of this process" in str(error), flush=True)
    session.close()
    os._exit(0)
os.wait()
session.append(UserMessage("parent"))
try:
    Session.open(sys.argv[1])
except SessionLockedError:
    print("still locked")
print([message.content for message in Session.read(sys.argv[1]).messages()])
"""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "a")], capture_output=True, text=True, timeout=60
    )

    assert (told.stdout, told.stderr) == ("refused: True\nstill locked\n['parent']\n", "")


# --- durable --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_a_durable_session_is_synced_with_every_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "a"
    with Session.create(path, durable=durable) as session:
        session.append(UserMessage("one"))
        session.fork(tmp_path / "b").close()
    with Session.open(path, durable=durable) as session:
        session.append(UserMessage("two"))

    made, forked = [str(tmp_path), str(path), str(path)], [str(tmp_path), str(tmp_path / "b"), str(tmp_path / "b")]
    assert synced == ([*made, *forked, str(path)] if durable else [])


# --- threads --------------------------------------------------------------------------------------------------------


def test_eight_threads_append_through_one_session_and_no_line_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "a"
    each = 100
    with Session.create(path) as session:

        def write(name: int) -> None:
            for number in range(each):
                session.append(UserMessage(f"{name}:{number}:" + "x" * (100_000 if number % 10 == 0 else 100)))
                if number % 20 == 0:
                    session.messages()

        threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = session.entries()
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]]

    assert len({line["id"] for line in lines}) == 8 * each
    assert [line["id"] for line in lines] == [entry.id for entry in entries]
    assert [line["parent_id"] for line in lines] == [None, *[line["id"] for line in lines[:-1]]]
    said = [line["message"]["content"].split(":")[:2] for line in lines]
    for name in range(8):
        assert [number for who, number in said if who == str(name)] == [str(number) for number in range(each)]
    assert Session.read(path).problems == ()


def test_entries_and_problems_are_values(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        session.append(UserMessage("one", timestamp=1))
        (entry,) = session.entries()

    assert isinstance(entry, SessionEntry)
    assert "one" not in repr(entry)
    assert pickle.loads(pickle.dumps(entry)).to_dict() == entry.to_dict()
    assert SessionProblem(1, "x") == SessionProblem(1, "x")
