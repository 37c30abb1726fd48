"""An agent as a tool of another: it has its own conversation, model and tools, and its cost counts."""

from agentcore import Agent, AgentToolResult, ToolCallContext, Usage, tool
from agentcore.testing import call, reply, scripted, scripted_model

WORKER = scripted(
    reply("A heron.", usage=Usage(input=40, output=5)),
    reply("About two metres.", usage=Usage(input=60, output=6)),
    repeat=True,
)


@tool
def research(question: str, call: ToolCallContext) -> AgentToolResult:
    """Have an assistant look into a question; it knows nothing of this conversation."""
    worker = Agent(scripted_model(id="worker"), stream_fn=WORKER)
    remove = call.signal.add_callback(worker.abort)  # stopping the call stops the worker
    try:
        answer = worker.prompt(question).raise_for_error()
    finally:
        remove()
    return AgentToolResult(answer.text, usage=worker.status().usage)


def main() -> None:
    """Ask two questions at once: the calls run side by side, each with an agent of its own."""
    model = scripted(
        reply(call("research", question="What is a bittern?"), call("research", question="How wide are its wings?")),
        reply("A bittern is a heron with a span of about two metres.", usage=Usage(input=200, output=20)),
    )
    agent = Agent(scripted_model(id="boss"), tools=[research], stream_fn=model)
    print(agent.prompt("Tell me about bitterns").text)
    usage = agent.status().usage
    print(f"{usage.total_tokens} tokens in all, the workers' included")
    assert usage.total_tokens == 45 + 66 + 220


if __name__ == "__main__":
    main()
