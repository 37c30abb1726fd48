"""Words for what happens in a run, and texts made harmless to be shown, for every kind of display."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentcore._records import json_safe
from agentcore.content import ContentBlock, ImageContent, TextContent
from agentcore.events import CompactionEndEvent
from agentcore.messages import ErrorInfo, Usage

__all__ = [
    "call_words",
    "compaction_words",
    "content_text",
    "counted",
    "diff_of",
    "duration",
    "encodable",
    "end_words",
    "error_words",
    "exact",
    "one_line",
    "shortened_line",
    "usage_words",
    "visible",
]

# What moves the cursor, changes colours, sets titles or turns the direction of text: harmless only when made visible.
_HAZARD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_ARGUMENT: Final = 2000
# Each as wide as the sign that it stands for.
_PLAINER_SIGNS: Final = {
    "✓": "+", "✗": "x", "–": "-", "→": ">", "›": ">", "▶": ">", "│": "|", "·": "-", "…": ".", "⏎": "/"
}  # fmt: skip


def visible(text: str) -> str:
    """Return text whose control characters are shown as pictures and do nothing; tabs and line feeds stay.

    CRLF becomes LF; direction overrides and halves of surrogate pairs become U+FFFD.
    """
    return _HAZARD.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def encodable(text: str, encoding: str) -> str:
    """Return text as an encoding can write it: a sign of ours that it lacks becomes a plainer one, all else `?`."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        lacking = {ord(sign): plain for sign, plain in _PLAINER_SIGNS.items() if not sign.encode(encoding, "ignore")}
        return text.translate(lacking).encode(encoding, "replace").decode(encoding, "replace")
    return text


def exact(text: str) -> str:
    """Return text in which everything that is not seen is written out, so that no two texts look the same."""
    return "".join(char if char.isprintable() else _escaped(ord(char)) for char in text)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def one_line(text: str) -> str:
    """Return text on one line, harmless: line feeds become a sign for them, other white space a blank."""
    text = visible(text.strip()).replace("\n", "⏎")
    return " ".join(text.split())


def shortened_line(text: str, longest: int) -> str:
    """Return text on one line, its end cut off if it is longer."""
    line = one_line(text[: 4 * longest])
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[: longest - 1]}…"


def call_words(name: str, args: Mapping[str, Any]) -> str:
    """Return what a call is, on one line: the command of `bash`, the path of a file tool, else every argument."""
    rest = dict(args)
    first = [one_line(_argument(rest.pop(key))) for key in ("command", "path") if isinstance(rest.get(key), str)]
    if name in ("write", "edit") and first:
        rest = {}  # what is written is content, not a label
    words = [f"{one_line(key)}={one_line(_argument(value))}" for key, value in rest.items()]
    return " ".join([one_line(name), *first, *words])


def _argument(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(json_safe(value), ensure_ascii=False)
    return text if len(text) <= _LONGEST_ARGUMENT else f"{text[:_LONGEST_ARGUMENT]}…"


def content_text(content: Iterable[ContentBlock]) -> str:
    """Return the text of blocks, exactly; other blocks are named."""
    return "\n".join(block.text if isinstance(block, TextContent) else _named(block) for block in content)


def _named(block: ContentBlock) -> str:
    if isinstance(block, ImageContent):
        return f"[image {block.mime_type}, {counted(len(block.data) * 3 // 4, 'byte')}]"
    return f"[{block.type}]"


def diff_of(details: Any) -> str | None:
    """Return the unified diff that a tool's details hold, in memory or as they come back from a file."""
    diff = details.get("diff") if isinstance(details, Mapping) else getattr(details, "diff", None)
    return diff if isinstance(diff, str) and diff else None


def counted(number: int, what: str) -> str:
    """Return a number and what there is of it."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a length of time as one word, so that no line is broken inside it."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def usage_words(usage: Usage, cost: float | None) -> str:
    """Return tokens and cost in words; an unknown cost (`None`) is left out."""
    came = usage.input + usage.cache_read + usage.cache_write
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    words = f"{came:,} tokens in{cached}, {usage.output:,} out"
    return words if cost is None else f"{words}, {_money(cost)}"


def _money(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}" if cost >= 0.0001 else "under $0.0001"


_END_WORDS: Final = {
    "terminated": "The tools ended the run.",
    "stopped": "The run was stopped after this turn.",
    "paused": "The run is paused: tool calls wait for a decision.",
    "aborted": "Stopped.",
    "limit:turns": "Stopped: the most turns allowed are used up.",
    "limit:tokens": "Stopped: the most tokens allowed are used up.",
    "limit:cost": "Stopped: the most money allowed is spent.",
    "limit:seconds": "Stopped: the time allowed is over.",
}


def end_words(reason: str) -> str | None:
    """Return why a run ended; `None` where there is nothing to say."""
    return None if reason in ("completed", "error") else _END_WORDS.get(reason, f"Ended: {one_line(reason)}.")


def error_words(error: ErrorInfo | None) -> str:
    """Return what went wrong with a response, on one line."""
    if error is None:
        return "the response failed"
    return one_line(error.message).rstrip(".") or error.kind.replace("_", " ") or "the response failed"


def compaction_words(event: CompactionEndEvent) -> str:
    """Return what a compaction came to."""
    if event.error is not None:
        return f"The earlier conversation was not summarised: {one_line(event.error)}."
    return f"The earlier conversation was summarised; it takes about {counted(event.tokens, 'token')} now."
