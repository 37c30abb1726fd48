"""Decide which tool call a delta of Chat Completions belongs to, and whether it begins a new one.

By the API's own rule each delta carries the `index` of its call, and the first one its `id` and name. Imitators leave
any of them out, repeat them, count every call as 0, or give a new id or index with each delta. So no single field
decides. The rule:

1. A delta points to the call of its id and index, else of its id, else of its index; if it has neither, or both are
   new, to the last call.
2. Without a name it extends that call. It is a call of its own only if that call is complete, the id is a new one, and
   the text begins an object.
3. With another name than the call it points to it begins a call.
4. With the same name it extends the call as long as that is not complete. It begins another one if neither call has
   any arguments and id or index differ; or if both are new, unless text that begins no object goes on with arguments
   that were begun.
5. With the same name and a complete call it begins another one, if id or index differ or its text begins an object.
6. A delta that only says a complete call again is passed over: the same id and index, or none, with the same arguments
   or none. In the chunk that closes the response it need not say which call; after that chunk even id and index may
   differ. Arguments that were encoded twice are compared as what they hold.

A call is complete when the object that its arguments began has been closed. Where a call has been extended under another
id or index, that field of it no longer tells calls apart.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["CallMatcher"]

_TOKEN = re.compile(r'["\\{}\[\]]')
_STRING_TOKEN = re.compile(r'["\\]')
_NO_OBJECT = object()
"""The value of arguments that are no JSON object."""


class CallMatcher:
    """Gives each delta the number of its call, counted from 0.

    Threads: one thread at a time.
    """

    __slots__ = ("_before_chunk", "_by_id", "_by_index", "_calls", "_closed", "_closing")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, list[_Call]] = {}
        self._by_index: dict[int, _Call] = {}
        self._closing = False
        self._closed = False
        self._before_chunk = 0

    def begin_chunk(self, *, closing: bool) -> None:
        """Say that the deltas of another chunk follow; `closing` says that it ends the response."""
        self._closed = self._closing
        self._closing = self._closing or closing
        self._before_chunk = len(self._calls)

    def match(self, index: int | None, id: str, name: str, arguments: str) -> int | None:
        """Return the number of the call that a delta begins or extends; `None` for one that brings nothing new."""
        if not name and not self._closing and index is not None:
            known = self._by_index.get(index)
            if known is not None and (not id or id == known.id):
                return known.extend(index, id, arguments)
        if not (id or name or arguments):
            return None
        call, is_meant = self._pointed_to(index, id)
        if call is None:
            return self._new(index, id, name).extend(index, id, arguments)
        if self._says_again(call if is_meant else None, index, id, name, arguments):
            return None
        if _begins_another(call, is_meant, index, id, name, arguments):
            call = self._new(index, id, name)
        call.name = call.name or name
        if id and id not in self._by_id:
            self._by_id[id] = [call]
        return call.extend(index, id, arguments)

    def _new(self, index: int | None, id: str, name: str) -> _Call:
        call = _Call(len(self._calls), index, id, name)
        self._calls.append(call)
        if id:
            self._by_id.setdefault(id, []).append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _pointed_to(self, index: int | None, id: str) -> tuple[_Call | None, bool]:
        """Return the call a delta points to, and whether it does so by its id or index."""
        named = self._by_id.get(id, ()) if id else ()
        call = next((call for call in reversed(named) if call.index == index), named[-1] if named else None)
        if call is None and index is not None:
            call = self._by_index.get(index)
        if call is not None:
            return call, True
        return (self._calls[-1] if self._calls else None), False

    def _says_again(self, meant: _Call | None, index: int | None, id: str, name: str, arguments: str) -> bool:
        if meant is not None and meant.complete and name in ("", meant.name) and not meant.differs(index, id):
            if not arguments.strip():
                return True
            if id and meant.holds(_value(arguments)):
                return True
        if not self._closing:
            return False
        value = _value(arguments)
        return any(
            name in ("", call.name) and (self._closed or not call.differs(index, id)) and call.holds(value)
            for call in self._calls[: self._before_chunk]
        )


def _begins_another(call: _Call, is_meant: bool, index: int | None, id: str, name: str, arguments: str) -> bool:
    """Return whether a delta begins a call of its own rather than extend the one it points to."""
    begins_object = arguments.lstrip().startswith("{")
    if not name:
        return begins_object and call.has_other_id(id) and call.complete
    if call.name and name != call.name:
        return True
    if not is_meant:
        return begins_object or not call.begun or call.complete
    if call.complete:
        return begins_object or call.differs(index, id)
    return not call.begun and not arguments.strip() and call.differs(index, id)


class _Call:
    """One call, and how far its arguments have come."""

    __slots__ = (
        "_depth",
        "_in_string",
        "_skip",
        "_text",
        "_unread",
        "_value",
        "begun",
        "changes_id",
        "changes_index",
        "id",
        "index",
        "name",
        "number",
    )

    def __init__(self, number: int, index: int | None, id: str, name: str) -> None:
        self.number = number
        self.index = index
        self.id = id
        self.name = name
        self.changes_id = False
        self.changes_index = False
        self.begun = False
        # The text is read on demand, and each part once, so that asking at every delta stays linear.
        self._unread: list[str] = []
        self._text: list[str] = []
        self._depth = 0
        self._in_string = False
        self._skip = False
        self._value: Any = None

    def extend(self, index: int | None, id: str, arguments: str) -> int:
        """Take more text; return the number of the call."""
        if id and id != self.id:
            self.changes_id = bool(self.id)
            self.id = self.id or id
        if index is not None and index != self.index:
            self.changes_index = self.index is not None
        if arguments:
            self._unread.append(arguments)
            if not self.begun:
                self.begun = not arguments.isspace()
        return self.number

    def has_other_id(self, id: str) -> bool:
        """Return whether an id tells that another call is meant."""
        return bool(id and self.id) and id != self.id and not self.changes_id

    def differs(self, index: int | None, id: str) -> bool:
        """Return whether an id or index tells that another call is meant."""
        if self.has_other_id(id):
            return True
        both = index is not None and self.index is not None
        return both and index != self.index and not self.changes_index

    @property
    def complete(self) -> bool:
        """Whether the object that the arguments began has been closed."""
        if self._unread:
            for part in self._unread:
                self._read(part)
            self._text += self._unread
            self._unread = []
            self._value = None
        return self.begun and self._depth == 0 and not self._in_string

    def holds(self, value: Any) -> bool:
        """Return whether the arguments are complete, or none, and hold this object."""
        if value is _NO_OBJECT or (self.begun and not self.complete):
            return False
        if self._value is None:
            self._value = _value("".join(self._text))
        try:
            return bool(self._value == value)
        except RecursionError:
            return False

    def _read(self, part: str) -> None:
        """Follow the brackets outside strings."""
        at = 0
        if self._skip:
            self._skip = False
            at = 1
        while match := (_STRING_TOKEN if self._in_string else _TOKEN).search(part, at):
            at = match.end()
            token = match[0]
            if token == '"':
                self._in_string = not self._in_string
            elif token == "\\":
                at += 1
                self._skip = at > len(part)
            else:
                self._depth += 1 if token in "{[" else -1


def _value(arguments: str) -> Any:
    """Return the object that arguments hold, encoded once or twice; `{}` if there are none."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return _NO_OBJECT
    if value is None:
        return {}
    return value if isinstance(value, dict) else _NO_OBJECT
