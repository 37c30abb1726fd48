"""Messages, results, usages, agents and runs as HTML that needs no script and no style sheet, and runs nothing.

Every text is escaped, and its control characters are made visible. The styles are in line, since a notebook keeps
nothing else when it is shown somewhere else, and everything can be read without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from time import monotonic
from typing import Any, Final

from agentcore._records import json_safe
from agentcore.agent import Agent
from agentcore.content import ContentBlock, ImageContent, TextContent, ThinkingContent, ToolCall
from agentcore.display._markdown import CODE_STYLE, markdown_to_html
from agentcore.display._progress import CallState, Entry, Note, RunProgress, entries_of
from agentcore.display._text import (
    call_words,
    content_text,
    counted,
    diff_of,
    duration,
    error_words,
    shortened_line,
    usage_words,
    visible,
)
from agentcore.messages import AssistantMessage, CustomMessage, Usage, UserMessage
from agentcore.partial import PartialMessage
from agentcore.tools import AgentToolResult

__all__ = ["agent_html", "message_html", "progress_html", "result_html", "usage_html"]

_MOST_CHARACTERS: Final = 20_000
_MOST_MESSAGES: Final = 30
_LONGEST_LABEL: Final = 160

_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]*")

# Colours that can be read on light and on dark pages.
_GREEN, _RED, _BLUE, _GREY = "#2e8b57", "#d1443c", "#3b82c4", "#888888"
_FAINT: Final = "opacity:.65"
_DIFF_COLOURS: Final = {"+": _GREEN, "-": _RED, "@": _BLUE}
_STATES: Final = {
    "asked": ("→", _GREY, ""),
    "waiting": ("…", _GREY, "waiting"),
    "running": ("▶", _BLUE, "running"),
    "done": ("✓", _GREEN, "done"),
    "failed": ("✗", _RED, "failed"),
    "skipped": ("–", _GREY, "not run"),
}


def _root(*parts: str) -> str:
    # The classes keep a page that typesets formulas from finding some: a formula can hold a link to a script.
    inner = "\n".join(part for part in parts if part)
    return (
        f'<div class="agentcore tex2jax_ignore mathjax_ignore" style="line-height:1.5;max-width:60em">\n{inner}\n</div>'
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _pre(text: str) -> str:
    return f'<pre style="{CODE_STYLE}">{text}</pre>'


def _faint(text: str) -> str:
    return f'<div style="{_FAINT};font-size:.9em">{_text(text)}</div>'


def _shortened(text: str) -> str:
    """Return text, escaped; of a very long one the beginning and the end."""
    if len(text) <= _MOST_CHARACTERS:
        return _text(text)
    half = _MOST_CHARACTERS // 2
    left = counted(len(text) - 2 * half, "character")
    return f'{_text(text[:half])}\n<span style="{_FAINT}">… {left} not shown …</span>\n{_text(text[-half:])}'


# --- parts ----------------------------------------------------------------------------------------------------------


def _image(block: ImageContent) -> str:
    if block.mime_type not in _IMAGE_TYPES or not _BASE64.fullmatch(block.data):
        return _faint(content_text([block]))
    data = "".join(block.data.split())
    return (
        f'<img alt="{escape(content_text([block]))}" src="data:{block.mime_type};base64,{data}" '
        'style="max-width:100%;max-height:30em;display:block;margin:.4em 0">'
    )


def _diff(diff: str) -> str:
    lines = []
    for line in _shortened(diff).split("\n"):
        colour = _DIFF_COLOURS.get(line[:1])
        lines.append(f'<span style="color:{colour}">{line}</span>' if colour else line)
    return _pre("\n".join(lines))


def _result_parts(content: Iterable[ContentBlock], details: Any, is_error: bool) -> list[str]:
    blocks = list(content)
    diff = None if is_error else diff_of(details)
    texts = [block for block in blocks if not isinstance(block, ImageContent)]
    parts = [_pre(_shortened(content_text(texts)))] if texts else []
    if diff is not None:
        parts.append(_diff(diff))
    return parts + [_image(block) for block in blocks if isinstance(block, ImageContent)]


def _arguments(args: Mapping[str, Any]) -> str:
    lines = []
    for key, value in args.items():
        text = value if isinstance(value, str) else json.dumps(json_safe(value), ensure_ascii=False, indent=1)
        lines.append(f"<b>{_text(str(key))}</b>{' ' if chr(10) not in text else chr(10)}{_shortened(text)}")
    return _pre("\n".join(lines)) if lines else ""


def _call(call: CallState) -> str:
    mark, colour, words = _STATES[call.state]
    clock = call.took
    if call.state == "running" and call.began is not None:
        clock = monotonic() - call.began
    name, _, rest = shortened_line(call_words(call.name, call.args), _LONGEST_LABEL).partition(" ")
    took = f" · {duration(clock)}" if clock is not None else ""
    worth_seeing = diff_of(call.details) or any(isinstance(block, ImageContent) for block in call.content)
    is_open = " open" if worth_seeing or call.state in ("running", "failed") else ""
    label = f"<b>{escape(name)}</b>" + (f" <code>{escape(rest)}</code>" if rest else "")
    summary = (
        f'<summary style="cursor:pointer"><span style="color:{colour}" title="{words}">{mark}</span> {label} '
        f'<span style="{_FAINT}">{words}{took}</span></summary>'
    )
    failed = call.state == "failed"
    # A diff says more clearly than the arguments what was to be done.
    arguments = [] if diff_of(call.details) and not failed else [_arguments(call.args)]
    parts = [*arguments, *_result_parts(call.content, call.details, failed)]
    body = "\n".join(part for part in parts if part)
    return f'<details{is_open} style="margin:.4em 0;padding:.1em .7em;border-left:3px solid {colour}">{summary}\n{body}\n</details>'


def _thinking(block: ThinkingContent) -> str:
    if not block.thinking.strip():
        return ""
    return (
        f'<details style="margin:.4em 0;{_FAINT}"><summary style="cursor:pointer">thinking</summary>\n'
        f'<div style="white-space:pre-wrap;font-style:italic">{_shortened(block.thinking)}</div>\n</details>'
    )


def _block(block: ContentBlock, calls: Mapping[str, CallState]) -> str:
    match block:
        case TextContent():
            return markdown_to_html(block.text) if block.text.strip() else ""
        case ThinkingContent():
            return _thinking(block)
        case ImageContent():
            return _image(block)
        case ToolCall():
            return _call(calls.get(block.id) or CallState(block.name, block.arguments))
        case _:
            return _faint(content_text([block]))


def _failure(message: AssistantMessage | PartialMessage) -> str:
    if isinstance(message, PartialMessage) or message.stop_reason not in ("error", "aborted", "length"):
        return ""
    words = {"aborted": "stopped", "length": "cut off: the reply reached the longest that the model may give"}
    text = words.get(message.stop_reason) or f"error: {error_words(message.error)}"
    colour = _RED if message.stop_reason == "error" else _GREY
    return f'<div style="color:{colour}">{_text(text)}</div>'


def _entry(entry: Entry) -> str:
    if entry.html is not None:
        return entry.html
    html = _message(entry.message, entry.calls)
    if entry.is_final:
        entry.html = html
    return html


def _message(message: Any, calls: Mapping[str, CallState]) -> str:
    if isinstance(message, (AssistantMessage, PartialMessage)):
        return "\n".join(filter(None, [*(_block(block, calls) for block in message.content), _failure(message)]))
    if isinstance(message, CustomMessage) and not message.display:
        return ""
    if isinstance(message, (UserMessage, CustomMessage)):
        content = message.content
        blocks = (TextContent(content),) if isinstance(content, str) else content
        parts = [
            _image(block) if isinstance(block, ImageContent) else f"<div>{_shortened(content_text([block]))}</div>"
            for block in blocks
        ]
        style = f"white-space:pre-wrap;margin:.6em 0;padding:.3em .7em;border-left:3px solid {_GREY};font-weight:600"
        return f'<div style="{style}">{"".join(parts)}</div>'
    summary = getattr(message, "summary", None)
    if isinstance(summary, str):
        return f'<details style="{_FAINT}"><summary>summary of what came before</summary>{markdown_to_html(summary)}</details>'
    return _faint(f"[{getattr(message, 'role', type(message).__name__)}]")


# --- wholes ---------------------------------------------------------------------------------------------------------


def message_html(message: AssistantMessage) -> str:
    """Return a model's message: its text, its thinking and calls, why it failed, what it took."""
    # What came of its calls is not known here.
    calls = {call.id: CallState(call.name, call.arguments, "asked") for call in message.tool_calls}
    parts = [_message(message, calls)]
    if message.usage is not None:
        cost = None if message.usage.cost is None else message.usage.cost.get("total")
        name = "/".join(filter(None, [message.provider, message.model]))
        parts.append(_faint(" · ".join(filter(None, [name, usage_words(message.usage, cost)]))))
    return _root(*parts)


