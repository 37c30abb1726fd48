"""The edit tool: replaces pieces of a text file, and leaves every other byte as it is."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable
from typing import Any, Final

import attrs

from agentcore._records import Record
from agentcore.abort import AbortSignal
from agentcore.toolkit._aliases import PATH_ALIASES, with_canonical_names
from agentcore.toolkit._atomic import replace_content
from agentcore.toolkit._diff import unified_diff
from agentcore.toolkit._file_locks import exclusive_use
from agentcore.toolkit._files import opened
from agentcore.toolkit._matching import Edit, Match, applied, find_matches
from agentcore.toolkit._paths import Place
from agentcore.toolkit._results import Refusal, encoded, failed, reported, signal_or_idle, stop_if_aborted
from agentcore.toolkit._truncate import count_of, size_of
from agentcore.tools import AgentTool, AgentToolResult, OnUpdate

__all__ = ["Edit", "EditToolDetails", "EditToolInput", "EditToolOptions", "create_edit_tool"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024

_ALIASES: Final = {
    **dict.fromkeys(("old_text", "oldText", "old_string", "oldString", "old_str"), "find"),
    **dict.fromkeys(("new_text", "newText", "new_string", "newString", "new_str", "replace"), "replacement"),
    "replaceAll": "replace_all",
}


def _as_tuple(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    return tuple(edits)


@attrs.frozen(repr=False)
class EditToolInput(Record):
    """What to edit: one replacement, or several in `edits`."""

    path: str
    find: str = ""
    replacement: str = ""
    replace_all: bool = False
    edits: tuple[Edit, ...] = attrs.field(default=(), converter=_as_tuple)


@attrs.frozen(repr=False)
class EditToolDetails(Record):
    """What was changed, the text of the file before and after (without a byte order mark), and a unified diff."""

    edits: tuple[Edit, ...] = attrs.field(converter=_as_tuple)
    before_content: str
    after_content: str
    diff: str = ""


@attrs.frozen(kw_only=True, repr=False)
class EditToolOptions(Record):
    """Where the edit tool edits, and how large a file may be.

    Relative paths start in `cwd` (the process's working directory if unset); with a `root` nothing outside it is
    touched, symlinks included.
    """

    cwd: str | os.PathLike[str] | None = None
    root: str | os.PathLike[str] | None = None
    max_file_size: int = attrs.field(default=MAX_FILE_BYTES, validator=attrs.validators.ge(1))
    context: Any = None


_ONE_EDIT: Final = {
    "find": {
        "type": "string",
        "description": "The text to replace, exactly as it is in the file, without line numbers. It must occur once; "
        "add lines around it until it does.",
    },
    "replacement": {"type": "string", "description": "What to put in its place; empty to delete it."},
    "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default: false."},
}


def create_edit_tool(options: EditToolOptions | None = None) -> AgentTool:
    """Return a tool that edits text files; raises `ValueError` if the options' folders cannot be used."""
    options = options or EditToolOptions()
    return AgentTool(
        name="edit",
        label="edit",
        description=(
            "Replace text in a file. Give either `find` and `replacement`, or several of both in `edits`, which are "
            "all looked for in the file as it is now. Either all of them are made or none."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The path of the file."},
                **_ONE_EDIT,
                "edits": {
                    "type": "array",
                    "description": "Several replacements in one file. They may not overlap.",
                    "items": {"type": "object", "properties": _ONE_EDIT, "required": ["find", "replacement"]},
                },
            },
            "required": ["path"],
        },
        execute=_Edit(options, Place.make(options.cwd, options.root)).execute,
        prepare_arguments=_prepare_arguments,
        context=options.context,
    )


