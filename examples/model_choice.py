"""Choose the model turn by turn: a small one to begin with, a larger one that thinks once a tool has failed."""

from agentcore import Agent, AgentLoopTurnUpdate, PrepareNextTurnContext, ThinkingLevel, tool
from agentcore.testing import call, reply, scripted, scripted_model

SMALL = scripted_model(id="small")
LARGE = scripted_model(id="large", reasoning=True)


def prefer_large_after_errors(context: PrepareNextTurnContext, signal: object) -> AgentLoopTurnUpdate | None:
    """Go on with the larger model if a tool of this turn failed."""
    if any(result.is_error for result in context.tool_results):
        return AgentLoopTurnUpdate(model=LARGE, thinking_level=ThinkingLevel.HIGH)
    return None


@tool
def divide(left: float, right: float) -> float:
    """Divide two numbers."""
    return left / right


def main() -> None:
    """Run into an error, and see who is asked next."""
    model = scripted(reply(call("divide", left=1, right=0)), reply("One cannot divide by zero."))
    agent = Agent(SMALL, tools=[divide], prepare_next_turn=prefer_large_after_errors, stream_fn=model)
    print(agent.prompt("What is 1 / 0?").text)
    for request in model.requests:
        print(request.model.id, request.options.reasoning)
    assert [request.model.id for request in model.requests] == ["small", "large"]
    assert agent.model.id == "small", "the choice holds for the rest of the run only"


if __name__ == "__main__":
    main()