def result_html(result: Any) -> str:
    """Return what a tool gave: an `AgentToolResult` or a `ToolResultMessage`."""
    name = "" if isinstance(result, AgentToolResult) else result.tool_name
    mark, colour, words = _STATES["failed" if result.is_error else "done"]
    head = f'<div><span style="color:{colour}">{mark}</span> <b>{_text(name)}</b> <span style="{_FAINT}">{words}</span></div>'
    return _root(head, *_result_parts(result.content, result.details, result.is_error))


def usage_html(usage: Usage) -> str:
    """Return tokens and costs by kind, as a table."""
    cost = usage.cost or {}
    kinds = ("input", "cache_read", "cache_write", "output")
    rows = [(kind.replace("_", " "), getattr(usage, kind), cost.get(kind)) for kind in kinds]
    rows = [row for row in rows if row[1] or row[0] in ("input", "output")]
    rows.append(("total", usage.total_tokens, cost.get("total")))
    columns = ["", "tokens", *(["USD"] if cost else [])]
    head = "".join(f'<th style="text-align:{_side(at)}">{name}</th>' for at, name in enumerate(columns))
    body = ""
    for kind, tokens, dollars in rows:
        texts = [kind, f"{tokens:,}", *([f"{dollars:.6f}" if dollars is not None else ""] if cost else [])]
        cells = "".join(f'<td style="text-align:{_side(at)}">{text}</td>' for at, text in enumerate(texts))
        body += f"<tr>{cells}</tr>"
    more = "" if usage.reasoning is None else _faint(f"of the output {usage.reasoning:,} for reasoning")
    return _root(f"<table><tr>{head}</tr>{body}</table>{more}")


