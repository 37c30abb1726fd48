"""The read tool: gives a part of a text file, or an image, to the model."""

from __future__ import annotations

import base64
import codecs
import os
import shlex
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from typing import Any, Final

import attrs

from agentcore._records import Record
from agentcore.abort import AbortSignal
from agentcore.content import ContentBlock, ImageContent, as_blocks
from agentcore.messages import Usage
from agentcore.toolkit._aliases import PATH_ALIASES, with_canonical_names
from agentcore.toolkit._files import opened
from agentcore.toolkit._paths import Place, Target
from agentcore.toolkit._results import Refusal, call_hook, failed, reported, signal_or_idle, stop_if_aborted
from agentcore.toolkit._truncate import MAX_BYTES, MAX_LINES, Head, Truncation, count_of, size_of
from agentcore.tools import AgentTool, AgentToolResult, OnUpdate

__all__ = [
    "ReadImageProcessor",
    "ReadImageProcessorResult",
    "ReadPrepare",
    "ReadToolDetails",
    "ReadToolInput",
    "ReadToolOptions",
    "create_read_tool",
]

MAX_IMAGE_BYTES: Final = 3_932_160
"""The largest image that all providers take: 5 MiB in base64."""

_BLOCK: Final = 1024 * 1024
_SAMPLE: Final = 8 * 1024
_COUNTED_BEYOND: Final = 16 * _BLOCK
_MOST_REPLACED: Final = 0.3

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
LINE_END: Final = "\n"


@attrs.frozen(repr=False)
class ReadToolInput(Record):
    """What to read: `offset` is the first line, from 1; `limit` the number of lines."""

    path: str
    offset: int | None = None
    limit: int | None = None


@attrs.frozen
class ReadPrepare:
    """A function that may change what is read, with the context it wants instead of the tool's own.

    `function(input, context, signal)` returns a `ReadToolInput`, or `None` to leave it as it is.
    """

    function: Callable[[ReadToolInput, Any, AbortSignal], ReadToolInput | None]
    context: Any = None

    def __call__(self, what: ReadToolInput, context: Any, signal: AbortSignal) -> ReadToolInput | None:
        """Call the function."""
        return self.function(what, context if self.context is None else self.context, signal)


@attrs.frozen(repr=False)
class ReadImageProcessorResult(Record):
    """What stands for an image: content (str, block or blocks), and what a model that made it has used."""

    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    usage: Usage | None = None


@attrs.frozen
class ReadImageProcessor:
    """A function that turns an image file into content, with the context it wants instead of the tool's own.

    `function(path, context)` returns a `ReadImageProcessorResult`.
    """

    function: Callable[[str, Any], ReadImageProcessorResult]
    context: Any = None

    def __call__(self, path: str, context: Any) -> ReadImageProcessorResult:
        """Call the function."""
        return self.function(path, context if self.context is None else self.context)


@attrs.frozen(repr=False)
class ReadToolDetails(Record):
    """The file's size in bytes, whether something of it was left out, its real path, and what was left out."""

    size: int
    truncated: bool
    full_path: str
    truncation: Truncation | None = None


@attrs.frozen(repr=False)
class ReadToolOptions(Record):
    """How the read tool reads files.

    At most `max_size` bytes and `max_lines` lines of text are given at a time (`None`: the defaults, 50 KiB and 2,000).
    `image_processor(path, context)` may turn an image into other content, for example a smaller image; without one an
    image of at most `max_image_size` bytes is given as it is. `prepare(input, context, signal)` may change what is
    read by returning another `ReadToolInput`; if it fails, nothing is read. Relative paths start in `cwd` (the
    process's working directory if unset); with a `root` nothing outside it is read, symlinks included.
    """

    max_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    max_lines: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    image_processor: Callable[[str, Any], ReadImageProcessorResult] | None = None
    prepare: Callable[[ReadToolInput, Any, AbortSignal], ReadToolInput | None] | None = None
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    root: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    max_image_size: int = attrs.field(default=MAX_IMAGE_BYTES, kw_only=True)
    context: Any = attrs.field(default=None, kw_only=True)


