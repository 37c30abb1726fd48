"""Approve tool calls later, in another process if need be: the run pauses, its messages are saved, and it resumes.

For a person at the terminal there is less to do: `Agent(…, before_tool_call=approvals.ask_in_terminal)`.
"""

import json
import tempfile
from pathlib import Path

from agentcore import Agent, AgentTool, allow, approvals, deny
from agentcore.messages import message_from_dict
from agentcore.testing import call, reply, scripted, scripted_model

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


def make_agent(messages=(), before_tool_call=None, replies=("Done.",)) -> Agent:
    """Return an agent that can transfer money; a scripted model stands for a real one."""
    transfer = AgentTool(
        "transfer", "Transfer", "Transfer money.", SCHEMA, lambda call_id, params, *rest: f"sent {params['amount']}"
    )
    return Agent(
        scripted_model(),
        tools=[transfer],
        messages=messages,
        before_tool_call=before_tool_call,
        stream_fn=scripted(*replies),
    )


def ask(saved: Path) -> None:
    """Run until the model wants to transfer money, and save the conversation at that point."""
    wanted = reply("I will pay both.", call("transfer", amount=5), call("transfer", amount=5000))
    agent = make_agent(before_tool_call=approvals.pause_for_approval, replies=[wanted])
    agent.prompt("Pay the coffee and the car.")
    saved.write_text(json.dumps([message.to_dict() for message in agent.messages]), "utf-8")


def decide(saved: Path) -> None:
    """Load the conversation, decide on the calls that wait, and let the run go on."""
    messages = [message_from_dict(data) for data in json.loads(saved.read_text("utf-8"))]
    agent = make_agent(messages)
    decisions = {}
    for waiting in agent.pending_calls:
        print(f"{waiting['name']} {waiting['arguments']}?")
        small = waiting["arguments"]["amount"] < 100
        decisions[waiting["id"]] = allow() if small else deny("ask me again tomorrow")
    print(agent.resume(decisions).text)
    for message in agent.messages:
        if message.role == "toolResult":
            print(f"  {message.tool_name}: {message.text}")


def main() -> None:
    """Pause and resume, as two processes would."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "conversation.json"
        ask(saved)
        decide(saved)


if __name__ == "__main__":
    main()
