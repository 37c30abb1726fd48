"""A session file that something has happened to: opened as far as it can be, reported, never overwritten."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import SessionCorruptError, SessionError, UserMessage
from agentcore.sessions import Session
from tests.sessions.session_support import every_message, problems_of, session_of, texts_of

HEADER = b'{"type":"session","version":1,"id":"s","created":1,"cwd":"/"}\n'


def entry(id: str, parent_id: Any, text: str = "", **fields: Any) -> bytes:
    """Return the line of a message."""
    message = {"role": "user", "content": text or id, "timestamp": 1}
    line = {"id": id, "parent_id": parent_id, "timestamp": 1, "kind": "message", "message": message, **fields}
    return json.dumps(line).encode() + b"\n"


def check_goes_on(path: Path, before: list[Any]) -> Session:
    """Open a file, see that it holds the messages, add one, and see that nothing but that was added to it."""
    content = path.read_bytes()
    with Session.open(path) as session:
        assert texts_of(session) == before
        session.append(UserMessage("new"))
    after = path.read_bytes()
    assert after.startswith(content)
    again = Session.read(path)
    assert texts_of(again) == [*before, "new"]
    assert [one.id for one in again.entries()] == [one.id for one in session.entries()]
    return session


# --- cut off --------------------------------------------------------------------------------------------------------


def test_a_file_cut_off_anywhere_holds_every_line_before_the_cut_and_goes_on(tmp_path: Path) -> None:
    whole = session_of(tmp_path / "whole", "first", "zwölf", "third").read_bytes()
    ends = [at for at in range(len(whole)) if whole[at : at + 1] == b"\n"]
    path = tmp_path / "cut"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        # A line is whole without its LF, too.
        lines = sum(cut >= end for end in ends)
        session = check_goes_on(path, ["first", "zwölf", "third"][: max(0, lines - 1)])

        torn = cut not in (0, *ends, *(end + 1 for end in ends))
        expected = [(lines + 1, "cut off before its end; skipped")] if torn else []
        assert problems_of(session) == expected
        assert len(problems_of(Session.read(path))) == len(expected)


def test_a_header_torn_again_and_again_is_written_once_more(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"typ\n{"type":"session","vers\n{')

    check_goes_on(path, [])

    assert [line for line, _ in problems_of(Session.read(path))] == [1, 2, 3]
    assert Session.read(path).id


# --- damaged inside -------------------------------------------------------------------------------------------------


def test_lines_that_cannot_be_used_are_skipped_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(
        HEADER
        + entry("a", None)
        + b"\n   \r\n"  # blank lines are no problem
        + b"null\n"
        + b"\x00" * 4096
        + b"\n"
        + entry("b", "a")
        + b'{"id":"c","parent_id":"b"\n'
        + b"[1]\n7\n"
        + entry("b", "a", "once more")
        + b'{"id":"","timestamp":1,"kind":"message"}\n'
        + b'{"id":"d","timestamp":1}\n{"id":"d","kind":"custom"}\n{"id":"d","parent_id":7}\n'
        + b'{"id":"d","timestamp":1,"kind":"message","message":{"role":"user"}}\n'
        + b'{"id":"d","timestamp":1,"kind":"message","message":{"role":"user","content":"x","timestamp":"x"}}\n'
        + b'{"id":"d","timestamp":1,"kind":"message","message":{"role":"assistant","content":[],"usage":{"input":"x"}}}\n'
        + b'{"id":"d","timestamp":1,"kind":"message"}\n'
        + b'{"id":"d","timestamp":1,"kind":"compaction","message":{"role":"user","content":"x"}}\n'
        + HEADER
        + b"[" * 100_000
        + b"\n"
        + entry("e", "b")
        + entry("f", "gone")
    )
    session = check_goes_on(path, ["a", "b", "e", "f"])

    problems = dict(problems_of(session))
    skipped = {
        5: "no entry but null; skipped",
        6: "no JSON; skipped",
        8: "no JSON; skipped",
        9: "no entry but list; skipped",
        10: "no entry but int; skipped",
        11: "the id 'b' was used before; skipped",
        12: "no entry (an entry needs an `id`); skipped",
        13: "no entry (an entry needs a `kind`); skipped",
        14: "no entry (an entry needs a `timestamp`); skipped",
        15: "no entry (`parent_id` is text or null); skipped",
        16: "no entry (a `UserMessage` needs `content`); skipped",
        17: "no entry (the `timestamp` of a message is a number); skipped",
        19: "no entry (a message is a dict, not NoneType); skipped",
        20: "no entry (a compaction needs its summary); skipped",
        21: "a second header; skipped",
        22: "no JSON; skipped",
        24: "its parent 'gone' is missing; taken to follow the entry before it",
    }
    assert problems.pop(18).startswith("no entry (")
    assert problems == skipped
    assert repr(session.problems[0]) == "SessionProblem(line=5, what='no entry but null; skipped')"


@pytest.mark.parametrize("id", [b"5", b"true", b"[]", b'""', b"null"])
def test_an_entry_whose_id_is_no_text_is_skipped(tmp_path: Path, id: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + b'{"id":%s,"parent_id":null,"timestamp":1,"kind":"branch"}\n' % id + entry("a", None))
    session = Session.read(path)

    assert [one.id for one in session.entries()] == ["a"]
    assert [problem.line for problem in session.problems] == [2]


def test_a_bad_byte_costs_a_character_and_not_a_message(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + entry("a", None, "x" * 1000 + "GOOD").replace(b"GOOD", b"G\xff\xfeD") + entry("b", "a"))

    session = check_goes_on(path, ["x" * 1000 + "G\ufffd\ufffdD", "b"])

    assert problems_of(session) == [(2, "bytes that are no UTF-8; they were replaced")]


def test_a_bad_byte_in_a_line_that_is_no_entry_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + b"\xff\n" + b'"\xff"\n' + entry("a", None))

    assert problems_of(Session.read(path)) == [(2, "no JSON; skipped"), (3, "no entry but str; skipped")]


@pytest.mark.parametrize("damage", [b"\x00" * 20, b"\xff" * 20, b"", b"null", b"{"])
def test_a_session_without_its_header_is_still_one_and_gets_a_new_header(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(damage + b"\n" + entry("a", None) + entry("b", "a"))

    session = check_goes_on(path, ["a", "b"])

    assert problems_of(session)[0] == (1, "the header is missing")
    again = Session.read(path)
    assert again.id == session.id
    assert (1, "the header is missing") not in problems_of(again)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + entry("a", None) + entry("b", "a")).replace(b"\n", b"\r\n"))

    session = check_goes_on(path, ["a", "b"])

    assert (session.id, session.problems) == ("s", ())


def test_a_message_without_a_time_has_that_of_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + entry("a", None, message={"role": "user", "content": "x"}))

    assert [message.timestamp for message in Session.read(path).messages()] == [1]


def test_a_missing_line_is_bridged_and_the_branches_beside_it_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + entry("a", None) + entry("b", "a") + entry("d", "c") + entry("e", "d") + entry("f", "a"))
    session = Session.read(path)

    assert [(one.id, one.parent_id) for one in session.entries()] == [
        ("a", None),
        ("b", "a"),
        ("d", "b"),
        ("e", "d"),
        ("f", "a"),
    ]
    assert texts_of(session) == ["a", "f"]


def test_a_parent_that_comes_later_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(HEADER + entry("a", "b") + entry("b", "a"))

    assert texts_of(Session.read(path)) == ["a", "b"]
    assert problems_of(Session.read(path))[0][0] == 2


def test_a_newer_version_is_read_as_far_as_it_is_known_and_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = HEADER.replace(b'"version":1', b'"version":7,"more":[]') + entry("a", None, extra=1)
    content += b'{"id":"n","parent_id":"a","timestamp":2,"kind":"novelty","what":[1]}\n' + entry("b", "n")
    path.write_bytes(content)
    with Session.open(path) as session:
        assert texts_of(session) == ["a", "b"]
        assert problems_of(session) == [
            (1, "written by a newer version (7; this one knows 1); read as far as it is known")
        ]
        for act in (lambda: session.append(UserMessage("x")), lambda: session.branch("a")):
            with pytest.raises(SessionError, match="can be read but not added to"):
                act()

    assert path.read_bytes() == content
    assert session.entries()[1].to_dict() == json.loads(content.splitlines()[2])


def test_entries_of_kinds_and_roles_that_are_not_known_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    foreign = {"role": "robot", "beep": {"n": 1}, "timestamp": 3}
    path.write_bytes(
        HEADER + entry("a", None) + entry("b", "a", message=foreign) + entry("c", "b", kind="novelty") + entry("d", "c")
    )
    with Session.open(path) as session, session.fork(tmp_path / "b") as forked:
        assert session.problems == ()
        assert session.messages()[1].to_dict() == foreign
        assert texts_of(session)[-1] == "d"
        expected = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
        assert [one.to_dict() for one in forked.entries()] == expected

    assert [json.loads(line) for line in (tmp_path / "b").read_bytes().splitlines()[1:]] == expected


# --- anything -------------------------------------------------------------------------------------------------------


def test_a_run_of_nul_bytes_anywhere_costs_no_other_line(tmp_path: Path) -> None:
    texts = [f"message {number}" for number in range(6)]
    whole = session_of(tmp_path / "whole", *texts).read_bytes()
    path = tmp_path / "a"
    for begin in range(0, len(whole), 7):
        for length in (1, 30, 400):
            end = min(len(whole), begin + length)
            damaged = whole[:begin] + b"\x00" * (end - begin) + whole[end:]
            path.write_bytes(damaged)
            untouched = {line for line in whole.split(b"\n") if line} & set(damaged.split(b"\n"))
            left = [text for text in texts if any(f'"{text}"'.encode() in line for line in untouched)]
            try:
                session = Session.read(path)
            except SessionCorruptError:
                assert not left
                continue
            assert [text for text in texts_of(session) if text in left] == left
            assert session.problems


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_to_a_file_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    random_ = random.Random(seed)
    folder = tmp_path_factory.mktemp("fuzz")
    with Session.create(folder / "whole") as session:
        for message in every_message("täxt"):
            session.append(message)
        session.branch(session.entries()[3].id, "left")
    content = bytearray((folder / "whole").read_bytes())
    for _ in range(random_.randint(1, 8)):
        at = random_.randrange(len(content))
        what = random_.randrange(4)
        if what == 0:
            content[at] = random_.randrange(256)
        elif what == 1:
            del content[at : at + random_.randint(1, 300)]
        elif what == 2:
            content[at:at] = content[random_.randrange(len(content)) :][: random_.randint(1, 300)]
        else:
            content[at:at] = random_.choice([b"\n", b"null", b"{", b'"', b"1", b"[]", b"{}", b"\xc3", b"\\ud800"])
    path = folder / "a"
    path.write_bytes(content)
    try:
        with Session.open(path) as session:
            before = session.messages()
            session.append(UserMessage("new"))
    except SessionCorruptError:
        assert path.read_bytes() == content
        return
    assert path.read_bytes().startswith(content)
    assert Session.read(path).messages() == [*before, session.messages()[-1]]