def _side(column: int) -> str:
    return "right" if column else "left"


def agent_html(agent: Agent) -> str:
    """Return what an agent is, and the latest part of its conversation."""
    state, status = agent.state, agent.status()
    model = "/".join(filter(None, [state.model.provider, state.model.id]))
    tools = ", ".join(tool.name for tool in state.tools) or "no tools"
    head = (
        f"<div><b>Agent</b> {_text(model)} <span style='{_FAINT}'>{_text(status.phase)} · {_text(tools)}</span></div>"
    )
    entries = entries_of(state.messages)
    left = len(entries) - _MOST_MESSAGES
    parts = [_entry(entry) for entry in entries[-_MOST_MESSAGES:]]
    prompt = ""
    if state.system_prompt:
        prompt = (
            f'<details style="{_FAINT}"><summary style="cursor:pointer">system prompt</summary>'
            f"{_pre(_shortened(state.system_prompt))}</details>"
        )
    earlier = _faint(f"… {counted(left, 'earlier message')}") if left > 0 else ""
    failed = f'<div style="color:{_RED}">{_text(state.error_message)}</div>' if state.error_message else ""
    return _root(head, prompt, earlier, *parts, failed)


def progress_html(progress: RunProgress) -> str:
    """Return a run as it stands."""
    parts = []
    for item in progress.items:
        if isinstance(item, Note):
            item.html = item.html or _faint(item.text)
            parts.append(item.html)
        else:
            parts.append(_entry(item))
    if progress.activity is not None:
        parts.append(_faint(f"… {progress.activity}"))
    return _root(*parts)