def _prepare_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in the form of the schema, as far as they can be understood."""
    prepared = with_canonical_names(arguments, {**PATH_ALIASES, **_ALIASES})
    if not isinstance(prepared, dict) or prepared.get("edits") is None:
        return prepared  # type: ignore[no-any-return]
    edits = prepared["edits"]
    if isinstance(edits, str):
        try:
            edits = json.loads(edits, strict=False)  # models leave line feeds in strings as they are
        except ValueError:
            return prepared  # the schema says what is wrong
    if isinstance(edits, dict):
        edits = [edits]
    if isinstance(edits, list):
        edits = [with_canonical_names(edit, _ALIASES) for edit in edits]
    return {**prepared, "edits": edits}


class _Edit:
    def __init__(self, options: EditToolOptions, place: Place) -> None:
        self.options = options
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
            edits = what.edits or (Edit(what.find, what.replacement, what.replace_all),)
            for edit in edits:
                encoded(edit.replacement, "replacement")
            target = self.place.existing(what.path)
            with (
                reported("edit", what.path),
                target.folder() as (folder, name),
                exclusive_use(folder, name, signal),
            ):
                data, old = self._content(folder, name, what.path)
                mark, text = _decoded(data, what.path)
                matches = find_matches(text, edits, what.path)
                after = applied(text, matches)

                def still_wanted() -> None:
                    stop_if_aborted(signal)
                    _refuse_if_changed(folder, name, old, what.path)

                replace_content(folder, name, mark + after.encode(), old, still_wanted)
        except Refusal as refusal:
            return failed(str(refusal))
        details = EditToolDetails(edits, text, after, unified_diff(text, matches, what.path))
        return AgentToolResult(f"Edit applied: {what.path} ({_places(text, matches)})", details)

    def _content(self, folder: int | None, name: str, given: str) -> tuple[bytes, os.stat_result]:
        with opened(folder, name, given) as file:
            found = os.fstat(file.fileno())
            most = self.options.max_file_size
            # Files of the kernel can have any length though they say they have none.
            data = b"" if found.st_size > most else file.read(most + 1)
            if max(found.st_size, len(data)) > most:
                raise Refusal(
                    f"{given} is too large to edit ({size_of(max(found.st_size, len(data)))}; at most "
                    f"{size_of(most)}). Nothing was changed. Use bash and `sed`."
                )
            return data, found


def _input(params: dict[str, Any]) -> EditToolInput:
    path, find, replacement = params.get("path"), params.get("find"), params.get("replacement")
    replace_all, edits = params.get("replace_all") or False, params.get("edits")
    if not isinstance(path, str):
        raise Refusal("`path` is missing. Nothing was changed. Give the path of the file to edit.")
    if edits and (find or replacement):
        raise Refusal("Give either `find` and `replacement` or `edits`, not both. Nothing was changed.")
    if edits:
        # Models fill what they do not use with empty text; and they say once what is to hold for every edit.
        common = {"replace_all": replace_all}
        given = [{**common, **edit} if isinstance(edit, dict) else edit for edit in edits]
        return EditToolInput(path, edits=[_edit(edit, f"edits[{number}]") for number, edit in enumerate(given)])
    edit = _edit({"find": find, "replacement": replacement, "replace_all": replace_all}, "")
    return EditToolInput(path, edit.find, edit.replacement, edit.replace_all)


def _edit(value: Any, where: str) -> Edit:
    dot = f"{where}." if where else ""
    if not isinstance(value, dict):
        raise Refusal(f"`{where}` must be an object with `find` and `replacement`. Nothing was changed.")
    for name, meaning in (("find", "the text to replace"), ("replacement", "what to put in its place")):
        if not isinstance(value.get(name), str):
            raise Refusal(f"`{dot}{name}` is missing. Nothing was changed. Give {meaning}, as text.")
    return Edit(value["find"], value["replacement"], value.get("replace_all") is True)


def _decoded(data: bytes, given: str) -> tuple[bytes, str]:
    """Return the byte order mark, if there is one, and the text."""
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        return mark, data[len(mark) :].decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(mark) + error.start) + 1
        raise Refusal(
            f"{given} is not UTF-8 text (first at line {line}: byte 0x{data[len(mark) + error.start]:02x}), and "
            "changing it as text would damage it. Nothing was changed. Use bash: `sed` or `perl` on the bytes, or "
            "`iconv` if the whole file may change its encoding."
        ) from None


def _refuse_if_changed(folder: int | None, name: str, old: os.stat_result, given: str) -> None:
    """Refuse to overwrite what somebody else has written since the file was read."""
    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (old.st_ino, old.st_size, old.st_mtime_ns):
        raise Refusal(f"{given} was changed by another program meanwhile. Nothing was changed. Read it and try again.")


def _places(text: str, matches: list[Match]) -> str:
    lines = [text.count("\n", 0, match.start) + 1 for match in matches[:10]]
    more = ", …" if len(matches) > len(lines) else ""
    where = "line" if len(lines) == 1 else "lines"
    return f"{count_of(len(matches), 'replacement')}, at {where} {', '.join(map(str, lines))}{more}"