def create_read_tool(options: ReadToolOptions | None = None) -> AgentTool:
    """Return a tool that reads text files and images; raises `ValueError` if the options' folders cannot be used."""
    options = options or ReadToolOptions()
    max_lines, max_size = options.max_lines or MAX_LINES, options.max_size or MAX_BYTES
    reader = _Read(options, Place.make(options.cwd, options.root), max_lines, max_size)
    return AgentTool(
        name="read",
        label="read",
        description=(
            f"Read a text file, or look at an image (PNG, JPEG, GIF, WebP). At most {max_lines:,} lines or "
            f"{size_of(max_size)} are given at a time; the result says how to go on."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The path of the file."},
                "offset": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The number of the first line to read; the first line of a file is 1.",
                },
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read at most."},
            },
            "required": ["path"],
        },
        execute=reader.execute,
        prepare_arguments=partial(with_canonical_names, aliases=PATH_ALIASES),
        context=options.context,
    )


class _Read:
    def __init__(self, options: ReadToolOptions, place: Place, max_lines: int, max_size: int) -> None:
        self.options = options
        self.place = place
        self.max_lines = max_lines
        self.max_size = max_size

    def execute(
        self,
        tool_call_id: str,
        params: dict[str, Any],
        signal: AbortSignal | None,
        on_update: OnUpdate | None,
        context: Any,
    ) -> AgentToolResult:
        signal = signal_or_idle(signal)
        try:
            what = self._input(params, context, signal)
            target = self.place.existing(what.path)
            with (
                reported("read", what.path),
                target.folder() as (folder, name),
                opened(folder, name, what.path) as file,
            ):
                size = os.fstat(file.fileno()).st_size
                sample = file.read(_SAMPLE)
                mime_type = _image_type(sample)
                if mime_type is not None:
                    return self._image(target, file, size, mime_type, context)
                _refuse_binary(target, size, sample)
                file.seek(len(codecs.BOM_UTF8) if sample.startswith(codecs.BOM_UTF8) else 0)
                return self._text(target, file, size, what, signal)
        except Refusal as refusal:
            return failed(str(refusal))

    def _input(self, params: dict[str, Any], context: Any, signal: AbortSignal) -> ReadToolInput:
        path: Any = params.get("path")
        what = _checked(ReadToolInput(path, params.get("offset"), params.get("limit")))
        if self.options.prepare is not None:
            what = _checked(call_hook("prepare", self.options.prepare, ReadToolInput, what, context, signal) or what)
        return what

    def _image(self, target: Target, file: BufferedReader, size: int, mime_type: str, context: Any) -> AgentToolResult:
        details = ReadToolDetails(size, False, target.path)
        if self.options.image_processor is not None:
            result = call_hook(
                "image_processor", self.options.image_processor, ReadImageProcessorResult, target.path, context
            )
            if result is not None:
                return AgentToolResult(result.content, details, result.usage)
        if size > self.options.max_image_size:
            raise Refusal(
                f"{target.given} is an image of {size_of(size)}; at most {size_of(self.options.max_image_size)} can "
                "be shown. Make a smaller copy and read that."
            )
        file.seek(0)
        data = base64.b64encode(file.read(self.options.max_image_size)).decode("ascii")
        return AgentToolResult(ImageContent(data, mime_type), details)

    def _text(
        self, target: Target, file: BufferedReader, size: int, what: ReadToolInput, signal: AbortSignal
    ) -> AgentToolResult:
        first = what.offset or 1
        skipped = _skip_lines(file, first - 1, signal)
        if first > 1 and not file.peek(1):
            raise Refusal(f"`offset` {first} is past the end of {target.given}, which has {count_of(skipped, 'line')}.")
        head = Head(min(self.max_lines, what.limit or self.max_lines), self.max_size)
        start = file.tell()
        part, undecodable = _take_lines(file, head)
        text = "".join(head.lines)
        if "\0" in text:
            raise Refusal(_binary(target, size, "it holds NUL bytes"))
        notes = [] if undecodable is None else [_undecodable_note(first + undecodable)]
        truncation = None
        if head.limit is not None:
            more = _count_lines(file, signal, inside_line=part is not None)
            last = first - 1 + len(head.lines)
            truncation = Truncation(
                kept="head",
                limit=head.limit,
                shown_lines=len(head.lines),
                shown_bytes=head.size,
                total_lines=None if more is None else last + more,
                total_bytes=size,
                partial_line=part is not None,
            )
            total = f"of {last + more:,}" if more is not None else f"of a file of {size_of(size)}"
            if part is not None:
                notes.append(_part_note(target, last, start, part, total, more))
            else:
                notes.append(f"Lines {first}-{last} {total}. Continue with offset={last + 1}.")
        if not text and truncation is None:
            text = "(the file is empty)"
        if notes:
            text = f"{text}{'' if text.endswith(LINE_END) else LINE_END}{LINE_END}[{' '.join(notes)}]"
        return AgentToolResult(text, ReadToolDetails(size, truncation is not None, target.path, truncation))


