"""Writers that are killed, interrupted, or find the disk full: what was acknowledged is there, and it goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


# The limit on the size of a file cuts a write short, as a full disk does.
FULL = """
import json, resource, sys
from agentcore import UserMessage
from agentcore.sessions import Session

path = sys.argv[1]
session = Session.create(path)
session.append(UserMessage("before"))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
try:
    session.append(UserMessage("too long" * 200))
except OSError as error:
    print("failed", error.errno)
print([message.content for message in session.messages()])
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
session.append(UserMessage("after"))
"""


def test_an_append_that_fails_is_raised_and_the_next_one_begins_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    told = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60)
    assert told.stderr == ""
    assert told.stdout.splitlines()[0].startswith("failed")
    assert told.stdout.splitlines()[1] == "['before']"
    session = Session.read(path)

    assert texts_of(session) == ["before", "after"]
    assert problems_of(session) == [(3, "no JSON; skipped")]
    assert path.read_bytes().split(b"\n")[2].startswith(b'{"id":"')


def test_a_fork_that_fails_lets_its_file_go(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "a")
    session.append(UserMessage("x" * 5_000))
    script = """
import resource, sys
from agentcore.sessions import Session
session = Session.read(sys.argv[1] + "/a")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
try:
    session.fork(sys.argv[1] + "/b")
except OSError:
    print("failed")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
try:
    Session.create(sys.argv[1] + "/c")
except OSError:
    print("failed")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
Session.open(sys.argv[1] + "/b").close()
Session.open(sys.argv[1] + "/c").close()
"""
    told = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    session.close()

    assert (told.stdout, told.stderr) == ("failed\nfailed\n", "")


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
