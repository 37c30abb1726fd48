"""Writers that are killed, interrupted, or find the disk full: what was acknowledged is there, and it goes on."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcore import UserMessage
from agentcore.sessions import Session
from tests.sessions.session_support import problems_of, texts_of

KILLS = 200

# Forks, so that a new writer costs nothing: the parent has imported all there is to import.
KILLED = """
import json, os, random, signal, sys
from agentcore import UserMessage
from agentcore.sessions import Session

folder, kills = sys.argv[1], int(sys.argv[2])
path = acknowledged = None
count = torn = 0

def write(pipe):
    with Session.open(path) as session:
        while True:
            size = random.choices([10, 200, 3_000, 30_000], [50, 40, 9, 1])[0]
            os.write(pipe, session.append(UserMessage("x" * size)).encode() + b"\\n")

def check():
    session = Session.read(path)
    ids = [entry.id for entry in session.entries()]
    assert not set(acknowledged) - set(ids), "lost"
    assert [entry.parent_id for entry in session.entries()] == [None, *ids[:-1]], "more than one branch"
    assert sum(message.content == "after the kill" for message in session.messages()) == 10
    assert {problem.what for problem in session.problems} <= {"no JSON; skipped"}
    return len(acknowledged), len(session.problems)

for number in range(kills):
    if number % 10 == 0:
        path, acknowledged = f"{folder}/{number}", []
        Session.create(path).close()
    reader, writer = os.pipe()
    random.seed(number)
    child = os.fork()
    if child == 0:
        try:
            write(writer)
        finally:
            os._exit(1)
    os.close(writer)
    told = os.read(reader, 13)  # it is under way
    for _ in range(random.randrange(3)):
        told += os.read(reader, 13)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with open(reader, "rb") as rest:
        told += rest.read()
    acknowledged += told.decode().split()
    with Session.open(path) as session:
        session.append(UserMessage("after the kill"))
        assert session.messages()[-1].content == "after the kill"
    if number % 10 == 9:
        count, torn = count + check()[0], torn + check()[1]
print(json.dumps({"acknowledged": count, "torn": torn}))
"""


def test_no_acknowledged_entry_is_lost_when_the_writer_is_killed_again_and_again(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert told.returncode == 0, told.stderr
    outcome = json.loads(told.stdout)

    assert outcome["acknowledged"] >= KILLS


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Cut every write short that would make a file larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_append_that_fails_is_raised_and_the_next_one_begins_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        session.append(UserMessage("before"))
        with no_file_larger_than(1_000), pytest.raises(OSError, match="too large"):
            session.append(UserMessage("too long" * 200))
        assert texts_of(session) == ["before"]
        session.append(UserMessage("after"))
    again = Session.read(path)

    assert texts_of(again) == texts_of(session) == ["before", "after"]
    assert problems_of(again) == [(3, "no JSON; skipped")]
    assert path.stat().st_size > 1_000
    assert path.read_bytes().split(b"\n")[2].startswith(b'{"id":"')


def test_a_session_that_cannot_be_begun_or_forked_lets_its_file_go(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        session.append(UserMessage("x" * 5_000))
        with no_file_larger_than(1_000), pytest.raises(OSError, match="too large"):
            session.fork(tmp_path / "b")
        with no_file_larger_than(10), pytest.raises(OSError, match="too large"):
            Session.create(tmp_path / "c")

    for name, problems in (
        ("b", [(2, "cut off before its end; skipped")]),
        ("c", [(1, "cut off before its end; skipped")]),
    ):
        with Session.open(tmp_path / name) as again:
            assert problems_of(again) == problems
            again.append(UserMessage("fine"))
        assert texts_of(Session.read(tmp_path / name)) == ["fine"]


def test_an_id_is_never_used_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["one", "one", "one", "two"])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(drawn))
    with Session.create(tmp_path / "a") as session:
        ids = [session.append(UserMessage("x")), session.append(UserMessage("y"))]

    assert ids == ["one", "two"]


def test_lines_are_appended_and_nothing_before_them_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        for number in range(20):
            before = path.read_bytes()
            session.append(UserMessage(str(number)))
            if number % 3 == 2:
                session.branch(session.entries()[0].id, "left")
            assert path.read_bytes().startswith(before)
            assert os.path.getsize(path) > len(before)
