"""The blocks that the content of a message is made of, and their dict form."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import attrs

from agentcore._records import Record, is_a, json_safe

__all__ = [
    "ContentBlock",
    "ImageContent",
    "ProviderContent",
    "Tagged",
    "TextContent",
    "ThinkingContent",
    "ToolCall",
    "as_blocks",
    "block_from_dict",
    "is_block",
    "known_fields",
    "text_or_blocks",
]

_T = TypeVar("_T")


class Tagged(Record):
    """A record with a dict form: its tag, then every field that is not `None`, in the order of the class."""

    __slots__ = ()
    _tag: ClassVar[str] = "type"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as data that JSON can hold; never raises."""
        data: dict[str, Any] = {self._tag: getattr(type(self), self._tag)}
        for field in attrs.fields(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                data[field.name] = json_safe(value)
        return data


def known_fields(cls: type[_T], data: Mapping[str, Any], **converted: Any) -> _T:
    """Make a record from the keys of a dict that are its fields; others are left alone."""
    if not isinstance(data, Mapping):
        raise TypeError(f"a `{cls.__name__}` is made from a dict, not {type(data).__name__}")
    fields = attrs.fields(cls)  # type: ignore[arg-type]
    known = {field.name: data[field.name] for field in fields if data.get(field.name) is not None}
    known.update({name: value for name, value in converted.items() if value is not None})
    missing = [field.name for field in fields if field.default is attrs.NOTHING and field.name not in known]
    if missing:
        raise ValueError(f"a `{cls.__name__}` needs {', '.join(f'`{name}`' for name in missing)}")
    return cls(**known)


@attrs.frozen(eq=False, repr=False)
class TextContent(Tagged):
    """Text. `signature` is what some providers want back unchanged with it."""

    type: ClassVar[str] = "text"
    text: str = attrs.field(validator=is_a(str))
    signature: str | None = None


@attrs.frozen(eq=False, repr=False)
class ThinkingContent(Tagged):
    """What a model thought. `signature` carries the provider's proof or its encrypted form; `redacted` hides the text."""

    type: ClassVar[str] = "thinking"
    thinking: str
    signature: str | None = None
    redacted: bool = False


@attrs.frozen(eq=False, repr=False)
class ImageContent(Tagged):
    """An image: `data` is base64 text, `mime_type` such as `image/png`."""

    type: ClassVar[str] = "image"
    data: str
    mime_type: str


@attrs.frozen(eq=False, repr=False)
class ToolCall(Tagged):
    """A model's request to run a tool.

    `arguments` is the JSON object it gave. `partial_json` is the raw text so far while the arguments stream in, or
    the raw text that turned out to be no JSON object; it is `None` once they are complete.
    """

    type: ClassVar[str] = "tool"
    id: str
    name: str
    arguments: dict[str, Any]
    partial_json: str | None = None
    thought_signature: str | None = None


@attrs.frozen(eq=False, repr=False)
class ProviderContent(Tagged):
    """A block that only its own API understands, kept verbatim to be sent back to the same provider, api and model."""

    type: ClassVar[str] = "provider"
    provider: str
    api: str
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the block as data; one that was loaded from an unknown kind is written back as it was."""
        if not self.provider and not self.api and str(self.data.get("type")) not in _BLOCKS:
            return dict(json_safe(self.data))
        return super().to_dict()


ContentBlock = TextContent | ThinkingContent | ImageContent | ToolCall | ProviderContent

_BLOCKS: dict[str, type[Any]] = {
    cls.type: cls for cls in (TextContent, ThinkingContent, ImageContent, ToolCall, ProviderContent)
}
_BLOCK_CLASSES = tuple(_BLOCKS.values())


def is_block(value: object) -> bool:
    """Return whether a value is a content block."""
    return isinstance(value, _BLOCK_CLASSES)


def as_blocks(content: str | ContentBlock | Iterable[ContentBlock]) -> tuple[ContentBlock, ...]:
    """Return content as a tuple of blocks; a str becomes one text block, a block a tuple of one."""
    if isinstance(content, str):
        return (TextContent(content),)
    if isinstance(content, _BLOCK_CLASSES):
        return (content,)
    if not isinstance(content, Iterable) or isinstance(content, (bytes, Mapping)):
        raise TypeError(f"content is text or blocks, not {type(content).__name__}")
    blocks = tuple(content)
    for block in blocks:
        if not isinstance(block, _BLOCK_CLASSES):
            hint = " (wrap text in `TextContent`)" if isinstance(block, str) else ""
            raise TypeError(f"content holds blocks, not {type(block).__name__}{hint}")
    return blocks


def text_or_blocks(content: str | ContentBlock | Iterable[ContentBlock]) -> str | tuple[ContentBlock, ...]:
    """Return a str as it is, anything else as a tuple of blocks."""
    return content if isinstance(content, str) else as_blocks(content)


def block_from_dict(data: Mapping[str, Any]) -> ContentBlock:
    """Make a block from its dict form; an unknown `type` becomes a `ProviderContent` that is written back unchanged."""
    if not isinstance(data, Mapping):
        raise TypeError(f"a block is a dict, not {type(data).__name__}")
    cls = _BLOCKS.get(str(data.get("type")))
    if cls is None:
        return ProviderContent(provider="", api="", data=copy.deepcopy(dict(data)))
    block: ContentBlock = known_fields(cls, data)
    return block
