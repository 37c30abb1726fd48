"""Values, conversations and runs as HTML: readable, and unable to run or load anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentcore import (
    Agent,
    AgentToolResult,
    AssistantMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ErrorInfo,
    ImageContent,
    ProviderContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.display import _markdown
from agentcore.display._html import progress_html
from agentcore.display._markdown import markdown_to_html, without_html
from agentcore.display._progress import RunProgress
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.display.display_support import HOSTILE, HOSTILE_MARKDOWN, full_agent, hostile_agent, png

HARMLESS_TAGS = set(
    "div span p b i em strong s code pre ul ol li h1 h2 h3 h4 h5 h6 blockquote hr br table thead tbody tr th td a img "
    "details summary".split()
)
VOID_TAGS = {"img", "br", "hr"}


class Page(HTMLParser):
    """Reads HTML; keeps its text, its links and pictures, and what should not be there."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.problems: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in HARMLESS_TAGS:
            self.problems.append(f"<{tag}>")
        for name, value in attrs:
            if name == "href":
                self.links.append(value or "")
            elif name == "src":
                self.pictures.append(value or "")
            elif name not in ("style", "class", "title", "alt", "open", "rel", "target", "start"):
                self.problems.append(f"{tag} {name}={value}")
            if "url(" in (value or "") and name == "style":
                self.problems.append(f"{tag} {name}={value}")
        if tag not in VOID_TAGS:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"<!--{data}-->")


def page(html: str) -> Page:
    """Read HTML that must be harmless."""
    read = Page(html)
    assert read.problems == []
    assert all(link.startswith(("https://", "http://", "mailto:")) or ":" not in link for link in read.links)
    assert all(re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", one) for one in read.pictures)
    assert not [char for char in html if char not in "\n\t" and (ord(char) < 32 or 127 <= ord(char) < 160)]
    assert html.encode("utf-8")
    return read


def run(agent: Agent, *prompts: str) -> RunProgress:
    progress = RunProgress()
    agent.subscribe(lambda event, signal: progress.take(event))
    for prompt in prompts:
        agent.prompt(prompt)
    return progress


# --- values ---------------------------------------------------------------------------------------------------------


def test_a_message_shows_its_text_as_markdown_its_thinking_and_its_calls() -> None:
    message = AssistantMessage(
        [
            ThinkingContent("Hmm <b>."),
            TextContent(
                "# Title\n\nsome **bold** `code`\n\n```python\nprint('<x>')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
            ),
            ToolCall("c1", "read", {"path": "a.txt"}),
            ProviderContent("p", "a", {"x": 1}),
        ],
        provider="p",
        model="m",
        usage=Usage(input=10, output=5, cost={"total": 0.5}),
    )

    html = message._repr_html_()

    text = page(html).text
    assert "<h1>Title</h1>" in html
    assert "<strong>bold</strong> <code>code</code>" in html
    assert "<td>1</td>" in html
    assert "print('<x>')" in text
    assert "Hmm <b>." in text
    assert "p/m · 10 tokens in, 5 out, $0.5000" in text
    assert "<b>read</b> <code>a.txt</code>" in html
    assert "waiting" not in text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            AssistantMessage("Half", stop_reason="error", error=ErrorInfo("timeout", "no <answer>")),
            "error: no <answer>",
        ),
        (AssistantMessage("Half", stop_reason="aborted"), "stopped"),
        (AssistantMessage("Half", stop_reason="length"), "cut off: the reply reached the longest"),
    ],
)
def test_a_message_says_why_it_ended(message: AssistantMessage, text: str) -> None:
    assert text in page(message._repr_html_()).text


def test_a_usage_is_a_table_with_costs_only_where_they_are_known() -> None:
    known = page(
        Usage(input=1000, output=5, cache_read=7, reasoning=3, cost={"input": 0.25, "total": 0.5})._repr_html_()
    )
    unknown = page(Usage(input=1000, output=5)._repr_html_())

    assert "input1,0000.250000" in known.text
    assert "cache read7" in known.text
    assert "of the output 3 for reasoning" in known.text
    assert "total1,0120.500000" in known.text
    assert "USD" not in unknown.text
    assert "cache" not in unknown.text


