"""Whatever is done to a session, its conversation is what a slow and simple reading of its entries says."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import BranchSummaryMessage, CompactionSummaryMessage, UserMessage
from agentcore.sessions import Session, jsonl

STEPS = st.lists(
    st.sampled_from(["say", "say", "say", "branch", "summary", "compact", "note", "model", "open", "fork"]), max_size=16
)


class Model:
    """The entries as (id, the parent's id, what was said, what a compaction keeps), and the leaf."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str | None, Any, list[str] | None]] = {}
        self.leaf: str | None = None

    def add(self, id: str, said: Any, kept: list[str] | None = None, *, parent: Any = "leaf") -> None:
        assert id not in self.entries
        self.entries[id] = (self.leaf if parent == "leaf" else parent, said, kept)
        self.leaf = id

    def path(self) -> list[str]:
        path, at = [], self.leaf
        while at is not None:
            path.insert(0, at)
            at = self.entries[at][0]
        return path

    def conversation(self) -> list[Any]:
        said: list[tuple[str, Any]] = []
        everything: list[tuple[str, Any]] = []
        for id in self.path():
            _, message, kept = self.entries[id]
            if message is None:
                continue
            if kept is not None:
                said = [(id, message), *(one for one in everything if one[0] in kept)]
            else:
                said.append((id, message))
            everything.append((id, message))
        return [message for _, message in said]


def grown(session: Session, model: Model, step: str, data: st.DataObject, folder: Path, number: int) -> Session:
    match step:
        case "say":
            message = UserMessage(f"message {number}")
            model.add(session.append(message), message)
        case "branch":
            place = data.draw(st.sampled_from([None, *model.entries]))
            model.add(session.branch(place), None, parent=place)
        case "summary":
            place = data.draw(st.sampled_from([None, *model.entries]))
            left = model.leaf or ""
            id = session.branch(place, f"left {number}")
            message = session.entries()[-1].message
            assert isinstance(message, BranchSummaryMessage)
            assert (message.summary, message.from_id) == (f"left {number}", left)
            model.add(id, message, parent=place)
        case "compact":
            holding = [id for id in model.path() if model.entries[id][1] is not None]
            kept = [id for id in holding if data.draw(st.booleans())]
            summary = CompactionSummaryMessage(f"summary {number}", number)
            model.add(session.append_compaction(summary, [model.entries[id][1] for id in kept]), summary, kept)
        case "note":
            model.add(session.append_custom("note", {"n": number}), None)
        case "model":
            model.add(session.append_model_change("provider", f"model-{number}"), None)
        case "open":
            session.close()
            session = Session.open(session.path)
        case "fork":
            forked = session.fork(folder / f"fork-{number}")
            session.close()
            path = model.path()
            model.entries = {id: model.entries[id] for id in path}
            session = forked
    return session


@settings(max_examples=60)
@given(steps=STEPS, data=st.data(), backwards=st.booleans())
def test_any_steps_make_the_conversation_that_the_rules_say(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject, backwards: bool
) -> None:
    folder = tmp_path_factory.mktemp("session")
    times = itertools.count(10**12, -1000 if backwards else 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "now_ms", lambda: next(times))
        session, model = Session.create(folder / "session"), Model()
        try:
            for number, step in enumerate(steps):
                session = grown(session, model, step, data, folder, number)
                assert session.leaf_id == model.leaf
                assert session.messages() == model.conversation()
                assert [one.id for one in session.entries()] == list(model.entries)
        finally:
            session.close()

    again = Session.read(session.path)
    assert again.problems == ()
    assert again.leaf_id == model.leaf
    assert again.messages() == model.conversation()
    assert [(one.id, one.parent_id) for one in again.entries()] == [(id, one[0]) for id, one in model.entries.items()]


def test_an_entry_may_be_huge(tmp_path: Path) -> None:
    text = "é漢🎙\n\u2028" * 1_000_000
    with Session.create(tmp_path / "a") as session:
        session.append(UserMessage(text))
        session.append(UserMessage("after"))

    assert [one.content for one in Session.read(tmp_path / "a").messages()] == [text, "after"]
