"""A session is a tree: branches, forks and compactions, and which conversation they make."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcore import AgentMessage, BranchSummaryMessage, CompactionSummaryMessage, UserMessage
from agentcore.sessions import Session
from tests.sessions.session_support import session_of, texts_of


def made(tmp_path: Path, *texts: str) -> tuple[Session, list[str]]:
    """Return a new session of user messages, and the ids of its entries."""
    session = Session.create(tmp_path / "a")
    return session, [session.append(UserMessage(text, timestamp=1)) for text in texts]


def reopened(session: Session) -> Session:
    session.close()
    return Session.open(session.path)


# --- branches -------------------------------------------------------------------------------------------------------


def test_a_branch_goes_on_from_an_earlier_entry_and_the_left_one_stays(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two", "three")
    at = session.branch(ids[0])

    assert texts_of(session) == ["one"]
    session.append(UserMessage("other"))
    assert texts_of(session) == ["one", "other"]
    session.branch(ids[2])
    assert texts_of(session) == ["one", "two", "three"]
    entries = session.entries()
    session.close()
    assert [(entry.kind, entry.parent_id) for entry in entries] == [
        ("message", None),
        ("message", ids[0]),
        ("message", ids[1]),
        ("branch", ids[0]),
        ("message", at),
        ("branch", ids[2]),
    ]
    assert entries[3].message is None


def test_the_leaf_stays_where_a_branch_put_it_when_the_file_is_opened_again(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two")
    session.branch(ids[0])
    with reopened(session) as again:
        assert texts_of(again) == ["one"]
        assert again.leaf_id == session.leaf_id
        again.append(UserMessage("new"))
    with reopened(again) as last:
        assert texts_of(last) == ["one", "new"]


def test_a_branch_may_begin_before_the_first_entry(tmp_path: Path) -> None:
    session, _ = made(tmp_path, "one", "two")
    session.branch(None)
    session.append(UserMessage("anew"))
    with reopened(session) as again:
        assert texts_of(again) == ["anew"]
        again.branch(None, "They said one and two.")
        assert texts_of(again) == ["They said one and two."]


def test_a_branch_with_a_summary_says_what_was_left(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two", "three")
    at = session.branch(ids[0], "Two and three led nowhere.")
    session.append(UserMessage("other"))
    with reopened(session) as again:
        message = again.messages()[1]
        assert isinstance(message, BranchSummaryMessage)
        assert (message.summary, message.from_id) == ("Two and three led nowhere.", ids[2])
        assert texts_of(again) == ["one", "Two and three led nowhere.", "other"]
        entry = again.entries()[3]
        assert (entry.id, entry.kind, entry.message) == (at, "branch_summary", message)
        assert entry.timestamp >= message.timestamp


def test_a_branch_of_a_session_without_entries_has_left_nothing(tmp_path: Path) -> None:
    session, _ = made(tmp_path)
    session.branch(None, "nothing")
    (message,) = session.messages()
    session.close()

    assert isinstance(message, BranchSummaryMessage)
    assert message.from_id == ""


def test_a_branch_from_an_unknown_entry_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one")
    with pytest.raises(KeyError, match="the session has no entry 'nope'"):
        session.branch("nope")

    assert session.leaf_id == ids[0]
    session.close()


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_session_of_its_own_with_the_current_branch(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two", "three")
    session.branch(ids[1])
    session.append(UserMessage("other"))
    session.append_model_change("anthropic", "m")
    with session, session.fork(tmp_path / "forks" / "b") as forked:
        assert forked.id != session.id
        assert forked.cwd == session.cwd
        assert texts_of(forked) == ["one", "two", "other"]
        assert forked.leaf_id == session.leaf_id
        forked.append(UserMessage("only there"))
        session.append(UserMessage("only here"))
        assert [entry.kind for entry in forked.entries()] == [
            "message", "message", "branch", "message", "model_change", "message"
        ]  # fmt: skip
    again = Session.read(tmp_path / "forks" / "b")

    assert texts_of(again) == ["one", "two", "other", "only there"]
    assert [entry.to_dict() for entry in again.entries()] == [entry.to_dict() for entry in forked.entries()]
    assert texts_of(Session.read(session.path)) == ["one", "two", "other", "only here"]


def test_a_session_that_was_only_read_can_be_forked_and_so_can_an_empty_one(tmp_path: Path) -> None:
    session = Session.read(session_of(tmp_path / "a", "one"))
    with session.fork(tmp_path / "b") as forked:
        forked.append(UserMessage("two"))
    with Session.read(session_of(tmp_path / "c")).fork(tmp_path / "d") as empty:
        assert texts_of(empty) == []

    assert texts_of(Session.read(tmp_path / "b")) == ["one", "two"]


def test_a_fork_over_an_existing_session_is_refused(tmp_path: Path) -> None:
    session, _ = made(tmp_path, "one")
    with session:
        other = session_of(tmp_path / "b", "other")
        for path in (other, session.path):
            with pytest.raises(FileExistsError):
                session.fork(path)

    assert texts_of(Session.read(other)) == ["other"]


# --- compactions ----------------------------------------------------------------------------------------------------


def compacted(session: Session, summary: str, kept: list[AgentMessage]) -> str:
    return session.append_compaction(CompactionSummaryMessage(summary, 100, timestamp=2), kept)


def test_a_compaction_stands_for_what_came_before_but_for_what_it_keeps(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two", "three", "four")
    compacted(session, "S1", session.messages()[2:])
    session.append(UserMessage("five"))

    assert texts_of(session) == ["S1", "three", "four", "five"]
    with reopened(session) as again:
        assert texts_of(again) == ["S1", "three", "four", "five"]
        assert [getattr(entry.message, "content", None) for entry in again.entries()] == [
            "one", "two", "three", "four", None, "five"
        ]  # fmt: skip
        assert again.entries()[4].data == {"kept": ids[2:]}
        compacted(again, "S2", again.messages()[2:])
        assert texts_of(again) == ["S2", "four", "five"]
    with reopened(again) as last:
        assert texts_of(last) == ["S2", "four", "five"]


def test_a_compaction_may_keep_what_an_earlier_one_left_out(tmp_path: Path) -> None:
    session, _ = made(tmp_path, "one", "two")
    first = session.messages()[0]
    compacted(session, "S1", [])
    assert texts_of(session) == ["S1"]
    compacted(session, "S2", [first])

    with reopened(session) as again:
        assert texts_of(again) == ["S2", "one"]


def test_a_branch_from_before_a_compaction_is_not_compacted(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one", "two", "three")
    at = compacted(session, "S1", session.messages()[2:])
    session.branch(ids[1])
    assert texts_of(session) == ["one", "two"]
    session.branch(at)

    assert texts_of(session) == ["S1", "three"]
    session.close()


def test_what_a_compaction_keeps_is_found_by_object_and_else_by_value(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "same", "same", "other")
    twin = session.messages()[1]
    again_the_same = session.append(twin)
    with reopened(session) as again:
        same = UserMessage("same", timestamp=1)
        compacted(again, "S1", [same, same, again.messages()[3]])

        assert again.entries()[4].data == {"kept": [ids[0], ids[1], again_the_same]}
        assert texts_of(again) == ["S1", "same", "same", "same"]


def test_a_compaction_cannot_keep_what_is_not_there(tmp_path: Path) -> None:
    session, _ = made(tmp_path, "one")
    with pytest.raises(ValueError, match="is no message of the session"):
        compacted(session, "S1", [UserMessage("two")])
    with pytest.raises(ValueError, match="is no message of the session"):
        compacted(session, "S1", [*session.messages(), *session.messages()])

    assert texts_of(session) == ["one"]
    session.close()


@pytest.mark.parametrize("kept", [None, "text", [1, None, "gone"], {}])
def test_a_compaction_whose_list_is_damaged_keeps_what_can_be_found(tmp_path: Path, kept: Any) -> None:
    session, _ = made(tmp_path, "one")
    compacted(session, "S1", session.messages())
    session.close()
    lines = session.path.read_text("utf-8").splitlines()
    data = json.loads(lines[-1])
    data["kept"] = kept
    session.path.write_text("\n".join([*lines[:-1], json.dumps(data)]) + "\n", "utf-8")

    assert texts_of(Session.read(session.path)) == ["S1"]


# --- other entries --------------------------------------------------------------------------------------------------


def test_notes_are_entries_and_no_part_of_the_conversation(tmp_path: Path) -> None:
    session, ids = made(tmp_path, "one")
    change = session.append_model_change("anthropic", "claude")
    note = session.append_custom("bookmark", {"at": Path("x")})
    session.append(UserMessage("two"))
    with reopened(session) as again:
        assert texts_of(again) == ["one", "two"]
        assert [(entry.id, entry.parent_id, entry.kind, entry.data) for entry in again.entries()[1:3]] == [
            (change, ids[0], "model_change", {"provider": "anthropic", "model": "claude"}),
            (note, change, "custom", {"custom_type": "bookmark", "data": {"at": "x"}}),
        ]