@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_shows_text_diff_and_pictures(is_error: bool) -> None:
    content = [TextContent("It is <done>."), ImageContent(png(), "image/png")]
    details = {"diff": "--- a\n+++ a\n-x<\n+y\n"}
    for result in (
        AgentToolResult(content, details, is_error=is_error),
        ToolResultMessage("c1", "edit", content, details, is_error=is_error),
    ):
        read = page(result._repr_html_())
        assert "It is <done>." in read.text
        assert ("-x<" in read.text) is not is_error
        assert ("failed" in read.text) is is_error
        assert read.pictures == [f"data:image/png;base64,{png()}"]


@pytest.mark.parametrize(
    "image",
    [
        ImageContent('"><script>1</script>', "image/png"),
        ImageContent("PHN2Zz4=", "image/svg+xml"),
        ImageContent("AAAA", "text/html"),
        ImageContent("AAAA", 'image/png" onload="x'),
    ],
)
def test_a_picture_that_is_none_is_named_and_not_shown(image: ImageContent) -> None:
    read = page(AgentToolResult([image])._repr_html_())

    assert read.pictures == []
    assert "[image " in read.text


def test_an_agent_shows_its_conversation_with_the_results_of_its_calls(tmp_path: Path) -> None:
    agent = full_agent(tmp_path)
    agent.prompt("Improve the plan.")
    agent.prompt("More.")

    read = page(agent._repr_html_())

    for text in ("scripted/scripted-1", "idle · bash, read, write, edit, draw", "Improve the plan.", "+buy cheese"):
        assert text in read.text
    assert "error: the server is overloaded" in read.text
    assert len(read.pictures) == 1


def test_of_a_long_conversation_an_agent_shows_the_latest_part() -> None:
    agent = Agent(scripted_model(), messages=[UserMessage(f"message {number}") for number in range(40)])

    text = page(agent._repr_html_()).text

    assert "… 10 earlier messages" in text
    assert "message 9\n" not in text
    assert "message 39" in text


def test_every_kind_of_message_is_shown() -> None:
    class Own:
        role = "own<"
        timestamp = 0

        def to_dict(self) -> dict[str, object]:
            return {}

    messages = [
        CompactionSummaryMessage("They **talked**.", 10),
        UserMessage([TextContent("look"), ImageContent(png(), "image/png")]),
        CustomMessage("note", "shown"),
        CustomMessage("note", "hidden", display=False),
        Own(),
    ]

    read = page(Agent(scripted_model(), messages=messages)._repr_html_())

    for text in ("They talked.", "look", "shown", "[own<]"):
        assert text in read.text
    assert "hidden" not in read.text
    assert len(read.pictures) == 1


def test_a_very_long_text_is_cut_in_the_middle_and_says_so() -> None:
    text = page(AgentToolResult("a" * 15_000 + "b" * 15_000)._repr_html_()).text

    assert "… 10,000 characters not shown …" in text
    assert len(text) < 21_000


def test_only_values_of_these_kinds_have_a_display_of_their_own() -> None:
    from agentcore.display._values import html_of

    with pytest.raises(TypeError, match="str is not shown in a way of its own"):
        html_of("text")


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_shows_what_happened_in_order_and_what_it_took(tmp_path: Path) -> None:
    text = page(progress_html(run(full_agent(tmp_path), "Improve.", "More."))).text

    order = [
        "Improve.",
        "thinking",
        "draw a picture",
        "edit",
        "+buy cheese",
        "bash",
        "failed",
        "Done",
        "4,000 tokens",
    ]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert "error: the server is overloaded" in text


def test_a_run_shows_what_is_going_on_now() -> None:
    progress = RunProgress()
    seen: list[str] = []
    gate = Gate()
    model = scripted(reply("One word", call("missing"), chunk=4, gates={2: gate}), "Done.")
    agent = Agent(scripted_model(), stream_fn=model)

    def look(event: object, signal: object) -> None:
        progress.take(event)  # type: ignore[arg-type]
        seen.append(page(progress_html(progress)).text)

    agent.subscribe(look)
    gate.open()
    agent.prompt("go")

    assert "… waiting for the model" in seen[0]
    assert any("One" in text and "One word" not in text for text in seen)
    assert any("missing waiting" in text for text in seen)
    assert any("missing running · 0.0s" in text for text in seen)
    assert "missing failed · 0.0s" in seen[-1]
    assert "waiting" not in seen[-1]


def test_calls_of_a_response_that_was_stopped_are_shown_as_not_run() -> None:
    message = AssistantMessage([ToolCall("c1", "bash", {})], stop_reason="aborted")

    assert "not run" in page(Agent(scripted_model(), messages=[message])._repr_html_()).text


