"""Steer a run from another thread while it works.

The main thread blocks in `prompt`; another one, here a stand-in for a chat window, sends a message that the model gets to
see after its current turn.
"""

import threading

from agentcore import Agent, tool
from agentcore.testing import call, reply, scripted, scripted_model


def main() -> None:
    """Let a tool wait until the message is queued, so that the example is the same every time."""
    working, steered = threading.Event(), threading.Event()

    @tool
    def search(query: str) -> str:
        """Search the archive."""
        working.set()
        steered.wait(10)
        return f"3 results for {query}"

    def chat_window() -> None:
        working.wait(10)
        agent.steer("Only the newest, please.")
        steered.set()

    model = scripted(reply(call("search", query="herons")), reply("The newest is from May."))
    agent = Agent(scripted_model(), tools=[search], stream_fn=model)
    threading.Thread(target=chat_window, daemon=True).start()
    print(agent.prompt("Search for herons").text)
    for message in agent.messages:
        print(f"{message.role}: {message.text if hasattr(message, 'text') else message.content}")
    assert [message.role for message in agent.messages] == ["user", "assistant", "toolResult", "user", "assistant"]


if __name__ == "__main__":
    main()
