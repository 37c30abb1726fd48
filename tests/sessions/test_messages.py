"""What is stored is what was said: every message class, every text, and the nearest thing to details of any kind."""

import dataclasses
import datetime as dt
import enum
import json
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from agentcore import (
    Agent,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    CustomMessage,
    PartialMessage,
    ToolResultMessage,
    UserMessage,
)
from agentcore.messages import message_from_dict
from agentcore.partial import MessageJournal
from agentcore.sessions import Session
from agentcore.testing import call, reply, scripted, scripted_model, thinking
from tests.sessions.session_support import HARD_TEXTS, every_message

FIELDS = {
    "user": {"role", "content", "timestamp"},
    "assistant": {"role", "content", "api", "provider", "model", "usage", "stop_reason", "error", "response_id"}
    | {"raw_stop_reason", "timestamp"},
    "toolResult": {"role", "tool_call_id", "tool_name", "content", "details", "usage", "added_tool_names", "is_error"}
    | {"timestamp"},
    "text": {"type", "text", "signature"},
    "thinking": {"type", "thinking", "signature", "redacted"},
    "tool": {"type", "id", "name", "arguments", "thought_signature"},
}


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS)
def test_every_message_class_comes_back_equal(tmp_path: Path, text: str) -> None:
    messages = every_message(text)
    if len(text) > 1_000_000:
        messages = messages[:1] + messages[4:6]
    path = tmp_path / "a"
    with Session.create(path) as session:
        for message in messages:
            session.append(message)
        assert all(stored is given for stored, given in zip(session.messages(), messages, strict=True))
    again = Session.read(path)

    assert again.messages() == messages
    assert again.problems == ()
    assert path.read_bytes().count(b"\n") == len(messages) + 1
    assert [entry.kind for entry in again.entries()] == [
        "branch_summary" if message.role == "branchSummary" else "message" for message in messages
    ]


def test_text_is_written_for_people_and_only_what_utf8_cannot_hold_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        session.append(UserMessage("naïve ✅ \u2028"))
        session.append(UserMessage("naïve \ud800"))
    _, plain, escaped = path.read_bytes().split(b"\n")[:3]

    assert "naïve ✅ \u2028".encode() in plain
    assert rb"na\u00efve \ud800" in escaped


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    where: Path


@attrs.frozen
class Size:
    n: int


class Stubborn:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


def endless() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("details", "stored"),
    [
        (dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc), "2024-01-02T00:00:00+00:00"),
        (Path("/a/b"), "/a/b"),
        ({"b", "a"}, ["a", "b"]),
        (b"\x00\xff", r"b'\x00\xff'"),
        (Point(1, Path("p")), {"x": 1, "where": "p"}),
        (Size(3), {"n": 3}),
        (Colour.RED, "red"),
        ((1, 2.5, None, True), [1, 2.5, None, True]),
        ([float("nan"), float("inf")], ["nan", "inf"]),
        ({1: "a", None: "b", (2, 3): "c"}, {"1": "a", "None": "b", "(2, 3)": "c"}),
        (Odd(), "<odd>"),
        (Stubborn(), "<Stubborn>"),
        (10**5000, hex(10**5000)),
        (endless(), {"self": "…"}),
        ("\ud800", "\ud800"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_details_that_json_cannot_hold_are_stored_as_the_nearest_thing(
    tmp_path: Path, details: Any, stored: Any
) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        session.append(ToolResultMessage("c", "t", "exact", details=details))
        session.append(CustomMessage("note", "exact", details=details))
        session.append_custom("mine", details)
    again = Session.read(path)

    assert [message.details for message in again.messages()] == [stored, stored]  # type: ignore[attr-defined]
    assert [message.content for message in again.messages()][1] == "exact"  # type: ignore[attr-defined]
    assert again.entries()[2].data == {"custom_type": "mine", "data": stored}
    assert again.problems == ()


@attrs.frozen
class Note:
    """A message of an application, whose dict form is not quite JSON."""

    role: ClassVar[str] = "note"
    text: str
    timestamp: int = 7

    def to_dict(self) -> dict[str, Any]:
        return {"role": self.role, "text": self.text, "where": Path("/x"), "timestamp": self.timestamp}


def test_a_message_of_an_application_comes_back_as_one_that_writes_itself_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Session.create(path) as session:
        session.append(Note("hi"))
        assert session.messages() == [Note("hi")]
    (message,) = Session.read(path).messages()

    assert message.to_dict() == {"role": "note", "text": "hi", "where": "/x", "timestamp": 7}
    assert isinstance(message, CustomMessage)


@pytest.mark.parametrize("given", ["text", None, UserMessage, {"role": "user"}, 7])
def test_what_is_no_message_is_refused_and_nothing_is_written(tmp_path: Path, given: Any) -> None:
    with Session.create(tmp_path / "a") as session:
        content = (tmp_path / "a").read_bytes()
        with pytest.raises(TypeError, match="a session holds messages"):
            session.append(given)

        assert (tmp_path / "a").read_bytes() == content


def test_a_message_that_is_still_streaming_is_refused(tmp_path: Path) -> None:
    partial = MessageJournal().partial()
    assert isinstance(partial, PartialMessage)
    with Session.create(tmp_path / "a") as session, pytest.raises(TypeError, match="PartialMessage"):
        session.append(partial)


def test_a_message_that_cannot_be_turned_into_data_leaves_no_trace(tmp_path: Path) -> None:
    class Broken(Note):
        def to_dict(self) -> dict[str, Any]:
            raise RuntimeError("broken")

    with Session.create(tmp_path / "a") as session:
        with pytest.raises(RuntimeError, match="broken"):
            session.append(Broken("x"))
        session.append(UserMessage("fine"))

        assert len(session.entries()) == 1
        assert Session.read(tmp_path / "a").problems == ()


def documented_only(data: Any) -> list[str]:
    """Return the keys of messages and blocks that are none of their documented fields."""
    tag = data.get("role") or data.get("type")
    found = [f"{tag}.{key}" for key in data if key not in FIELDS[tag]]
    blocks = data["content"] if isinstance(data["content"], list) else []
    return found + [f"{block['type']}.{key}" for block in blocks for key in block if key not in FIELDS[block["type"]]]


def test_nothing_that_only_streaming_needs_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "a"
    answer = reply(thinking("hm"), "Let me see.", call("look", id="c", where={"x": [1, 2, 3]}), chunk=1)
    tool = AgentTool("look", "Look", "d", {"type": "object"}, lambda *given: AgentToolResult("seen", {"n": 1}))
    with Session.create(path) as session:
        agent = Agent(scripted_model(), tools=[tool], stream_fn=scripted(answer, "Done."), session=session)
        agent.prompt("look")
    written = [json.loads(line)["message"] for line in path.read_text("utf-8").splitlines()[1:]]

    assert [message["role"] for message in written] == ["user", "assistant", "toolResult", "assistant"]
    assert [key for message in written for key in documented_only(message)] == []
    assert written[1]["content"][2] == {
        "type": "tool",
        "id": "c",
        "name": "look",
        "arguments": {"where": {"x": [1, 2, 3]}},
    }
    assert [message_from_dict(data) for data in written] == agent.messages
    assert isinstance(agent.messages[1], AssistantMessage)