def _checked(what: ReadToolInput) -> ReadToolInput:
    """Return what to read if it can be that: the types are what a model or a hook has made of them."""
    if not isinstance(what.path, str):
        raise Refusal("`path` is missing. Give the path of the file to read.")
    numbers: dict[str, Any] = {"offset": what.offset, "limit": what.limit}
    for name, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise Refusal(f"`{name}` is a whole number from 1, not {value!r}.")
    return what


def _image_type(sample: bytes) -> str | None:
    """Return the MIME type of an image that models can look at, told by how it begins."""
    if sample.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if sample.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if sample.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if sample.startswith(b"RIFF") and sample[8:12] == b"WEBP":
        return "image/webp"
    return None


def _refuse_binary(target: Target, size: int, sample: bytes) -> None:
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        path = shlex.quote(target.path)
        raise Refusal(
            f"{target.given} is UTF-16 text, and this tool reads UTF-8. Use bash: `iconv -f UTF-16 -t UTF-8 {path}`."
        )
    if sample.startswith(b"%PDF-"):
        raise Refusal(_binary(target, size, "it is a PDF"))
    if b"\0" in sample:
        raise Refusal(_binary(target, size, "it holds NUL bytes"))
    text = sample.decode(errors="replace")
    if text.count(REPLACEMENT) > _MOST_REPLACED * len(text):
        raise Refusal(_binary(target, size, "most of it is not UTF-8"))


def _binary(target: Target, size: int, why: str) -> str:
    return (
        f"{target.given} is not a text file: {why} ({size_of(size)}). "
        "Use bash and a program that knows its format, or `xxd` or `strings` for a look inside."
    )


def _skip_lines(file: BufferedReader, lines: int, signal: AbortSignal) -> int:
    """Go to the beginning of a line, or to the end of the file; return how many lines are before it."""
    skipped = 0
    ends_inside = False
    while skipped < lines:
        stop_if_aborted(signal)
        block = file.read(_BLOCK)
        if not block:
            return skipped + ends_inside
        found = block.count(b"\n")
        if skipped + found >= lines:
            position = -1
            for _ in range(lines - skipped):
                position = block.index(b"\n", position + 1)
            file.seek(position + 1 - len(block), os.SEEK_CUR)
            return lines
        skipped += found
        ends_inside = not block.endswith(b"\n")
    return skipped


def _take_lines(file: BufferedReader, head: Head) -> tuple[int | None, int | None]:
    """Take lines as long as they fit; of a first line that does not, a part.

    Return the length of that part in bytes, and the number (from 0) of the first line that is not UTF-8.
    """
    undecodable: int | None = None
    while line := file.readline(head.max_bytes + 1):
        text = line.decode(errors="replace")
        if undecodable is None and REPLACEMENT in text and not _is_utf8(line, cut=len(line) > head.max_bytes):
            undecodable = len(head.lines)
        if head.take(text):
            continue
        file.seek(-len(line), os.SEEK_CUR)
        if head.lines or head.limit == "lines":
            return None, None if undecodable == len(head.lines) else undecodable
        part = head.take_part(line)
        file.seek(part, os.SEEK_CUR)
        return part, undecodable
    return None, undecodable


def _is_utf8(line: bytes, *, cut: bool) -> bool:
    try:
        # A line that was cut may end inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(line, final=not cut)
    except UnicodeDecodeError:
        return False
    return True


def _count_lines(file: BufferedReader, signal: AbortSignal, *, inside_line: bool) -> int | None:
    """Return how many lines begin after the current position; `None` if that would take long to find out."""
    newlines, last, length = 0, b"", 0
    while block := file.read(_BLOCK):
        stop_if_aborted(signal)
        length += len(block)
        if length > _COUNTED_BEYOND:
            return None
        newlines += block.count(b"\n")
        last = block[-1:]
    if not length:
        return 0
    return newlines + (last != b"\n") - inside_line


def _undecodable_note(line: int) -> str:
    return (
        f"Not all of it is UTF-8: what does not decode is shown as {REPLACEMENT}, first in line {line}. "
        "`edit` cannot change this file."
    )


def _part_note(target: Target, line: int, start: int, part: int, total: str, more: int | None) -> str:
    path = shlex.quote(target.path)
    rest = f"tail -c +{start + part + 1} {path} | head -c {MAX_BYTES}"
    following = "" if more == 0 else f" The next line is at offset={line + 1}."
    return f"Line {line} {total} is too long: its first {part:,} bytes are shown. For more of it use bash: `{rest}`.{following}"
