"""Bound a run: by turns, tokens, money and time.

The model here always calls the same tool. The run ends after the first turn that reaches a limit, with every call
answered, so the conversation can go on.
"""

from agentcore import Agent, AgentEndEvent, Limits, Usage, tool
from agentcore.testing import call, reply, scripted, scripted_model


@tool
def look() -> str:
    """Look again."""
    return "nothing yet"


def main() -> None:
    """Stop after three turns, then after the tokens of two more."""
    usage = Usage(input=900, output=100)
    model = scripted(lambda request: reply(call("look"), usage=usage), repeat=True)
    agent = Agent(scripted_model(), tools=[look], limits=Limits(turns=3), stream_fn=model)
    reasons: list[str] = []
    agent.subscribe(lambda event, signal: reasons.append(event.reason) if isinstance(event, AgentEndEvent) else None)
    agent.prompt("Wait for news")
    agent.limits = Limits(tokens=2000)
    agent.continue_()
    print(reasons, f"{len(model.requests)} requests, {agent.status().usage.total_tokens} tokens in the last run")
    assert reasons == ["limit:turns", "limit:tokens"]
    assert len(model.requests) == 5
    assert agent.messages[-1].role == "toolResult"


if __name__ == "__main__":
    main()
