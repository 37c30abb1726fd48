"""A tool on a real SQLite file.

A SQLite connection belongs to the thread that opened it. The tool asks for sequential execution, so it runs on the
loop's own thread, which is the one that called `prompt`, and may use the connection without further ado.
"""

import json
import sqlite3
import tempfile
from pathlib import Path

from agentcore import Agent, AgentTool, AgentToolResult
from agentcore.testing import call, reply, scripted, scripted_model

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "One SQL statement; use ? for parameters."},
        "params": {"type": "array", "items": {"type": ["string", "number", "null"]}},
    },
    "required": ["query"],
}


def database_tool(connection: sqlite3.Connection) -> AgentTool:
    """Return a tool that runs SQL on a connection."""

    def execute(tool_call_id, params, signal, on_update, context):
        cursor = connection.execute(params["query"], params.get("params", []))
        rows = cursor.fetchall()
        connection.commit()
        return AgentToolResult(json.dumps(rows), details={"rows_affected": cursor.rowcount})

    return AgentTool(
        "database", "Database", "Run SQL on the orders database.", SCHEMA, execute, execution_mode="sequential"
    )


def main() -> None:
    """Let a scripted model fill a table and read it."""
    path = Path(tempfile.mkdtemp()) / "orders.db"
    connection = sqlite3.connect(path)
    model = scripted(
        reply(
            call("database", query="CREATE TABLE orders (item TEXT, price REAL)"),
            call("database", query="INSERT INTO orders VALUES (?, ?)", params=["tea", 4.5]),
            call("database", query="SELECT item, price FROM orders"),
        ),
        reply("There is one order: tea, 4.50."),
    )
    agent = Agent(scripted_model(), tools=[database_tool(connection)], stream_fn=model)
    print(agent.prompt("Order tea for 4.50 and list the orders").text)
    results = [message.text for message in agent.messages if message.role == "toolResult"]
    print(results)
    assert results[-1] == '[["tea", 4.5]]'
    assert sqlite3.connect(path).execute("SELECT count(*) FROM orders").fetchone() == (1,)


if __name__ == "__main__":
    main()
