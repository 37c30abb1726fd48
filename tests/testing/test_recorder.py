"""A run that was recorded once is replayed the same, asks nobody, and holds no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AgentTool,
    ModelContext,
    ProviderContent,
    RequestRetryEvent,
    StreamOptions,
    Usage,
    UserMessage,
    run_agent_loop,
)
from agentcore.testing import DemoServer, call, failure, reply, scripted, scripted_model, thinking
from agentcore.testing.conformance import check_events
from agentcore.testing.recorder import Recorder, replay
from agentcore.toolkit import create_bash_tool, create_read_tool

ECHO = AgentTool("echo", "Echo", "Say it again.", {"type": "object"}, lambda *arguments: "ok")


def run(stream_fn: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), **options)
    messages = run_agent_loop("hi", AgentContext("be brief", tools=[ECHO]), config, events.append, stream_fn=stream_fn)
    return messages, events


def timeless(value: Any) -> Any:
    text = json.dumps(value.to_dict() if hasattr(value, "to_dict") else [one.to_dict() for one in value])
    return json.loads(text, object_hook=lambda data: {k: v for k, v in data.items() if k != "timestamp"})


def test_a_replayed_run_is_the_recorded_one_event_for_event(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    script = scripted(
        reply(
            RequestRetryEvent(1, 0.0, "busy"),
            thinking("hm"),
            "Let me see. ",
            ProviderContent("scripted", "scripted", {"type": "search"}),
            call("echo", x=1),
            chunk=3,
            usage=Usage(input=5, output=7),
        ),
        reply("It is ok."),
    )
    with Recorder(path, script) as recorder:
        messages, events = run(recorder)
    again, events_again = run(replay(path))

    assert timeless(again) == timeless(messages)
    assert timeless(events_again) == timeless(events)
    partials = [event.message.content for event in events if event.type == "message_update"]
    assert [event.message.content for event in events_again if event.type == "message_update"] == partials


def test_a_replayed_response_keeps_to_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, scripted(reply("Hi", call("f", x=[1, 2]), chunk=1))) as recorder:
        list(recorder(scripted_model(), ModelContext(), StreamOptions()))
    check_events(replay(path)(scripted_model(), ModelContext(), StreamOptions()))


def test_a_failed_response_is_replayed_as_one(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, scripted(failure("too busy", "half an ans"))) as recorder:
        run(recorder)
    messages, _ = run(replay(path))
    assert messages[-1].stop_reason == "error"
    assert messages[-1].error.message == "too busy"
    assert messages[-1].text == "half an ans"


def test_a_real_http_run_is_replayed_without_its_server(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n", "utf-8")
    path = tmp_path / "recording.jsonl.gone"
    from agentcore import stream_response
    from agentcore.toolkit import BashToolOptions, ReadToolOptions

    tools = [create_bash_tool(BashToolOptions(cwd=tmp_path)), create_read_tool(ReadToolOptions(cwd=tmp_path))]
    context = AgentContext(tools=tools)
    with DemoServer() as server:
        model = server.model
        config = AgentLoopConfig(model=model, api_key="sk-recorder-secret", headers={"x-secret": "sk-header-secret"})
        with Recorder(tmp_path / "recording", stream_response) as recorder:
            messages = run_agent_loop("Go", context, config, lambda event: None, stream_fn=recorder)
    again = run_agent_loop(
        "Go", context, config, lambda event: None, stream_fn=replay(tmp_path / "recording", strict=False)
    )
    assert timeless(again)[-1]["content"] == timeless(messages)[-1]["content"]
    assert not path.exists()
    text = (tmp_path / "recording").read_text("utf-8")
    assert "secret" not in text


def test_a_request_that_differs_is_refused_saying_where(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, scripted("one")) as recorder:
        list(recorder(scripted_model(), ModelContext("", [UserMessage("a")]), StreamOptions()))
    for context, what in [
        (ModelContext("", [UserMessage("b")]), "messages"),
        (ModelContext("be kind", [UserMessage("a")]), "system_prompt"),
        (ModelContext("", [UserMessage("a")], [ECHO]), "tools"),
    ]:
        with pytest.raises(AssertionError, match=f"`{what}`"):
            replay(path)(scripted_model(), context, StreamOptions())
    with pytest.raises(AssertionError, match="`model`"):
        replay(path)(scripted_model(id="other"), ModelContext("", [UserMessage("a")]), StreamOptions())
    assert list(replay(path, strict=False)(scripted_model(), ModelContext(), StreamOptions()))


def test_a_recording_that_is_used_up_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, scripted("one")) as recorder:
        run(recorder)
    stream_fn = replay(path)
    run(stream_fn)
    messages, _ = run(stream_fn)
    assert "has 1 responses, and one more was asked for" in messages[-1].error_message


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("mine", "utf-8")
    with pytest.raises(FileExistsError):
        Recorder(path, scripted())
    assert path.read_text("utf-8") == "mine"


def test_a_response_that_is_not_read_to_its_end_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, scripted("one")) as recorder:
        next(iter(recorder(scripted_model(), ModelContext(), StreamOptions())))
    assert path.read_text("utf-8") == ""
