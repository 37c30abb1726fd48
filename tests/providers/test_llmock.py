"""Agents run against `llmock`, a server that imitates the providers and was written by nobody here."""

from collections.abc import Callable
from typing import Any

import pytest

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AgentTool,
    Model,
    ToolExecutionEndEvent,
    run_agent_loop,
)

SERVED = [
    ("openai-completions", "openai"),
    ("openai-completions", "mistral"),
    ("openai-completions", "groq"),
    ("openai-completions", "together"),
    ("openai-completions", "perplexity"),
    ("openai-completions", "xai"),
]
"""The APIs it speaks, and the providers whose imitation speaks each."""


@pytest.fixture
def model_of(llmock: Any) -> Callable[[str, str], Model]:
    def make(api: str, provider: str) -> Model:
        return Model("mock-model", api=api, provider=provider, base_url=llmock.base_url(provider))

    return make


def weather_tool(asked: list[dict[str, Any]]) -> AgentTool:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    }

    def execute(tool_call_id: str, params: dict[str, Any], *rest: Any) -> str:
        asked.append(params)
        return f"21 °C in {params['city']}"

    return AgentTool("get_weather", "Weather", "Get the current weather for a city.", schema, execute)


@pytest.mark.parametrize(("api", "provider"), SERVED)
def test_an_agent_with_one_tool_runs_to_its_final_text(
    llmock: Any, model_of: Callable[[str, str], Model], api: str, provider: str
) -> None:
    asked: list[dict[str, Any]] = []
    events: list[Any] = []
    context = AgentContext("Help with the weather.", tools=[weather_tool(asked)])
    config = AgentLoopConfig(model=model_of(api, provider), api_key="anything")

    messages = run_agent_loop("What is the weather in Paris?", context, config, events.append)

    assert [message.role for message in messages] == ["user", "assistant", "toolResult", "assistant"]
    said, answer = messages[1], messages[3]
    assert [call.name for call in said.tool_calls] == ["get_weather"]  # type: ignore[union-attr]
    assert [event.is_error for event in events if isinstance(event, ToolExecutionEndEvent)] == [False]
    assert len(asked) == 1
    assert (answer.stop_reason, bool(answer.text)) == ("stop", True)  # type: ignore[union-attr]
    assert answer.usage is not None  # type: ignore[union-attr]
    assert answer.usage.output > 0  # type: ignore[union-attr]
    assert events[-1].reason == "completed"
    llmock.assert_resilient(strict=True)