# --- Markdown -------------------------------------------------------------------------------------------------------


def test_markdown_runs_and_loads_nothing() -> None:
    read = page(markdown_to_html(HOSTILE_MARKDOWN))

    assert read.pictures == []
    assert read.links == ["https://example.invalid/secret.png"]
    assert "<script>document.title='executed'</script>" in read.text


def test_links_say_nothing_about_where_they_were_clicked() -> None:
    html = markdown_to_html("[a](https://example.invalid/) <https://example.invalid/b>")

    assert html.count('rel="noopener noreferrer nofollow" target="_blank"') == 2


def test_without_the_markdown_package_the_text_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "markdown_it", None)
    _markdown._renderer.cache_clear()
    try:
        read = page(markdown_to_html(f"**bold**\n{HOSTILE}"))
    finally:
        monkeypatch.undo()
        _markdown._renderer.cache_clear()

    assert "**bold**\n" in read.text
    assert "<script>" in read.text


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("a **b** <i>c</i> 1 < 2", "a **b** &lt;i>c&lt;/i> 1 < 2"),
        ("```html\n<i>\n```\nx", "\n````````````html\n<i>\n````````````\n\nx"),
        ("~~~~\n```\n<i>\n~~~~", "\n````````````\n```\n<i>\n````````````\n"),
        ("```\n<i>", "\n````````````\n<i>\n````````````\n"),
        ("- ```\n  <i>\n  ```\n<b>", "- \\`\\`\\`\n  &lt;i>\n\n````````````\n<b>\n````````````\n"),
        ("`" * 14 + "\n<i>", "\n" + "`" * 15 + "\n<i>\n" + "`" * 15 + "\n"),
        ("x ```` y <b>", "x \\`\\`\\`` y &lt;b>"),
        ("``` <i>\n<i>", "\n````````````\n<i>\n````````````\n"),
        ("a\x1b[0m", "a␛[0m"),
    ],
)
def test_markdown_for_others_to_render_has_no_html_outside_its_own_fences(text: str, markdown: str) -> None:
    assert without_html(text) == markdown


@pytest.mark.parametrize(
    "text", [HOSTILE, HOSTILE_MARKDOWN, "- ```\n  x\n  ```\n<script>", "~~~\n<b>\n```\n~~~\n<script>"]
)
def test_markdown_for_others_to_render_shows_no_html_in_a_renderer_that_would(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    rendered = markdown_it.MarkdownIt("commonmark", {"html": True}).render(AssistantMessage(text)._repr_markdown_())

    assert not re.search(r"<(script|svg|b|img[^>]*onerror)\b", rendered)


def test_a_message_that_failed_says_so_in_markdown_and_a_result_has_none() -> None:
    failed = AssistantMessage("Half", stop_reason="error", error=ErrorInfo("timeout", "no <answer>"))

    assert failed._repr_markdown_() == "Half\n\nno &lt;answer>"
    assert Usage(input=1, output=2)._repr_markdown_() == "1 tokens in, 2 out"
    assert AgentToolResult("x")._repr_markdown_() is None


# --- hostile texts --------------------------------------------------------------------------------------------------


def hostile_pages() -> list[str]:
    agent = hostile_agent()
    progress = run(agent, HOSTILE)
    values = [*agent.messages, AgentToolResult(HOSTILE, {"diff": HOSTILE}), AgentToolResult(HOSTILE, is_error=True)]
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    return [progress_html(progress), agent._repr_html_(), *shown]


def test_hostile_texts_are_text_and_nothing_else_in_every_display() -> None:
    pages = hostile_pages()

    assert len(pages) >= 8
    for html in pages:
        text = page(html).text
        assert "[/bold] [red]x[/red] {braces} {0} %s </details></summary></pre></div> <script>" in text
        assert "\u202e" not in text
        assert "mathjax_ignore" in html


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed: no page can be opened")
def test_a_browser_runs_nothing_of_a_page_with_hostile_texts(tmp_path: Path) -> None:
    body = "\n".join(hostile_pages())
    check = "<script>document.body.append(document.title + ' ' + document.querySelectorAll('img').length)</script>"
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><title>untouched</title><body>{body}{check}", "utf-8")

    done = subprocess.run(
        [
            *["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"],
            *["--virtual-time-budget=3000", "--dump-dom", path.as_uri()],
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "<title>untouched</title>" in done.stdout, done.stderr
    assert "untouched 0</body>" in done.stdout
