"""Other libraries at the same work, each in a process of its own, and in an environment of its own if need be.

`python -m benchmarks.peers` says which of them are installed here. With a name, an API and the server's address it
becomes that library's process: it reads the name of a model from each line of standard input, does what that scenario
asks for, checks the result, and prints the CPU seconds that took. Needs nothing but the library itself.

Every library is used the way its own documentation streams: the text arrives delta by delta, tools are functions.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - what two of the others run on
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.server import WORD

KEY = "sk-bench"
PROMPT = "hi"
MANY = 10_000
"""More turns than any scenario has, where a library wants a bound."""


class Wrong(Exception):
    """A result is not what was sent."""


class Seen:
    """What a library handed over: deltas of text, and what the tool was called with."""

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str) -> str:
        """Take a note."""
        self.notes.append(text)
        return text or "-"


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

Work = Callable[[str, str, str, Seen, bool], None]
"""`work(api, base, model, seen, with_tool)`: one run."""


# --- the vendors' own libraries: no loop, so the loop is written here -----------------------------------------------


def openai_sdk(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`openai`: the stream of chunks, and the calls put together by hand, as its users do."""
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY)
    function: Any = {"name": "note", "description": "Take a note.", "parameters": SCHEMA}
    more: dict[str, Any] = {"tools": [{"type": "function", "function": function}]} if with_tool else {}
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        calls: dict[int, dict[str, Any]] = {}
        for chunk in client.chat.completions.create(model=model, messages=messages, stream=True, **more):
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            if delta.content:
                seen.deltas.append(delta.content)
            for part in delta.tool_calls or ():
                call = calls.setdefault(part.index, {"id": part.id, "name": "", "parts": []})
                call["name"] += (part.function.name or "") if part.function else ""
                call["parts"].append((part.function.arguments or "") if part.function else "")
        if not calls:
            return
        made = []
        for call in calls.values():
            call["arguments"] = "".join(call["parts"])
            call_function = {"name": call["name"], "arguments": call["arguments"]}
            made.append({"id": call["id"], "type": "function", "function": call_function})
        messages.append({"role": "assistant", "tool_calls": made})
        for call in calls.values():
            result = seen.note(**json.loads(call["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def anthropic_sdk(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`anthropic`: its stream helper, which puts the message together."""
    import anthropic

    client = anthropic.Anthropic(base_url=base, api_key=KEY)
    more: dict[str, Any] = {}
    if with_tool:
        more["tools"] = [{"name": "note", "description": "Take a note.", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        with client.messages.stream(model=model, max_tokens=4096, messages=messages, **more) as stream:
            seen.deltas.extend(stream.text_stream)
            message = stream.get_final_message()
        if message.stop_reason != "tool_use":
            return
        messages.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": seen.note(**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


# --- agent libraries ------------------------------------------------------------------------------------------------


def openai_agents(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`openai-agents`: `Runner.run_streamed`."""
    import agents
    import openai

    agents.set_tracing_disabled(True)

    async def run() -> None:
        client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=KEY)
        chat = agents.OpenAIChatCompletionsModel(model=model, openai_client=client)
        tools: list[Any] = [agents.function_tool(seen.note)] if with_tool else []
        agent = agents.Agent(name="bench", model=chat, tools=tools)
        result = agents.Runner.run_streamed(agent, PROMPT, max_turns=MANY)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                seen.deltas.append(event.data.delta)

    asyncio.run(run())


def pydantic_ai(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`pydantic-ai`: the stream of events of a run."""
    from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, UsageLimits

    if api == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=base, api_key=KEY))
        chat: Any = AnthropicModel(model, provider=provider)
    else:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{base}/v1", api_key=KEY))

    async def run() -> None:
        agent = Agent(chat, tools=[seen.note] if with_tool else [])
        async with agent.run_stream_events(PROMPT, usage_limits=UsageLimits(request_limit=None)) as events:
            async for event in events:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    seen.deltas.append(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) and event.part.content:
                    seen.deltas.append(event.part.content)

    asyncio.run(run())


def strands(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`strands-agents`: an agent with a callback."""
    from strands import Agent, tool

    if api == "anthropic":
        from strands.models.anthropic import AnthropicModel

        chat: Any = AnthropicModel(client_args={"base_url": base, "api_key": KEY}, model_id=model, max_tokens=4096)
    else:
        from strands.models.openai import OpenAIModel

        chat = OpenAIModel(client_args={"base_url": f"{base}/v1", "api_key": KEY}, model_id=model)

    @tool
    def note(text: str) -> str:
        """Take a note."""
        return seen.note(text)

    def on_event(**event: Any) -> None:
        if "data" in event:
            seen.deltas.append(event["data"])

    Agent(model=chat, tools=[note] if with_tool else [], callback_handler=on_event)(PROMPT)


def langgraph(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`langgraph`: its prebuilt agent, streaming messages."""
    import warnings

    warnings.filterwarnings("ignore")
    from langchain_core.messages import AIMessageChunk
    from langchain_core.tools import tool
    from langgraph.prebuilt import create_react_agent

    if api == "anthropic":
        from langchain_anthropic import ChatAnthropic

        chat: Any = ChatAnthropic(model=model, base_url=base, api_key=KEY, max_tokens=4096)
    else:
        from langchain_openai import ChatOpenAI

        chat = ChatOpenAI(model=model, base_url=f"{base}/v1", api_key=KEY)

    @tool
    def note(text: str) -> str:
        """Take a note."""
        return seen.note(text)

    graph = create_react_agent(chat, [note] if with_tool else [])
    start = {"messages": [{"role": "user", "content": PROMPT}]}
    for chunk, _ in graph.stream(start, {"recursion_limit": MANY}, stream_mode="messages"):
        if isinstance(chunk, AIMessageChunk) and chunk.text:
            seen.deltas.append(str(chunk.text))


def llm(api: str, base: str, model: str, seen: Seen, with_tool: bool) -> None:
    """`llm`: a chain of prompts."""
    from llm.default_plugins.openai_models import Chat

    chat = Chat(model, model_name=model, api_base=f"{base}/v1", supports_tools=True)
    chat.key = KEY

    def note(text: str) -> str:
        """Take a note."""
        return seen.note(text)

    if with_tool:
        seen.deltas.extend(chat.conversation().chain(PROMPT, tools=[note], chain_limit=0))
    else:
        seen.deltas.extend(chat.prompt(PROMPT, stream=True))


PEERS: dict[str, tuple[Work, tuple[str, ...], tuple[str, ...]]] = {
    "openai": (openai_sdk, ("openai",), ("openai",)),
    "anthropic": (anthropic_sdk, ("anthropic",), ("anthropic",)),
    "openai-agents": (openai_agents, ("openai",), ("openai-agents",)),
    "pydantic-ai": (pydantic_ai, ("openai", "anthropic"), ("pydantic-ai-slim", "pydantic-ai")),
    "strands-agents": (strands, ("openai", "anthropic"), ("strands-agents",)),
    "langgraph": (langgraph, ("openai", "anthropic"), ("langgraph",)),
    "llm": (llm, ("openai",), ("llm",)),
}
"""How each is used, the APIs it is asked to speak, the names under which it may be installed."""


def installed() -> dict[str, str]:
    """Return the peers that are installed here, with their versions."""
    found = {}
    for name, (_, _, packages) in PEERS.items():
        for package in packages:
            try:
                found.setdefault(name, importlib.metadata.version(package))
            except importlib.metadata.PackageNotFoundError:
                continue
    return found


def checked(name: str, api: str, base: str, model: str) -> float:
    """Do the work of one scenario; return its CPU seconds, all threads. Raises `Wrong` for a wrong result."""
    kind, _, number = model.partition("-")
    size, seen = int(number), Seen()
    began = time.process_time()
    PEERS[name][0](api, base, model, seen, kind != "text")
    took = time.process_time() - began
    deltas = size if kind == "text" else 3
    notes = {"text": [], "args": [WORD * (size - 2)], "turns": [str(turn) for turn in range(size)]}[kind]
    # A library may begin with an empty delta, or put two into one; what counts is that none is lost.
    if "".join(seen.deltas) != WORD * deltas:
        raise Wrong(f"{len(''.join(seen.deltas))} characters of text, not {len(WORD) * deltas}")
    if seen.notes != notes:
        raise Wrong(f"{len(seen.notes)} calls of the tool, not {len(notes)}, or other arguments")
    return took


def main(arguments: list[str]) -> None:
    """Say what is installed, or be the process of one library."""
    if not arguments:
        print(json.dumps(installed()))
        return
    name, api, base = arguments
    for line in sys.stdin:
        try:
            print(checked(name, api, base, line.strip()), flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}".splitlines()[0][:200], flush=True)


# --- the other side -------------------------------------------------------------------------------------------------

_ROOT = Path(__file__).resolve().parent.parent
_QUIET = {
    "PYTHONDONTWRITEBYTECODE": "",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


def peers_of(pythons: list[str]) -> dict[str, tuple[str, str]]:
    """Return the peers that these interpreters have, each with its interpreter and its version."""
    found: dict[str, tuple[str, str]] = {}
    for python in pythons:
        command = [python, "-m", "benchmarks.peers"]
        answer = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
        for name, version in json.loads(answer).items():
            found.setdefault(name, (python, version))
    return found


class PeerProcess:
    """The process of one library, for as long as the `with` block lasts."""

    def __init__(self, name: str, python: str, api: str, base: str) -> None:
        self.name, self.api = name, api
        self._command = [python, "-m", "benchmarks.peers", name, api, base]

    def __enter__(self) -> PeerProcess:
        self._process = subprocess.Popen(
            self._command,
            cwd=_ROOT,
            env={**os.environ, **_QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, model: str) -> float:
        """Have a scenario done; return its CPU seconds. Raises `Wrong` with what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{model}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        try:
            return float(answer)
        except ValueError:
            raise Wrong(f"{self.name}, {self.api}, {model}: {answer or 'its process has ended'}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
