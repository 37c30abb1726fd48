"""The write tool: makes a file, or replaces all of its content."""

from __future__ import annotations

import codecs
import os
from functools import partial
from typing import Any, Final

import attrs

from agentcore._records import Record
from agentcore.abort import AbortSignal
from agentcore.toolkit._aliases import PATH_ALIASES, with_canonical_names
from agentcore.toolkit._atomic import replace_content
from agentcore.toolkit._file_locks import exclusive_use
from agentcore.toolkit._files import opened
from agentcore.toolkit._paths import Place
from agentcore.toolkit._results import Refusal, encoded, failed, reported, signal_or_idle, stop_if_aborted
from agentcore.toolkit._truncate import count_of
from agentcore.tools import AgentTool, AgentToolResult, OnUpdate

__all__ = ["WriteToolInput", "WriteToolOptions", "create_write_tool"]

_SAMPLE: Final = 64 * 1024


@attrs.frozen(repr=False)
class WriteToolInput(Record):
    """What to write, and where."""

    path: str
    content: str


@attrs.frozen(kw_only=True, repr=False)
class WriteToolOptions(Record):
    """Where the write tool writes.

    Relative paths start in `cwd` (the process's working directory if unset); with a `root` nothing outside it is
    written, symlinks included.
    """

    cwd: str | os.PathLike[str] | None = None
    root: str | os.PathLike[str] | None = None
    context: Any = None


def create_write_tool(options: WriteToolOptions | None = None) -> AgentTool:
    """Return a tool that writes whole files; raises `ValueError` if the options' folders cannot be used."""
    options = options or WriteToolOptions()
    return AgentTool(
        name="write",
        label="write",
        description=(
            "Write a file: make it, with the folders on the way, or replace all of its content. "
            "To change a part of a file, use `edit`."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The path of the file."},
                "content": {"type": "string", "description": "The whole content; empty for an empty file."},
            },
            "required": ["path", "content"],
        },
        execute=_Write(Place.make(options.cwd, options.root)).execute,
        prepare_arguments=partial(with_canonical_names, aliases=PATH_ALIASES),
        context=options.context,
    )


class _Write:
    def __init__(self, place: Place) -> None:
        self.place = place

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
            what = _input(params)
            data = encoded(what.content, "content")
            target = self.place.new_or_existing(what.path)
            with (
                reported("write", what.path),
                target.folder(create=True) as (folder, name),
                exclusive_use(folder, name, signal),
            ):
                old, sample = _look_at(folder, name, what.path)
                data, note = _in_the_encoding_of(sample, what.content, data)
                replace_content(folder, name, data, old, partial(stop_if_aborted, signal))
        except Refusal as refusal:
            return failed(str(refusal))
        return AgentToolResult(f"File written: {what.path} ({count_of(len(data), 'byte')}){note}")


def _input(params: dict[str, Any]) -> WriteToolInput:
    path, content = params.get("path"), params.get("content")
    if not isinstance(path, str):
        raise Refusal("`path` is missing. Nothing was written. Give the path of the file.")
    if not isinstance(content, str):
        raise Refusal(
            "`content` is missing. Nothing was written. Give the whole content of the file, as text; "
            "for an empty file give an empty text."
        )
    return WriteToolInput(path, content)


def _look_at(folder: int | None, name: str, given: str) -> tuple[os.stat_result | None, bytes]:
    """Return what is known of the file that is there, and how it begins."""
    try:
        with opened(folder, name, given) as file:
            return os.fstat(file.fileno()), file.read(_SAMPLE)
    except FileNotFoundError:
        return None, b""
    except PermissionError:
        # Nothing says that who may write may also read.
        return os.stat(name, dir_fd=folder, follow_symlinks=False), b""


def _in_the_encoding_of(sample: bytes, content: str, data: bytes) -> tuple[bytes, str]:
    """Return the bytes to write, and what the model should know about them."""
    if sample.startswith(codecs.BOM_UTF8):
        # The read tool does not show the mark, so a model cannot give it back.
        return (data if data.startswith(codecs.BOM_UTF8) else codecs.BOM_UTF8 + data), ""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if sample.startswith(mark):
            return mark + content.removeprefix("\ufeff").encode(encoding), ". It is UTF-16, as it was before."
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return data, ". It is UTF-8 now; before, it was in another encoding."
    if b"\r\n" in sample and b"\n" in data and b"\r\n" not in data:
        return data, ". Its lines end with LF now; before, they ended with CRLF."
    return data, ""
