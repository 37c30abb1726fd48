"""A conversation with a real model on this machine, over each API that its server speaks (for development).

Skipped unless `AGENTCORE_LOCAL_MODEL` holds the address of a llama.cpp server, such as `http://127.0.0.1:8080`. The
model may be tiny: what it says does not matter, only how it comes.
"""

import os
import time
from typing import Any

import pytest

from agentcore import Agent, AgentLoopConfig, AssistantMessage, MessageUpdateEvent, Model, TextDeltaEvent

ADDRESS = os.environ.get("AGENTCORE_LOCAL_MODEL", "").rstrip("/")
BASES = {"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""}

pytestmark = pytest.mark.skipif(not ADDRESS, reason="AGENTCORE_LOCAL_MODEL names no server")


@pytest.mark.parametrize("api", BASES)
def test_three_turns_with_an_abort_in_the_middle_of_the_second(api: str) -> None:
    model = Model("local", api=api, provider="local", base_url=ADDRESS + BASES[api])
    agent = Agent(
        model, system_prompt="You are a helpful assistant.", config=AgentLoopConfig(model=model, max_tokens=40)
    )
    deltas: list[str] = []
    aborts_after: list[int] = []
    aborted_at: list[float] = []

    def listen(event: Any, signal: Any) -> None:
        if isinstance(event, MessageUpdateEvent) and isinstance(event.assistant_message_event, TextDeltaEvent):
            deltas.append(event.assistant_message_event.delta)
            if aborts_after and len(deltas) == aborts_after[0]:
                aborted_at.append(time.monotonic())
                agent.abort()

    agent.subscribe(listen)

    first = agent.prompt("Say hello in five words.")
    assert first.error is None
    assert first.text == "".join(deltas)
    assert len(deltas) > 1
    assert first.usage is not None
    assert first.usage.input > 0
    assert first.usage.output > 0

    deltas.clear()
    aborts_after.append(5)
    second = agent.prompt("Tell me a very long story about the sea.")
    took = time.monotonic() - aborted_at[0]
    assert second.stop_reason == "aborted"
    assert second.text == "".join(deltas)
    assert len(deltas) == 5
    assert took < 1.0

    deltas.clear()
    aborts_after.clear()
    third = agent.prompt("What did I ask you first?")
    assert third.error is None
    assert third.text
    roles = [message.role for message in agent.state.messages]
    assert roles == ["user", "assistant"] * 3
    report(api, first, second, third, took)


def report(api: str, first: AssistantMessage, second: AssistantMessage, third: AssistantMessage, took: float) -> None:
    print(f"\n{api}: the abort took {took * 1000:.0f} ms")
    for message in (first, second, third):
        print(f"  {message.stop_reason} ({message.raw_stop_reason}) {message.usage!r} id={message.response_id}")
        print(f"    {message.text[:100]!r}")
