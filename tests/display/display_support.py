"""Runs to be shown: one with everything in it, and one whose every text is hostile."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

from agentcore import Agent, AgentTool, AgentToolResult, ErrorInfo, ImageContent, TextContent, Usage
from agentcore.testing import call, reply, scripted, scripted_model, thinking
from agentcore.toolkit import coding_tools

HOSTILE = (
    "[/bold] [red]x[/red] {braces} {0} %s </details></summary></pre></div> <script>document.title='executed'</script> "
    "<img src=x onerror=\"document.title='executed'\"> \x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x00nul \x7f "
    "\u202eevil\u2066 $\\href{javascript:alert(1)}{x}$ &lt;b&gt; \ud800 end"
)
"""Text that means something to a terminal, to rich, to HTML, to Markdown, to formulas, and to `str.format`."""

HOSTILE_MARKDOWN = (
    f"{HOSTILE}\n\n[link](javascript:alert(1)) ![picture](https://example.invalid/secret.png)\n\n"
    "```html\n<script>document.title='executed'</script>\n```\n\n<!-- --><svg onload=\"document.title='executed'\">\n"
)


def png(width: int = 120, height: int = 60) -> str:
    """Return a picture with a colour gradient, as base64 text."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(
        b"\0" + b"".join(bytes((x * 255 // width, y * 255 // height, 160)) for x in range(width)) for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")
    return base64.b64encode(data).decode()


def draw_tool() -> AgentTool:
    def draw(tool_call_id: str, params: dict[str, Any], signal: Any, on_update: Any, context: Any) -> Any:
        return [TextContent("a gradient"), ImageContent(png(), "image/png")]

    return AgentTool("draw", "Draw", "Draws.", {"type": "object"}, draw)


def full_agent(folder: Path) -> Agent:
    """Return an agent whose run has thinking, Markdown, a diff, a picture, a failure and an error in it."""
    (folder / "plan.txt").write_text("buy milk\nbuy bread\n")
    usage = Usage(input=1200, output=34, cache_read=800, cost={"input": 0.001, "output": 0.002, "total": 0.003})
    model = scripted(
        reply(
            thinking("The plan needs *cheese*.\nI add it."),
            "I change the plan, and then:\n\n- draw a **picture**\n- run a `command`\n",
            call("edit", path="plan.txt", find="buy milk", replacement="buy milk\nbuy cheese"),
            call("draw", of="a gradient"),
            call("bash", command="echo one; echo two; exit 3"),
            usage=usage,
        ),
        reply(
            "## Done\n\n| what | how |\n|---|---|\n| plan | changed |\n| command | failed |\n\n"
            "```python\nprint('<not html>')\n```\n\nSee [the docs](https://example.invalid/).",
            usage=usage,
        ),
        reply("Half an answer, then", error=ErrorInfo("overloaded", "the server is overloaded")),
    )
    return Agent(scripted_model(), tools=[*coding_tools(folder), draw_tool()], stream_fn=model)


def hostile_tool() -> AgentTool:
    def work(tool_call_id: str, params: dict[str, Any], signal: Any, on_update: Any, context: Any) -> Any:
        on_update(HOSTILE)
        return AgentToolResult(
            [TextContent(HOSTILE), ImageContent('"><script>1</script>', "image/svg+xml")],
            {"diff": f"---\n+++\n+{HOSTILE}"},
        )

    return AgentTool("hostile", "Hostile", "Does harm.", {"type": "object"}, work)


def hostile_agent() -> Agent:
    """Return an agent whose run has nothing but hostile texts in it."""
    model = scripted(
        reply(thinking(HOSTILE), HOSTILE_MARKDOWN, call("hostile", **{HOSTILE: HOSTILE, "command": HOSTILE})),
        reply(HOSTILE, call(HOSTILE, id=HOSTILE, path=HOSTILE)),
        reply(HOSTILE, error=ErrorInfo("protocol", HOSTILE)),
    )
    return Agent(scripted_model(), system_prompt=HOSTILE, tools=[hostile_tool()], stream_fn=model)
