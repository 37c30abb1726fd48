"""An interrupt while calls on workers have their grace to return after an abort."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentcore import AbortController, AgentContext, AgentLoopConfig, AgentTool, ToolExecutionUpdateEvent
from agentcore.loop import drive, new_run
from agentcore.messages import AgentMessage, ToolResultMessage, UserMessage
from agentcore.testing import assert_valid_transcript, call, reply, scripted, scripted_model

WAIT = 10.0


def test_an_interrupt_during_the_grace_gives_no_more_of_it_and_answers_every_call() -> None:
    controller, stuck, let_go = AbortController(), threading.Event(), threading.Event()

    def never_stops(*arguments: Any) -> str:
        stuck.set()
        let_go.wait(WAIT)
        return "too late"

    def reports_after_the_abort(id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        stuck.wait(WAIT)
        controller.abort("enough")
        signal.wait(WAIT)
        on_update("stopping")
        let_go.wait(WAIT)
        return "too late"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            raise KeyboardInterrupt

    tools = [
        AgentTool("stuck", "Stuck", "Never stops.", {"type": "object"}, never_stops),
        AgentTool("report", "Report", "Reports.", {"type": "object"}, reports_after_the_abort),
    ]
    model = scripted(reply(call("stuck", id="a"), call("report", id="b")))
    messages: list[AgentMessage] = []
    run = new_run(
        AgentContext(tools=tools),
        AgentLoopConfig(model=scripted_model(), signal=controller.signal, abort_grace=60.0),
        emit,
        None,
        model,
        messages,
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            drive(run, [UserMessage("go")])
    finally:
        let_go.set()

    assert_valid_transcript(messages)
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    assert [(result.tool_call_id, result.is_error) for result in results] == [("a", True), ("b", True)]
    assert "too late" not in results[0].text + results[1].text
