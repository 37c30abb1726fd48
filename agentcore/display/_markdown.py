"""A model's Markdown, made safe: as HTML that runs and loads nothing, and as Markdown without HTML in it."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import Any, Final

from agentcore.display._text import visible

__all__ = ["CODE_STYLE", "markdown_to_html", "without_html"]

CODE_STYLE: Final = (
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:.3em 0;padding:.4em .6em;max-height:24em;overflow:auto;"
    "background:rgba(128,128,128,.1);border-radius:4px;font-size:.9em;line-height:1.35;font-family:monospace"
)
"""How everything looks that is shown as it is; it can be read without it, too."""

_TAG_BEGINS: Final = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,})([^`\n]*)")


def markdown_to_html(text: str) -> str:
    """Return Markdown as HTML.

    HTML in it is shown as text, pictures become links, and links lead only to addresses that are no scripts. Without
    the package `markdown-it-py` the text is shown as it is.
    """
    renderer = _renderer()
    if renderer is None:
        return f'<div style="white-space:pre-wrap">{escape(visible(text))}</div>'
    html: str = renderer.render(visible(text))
    return html


@lru_cache(maxsize=1)
def _renderer() -> Any:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return None
    # A picture would be fetched as soon as it is shown, which tells its server what the model put into the address.
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    renderer.add_render_rule("link_open", _link)
    renderer.add_render_rule("fence", _code)
    renderer.add_render_rule("code_block", _code)
    return renderer


def _code(self: Any, tokens: Any, at: int, options: Any, environment: Any) -> str:
    return f'<pre style="{CODE_STYLE}">{escape(tokens[at].content)}</pre>\n'


def _link(self: Any, tokens: Any, at: int, options: Any, environment: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    html: str = self.renderToken(tokens, at, options, environment)
    return html


def without_html(text: str) -> str:
    """Return Markdown in which no HTML is left: a tag shows as text, for every renderer of Markdown.

    Only what stands in fences of our own making is left as it is. Their lines are unlike any in the text, so that
    renderers cannot disagree about where one ends.
    """
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+|~+", text)), default=0)
    fence = "`" * max(12, longest + 1)
    lines: list[str] = []
    open_fence: re.Match[str] | None = None
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line.rstrip())
        if open_fence is None and match:
            lines += ["", fence + re.sub(r"[^\w+-]", "", match[3].split(" ")[0])]
            open_fence = match
        elif open_fence is not None and match and _closes(open_fence, match):
            lines += [fence, ""]
            open_fence = None
        elif open_fence is not None:
            lines.append(line)
        else:
            lines.append(_TAG_BEGINS.sub("&lt;", line.replace("```", "\\`\\`\\`").replace("~~~", "\\~\\~\\~")))
    if open_fence is not None:
        lines += [fence, ""]
    return "\n".join(lines)


def _closes(opening: re.Match[str], line: re.Match[str]) -> bool:
    return line[2][0] == opening[2][0] and len(line[2]) >= len(opening[2]) and not line[3].strip()
