"""A demo model: a few rules behind a real HTTP server on a loopback port, for trying things out without a key.

It speaks the streaming Chat Completions API, so that the real adapter, the real loop and the real tools run. It does
not understand anything: asked with a `bash` and a `read` tool at hand it lists the directory, reads the first file, and
says what it saw. Its answers say that it is a demo.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agentcore.models import Model
from agentcore.testing.sse_server import Reply, Request, SseServer, sse

__all__ = ["DemoServer"]

_NAME = "demo"
_LIST_COMMAND = "ls -p"


class DemoServer(SseServer):
    """The demo model's server; `model` is what to ask.

    ::

        with DemoServer() as server:
            run_agent_loop("List the files.", context, AgentLoopConfig(model=server.model), emit)
    """

    def __init__(self) -> None:
        super().__init__(_reply)

    @property
    def model(self) -> Model:
        """The model that this server answers for."""
        return Model(_NAME, name="built-in demo model", provider="demo", base_url=f"{self.url}/v1")


def _reply(request: Request) -> Reply:
    asked = request.json()
    chunks = list(_chunks(len(request.body), *_answer(asked)))
    return Reply([sse(chunk) for chunk in chunks] + [sse("[DONE]")])


def _answer(asked: dict[str, Any]) -> tuple[str, tuple[str, dict[str, Any]] | None]:
    """Return what the demo says, and the tool it calls with which arguments."""
    tools = {tool["function"]["name"] for tool in asked.get("tools") or ()}
    results = list(_results_since_question(asked["messages"]))
    if not {"bash", "read"} <= tools:
        return "I am a demo without a mind: give me the `bash` and `read` tools, and I list files and read one.", None
    if not results:
        return "I list the files first.", ("bash", {"command": _LIST_COMMAND})
    listing = results[0].splitlines()
    # A failure, or a refusal, comes as text like any other; what is written like a sentence is not taken for a name.
    if any("`" in line or line.endswith(".") for line in listing):
        return f"I could not list the files. The tool says:\n{results[0]}", None
    files = [line for line in listing if re.fullmatch(r"[^/\x00]+", line)]
    if not files or results[0] == "(no output)":
        return f"There is no file that I could read. The listing says:\n{results[0]}", None
    if len(results) == 1:
        return f"The first file is {files[0]}. I read it.", ("read", {"path": files[0]})
    lines = results[1].splitlines()
    first = next((line.strip() for line in lines if line.strip()), "nothing")
    return (
        f"I see {_counted(len(files), 'file')} here. I read the first one, {files[0]}: the tool showed me "
        f"{_counted(len(lines), 'line')}, and the first that is not blank is: {first}"
    ), None


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _results_since_question(messages: list[dict[str, Any]]) -> Iterator[str]:
    last_question = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    for message in messages[last_question + 1 :]:
        if message["role"] == "tool":
            content = message["content"]
            yield content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _chunks(request_size: int, text: str, call: tuple[str, dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    """Render an answer as the chunks of a Chat Completions stream, a word at a time."""

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {
            "id": "chatcmpl-demo",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": _NAME,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        }

    words = re.findall(r"\s*\S+", text)
    yield chunk({"role": "assistant", "content": ""})
    for word in words:
        yield chunk({"content": word})
    if call is not None:
        name, arguments = call
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": 0, "id": f"call_{name}", "type": "function", "function": function}]})
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(arguments)}}]})
    yield chunk({}, "tool_calls" if call is not None else "stop")
    # A demo has no tokens; bytes over four is the usual rough guess.
    usage = {"prompt_tokens": request_size // 4, "completion_tokens": len(text) // 4}
    yield {**chunk({}), "choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}}
