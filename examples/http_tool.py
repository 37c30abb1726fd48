"""A tool that makes HTTP requests, here to a server on a loopback port."""

import requests

from agentcore import Agent, AgentTool, AgentToolResult
from agentcore.testing import SseServer, call, reply, scripted, scripted_model
from agentcore.testing.sse_server import json_reply

SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "method": {"type": "string", "enum": ["GET", "POST", "PUT", "DELETE"]},
        "body": {"type": "string"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["url", "method"],
}


def http_tool(allowed: str) -> AgentTool:
    """Return a tool that may only talk to addresses that begin with `allowed`."""

    def execute(tool_call_id, params, signal, on_update, context):
        if not params["url"].startswith(allowed):
            raise ValueError(f"only addresses below {allowed} are allowed")
        response = requests.request(
            params["method"],
            params["url"],
            data=params.get("body"),
            headers=params.get("headers"),
            timeout=10,
            allow_redirects=False,
        )
        details = {"status_code": response.status_code, "headers": dict(response.headers)}
        return AgentToolResult(response.text, details=details, is_error=response.status_code >= 400)

    return AgentTool("http", "HTTP", "Make an HTTP request.", SCHEMA, execute, timeout=15)


def main() -> None:
    """Let a scripted model ask for the weather, and for something it may not have."""
    with SseServer(json_reply({"city": "Oslo", "celsius": 21})) as server:
        model = scripted(
            reply(
                call("http", url=f"{server.url}/weather", method="GET"),
                call("http", url="http://127.0.0.1:1/secret", method="GET"),
            ),
            reply("It is 21 °C in Oslo."),
        )
        agent = Agent(scripted_model(), tools=[http_tool(f"{server.url}/")], stream_fn=model)
        print(agent.prompt("How warm is it in Oslo?").text)
    results = [message for message in agent.messages if message.role == "toolResult"]
    for result in results:
        print("error" if result.is_error else result.details["status_code"], result.text)
    assert [result.is_error for result in results] == [False, True]


if __name__ == "__main__":
    main()
