"""Keep a log of everything a run does: one line of JSON for each event.

Any callable is an event sink. This one writes to a file on the loop's own thread, so it needs no lock.
"""

import json
import tempfile
from pathlib import Path

from agentcore import AgentContext, AgentEndEvent, AgentLoopConfig, run_agent_loop
from agentcore.testing import DemoServer
from agentcore.toolkit import create_bash_tool, create_read_tool


def main() -> None:
    """Run the demo model with two tools, and read the log."""
    log = Path(tempfile.mkdtemp()) / "events.jsonl"
    with DemoServer() as server, log.open("w", encoding="utf-8") as file:
        run_agent_loop(
            "List the files and read the first one",
            AgentContext(tools=[create_bash_tool(), create_read_tool()]),
            AgentLoopConfig(model=server.model),
            lambda event: print(json.dumps(event.to_dict()), file=file),
        )
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    for event in events:
        if event["type"] != "message_update":
            print(event["type"], event.get("tool_name", ""))
    assert events[-1]["type"] == AgentEndEvent.type
    print(f"{len(events)} events, the run ended as {events[-1]['reason']}")


if __name__ == "__main__":
    main()
