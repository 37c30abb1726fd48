"""Iterate the events of a run that goes on in the background."""

from agentcore import Agent, MessageUpdateEvent, TextDeltaEvent, ToolExecutionStartEvent
from agentcore.testing import DemoServer
from agentcore.toolkit import create_bash_tool, create_read_tool


def main() -> None:
    """Print the text as it comes, and what the tools are asked."""
    with DemoServer() as server:
        agent = Agent(server.model, tools=[create_bash_tool(), create_read_tool()])
        # Leaving the block, early too, ends the run and closes its connection.
        with agent.stream("List the files and read the first one") as stream:
            for event in stream:
                match event:
                    case MessageUpdateEvent(assistant_message_event=TextDeltaEvent(delta=delta)):
                        print(delta, end="", flush=True)
                    case ToolExecutionStartEvent(tool_name=name, args=args):
                        print(f"\n[{name} {args}]")
        print(f"\n{len(stream.messages)} messages; the agent is {agent.status().phase}")


if __name__ == "__main__":
    main()
