"""Make any transcript acceptable to any API.

`replayable` turns the messages of a context into messages that fit one model: what a provider would refuse is mended or
left out, what belongs to another model is translated, and every tool call has its one result right after it. An
adapter then only writes down what it gets, in order.

What it gives:

- only `UserMessage`, `AssistantMessage` and `ToolResultMessage`, none of them empty;
- no assistant message that ended in `error` or `aborted`, nor the results of its calls;
- after an assistant message exactly one result for each of its calls, in the order of the calls; a missing one is an
  error result, a result without a call is left out;
- tool-call ids that the API accepts, each used once in the whole request, the same in call and result. They depend only
  on what stands before them, so that a longer transcript begins with the same ids and caches of prompts stay good;
- thinking, blocks of the provider, signed text and the signatures of calls unchanged if the message came from the same
  provider, api and model; otherwise thinking as text (left out when it was redacted) and nothing signed;
- no text that is blank, unless it is signed; no lone surrogates; call arguments and blocks of the provider that JSON can
  hold, `{}` for arguments that could not be read;
- for a model without image input a short note in the place of each image, as for an image of a type that the API does
  not take. Images in an assistant message are only left to the model that made them.

Nothing the caller gave is changed; what needs no change is passed on as it is.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs

from agentcore._records import Record, json_safe
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.messages import AssistantMessage, ToolResultMessage, UserMessage
from agentcore.models import Model

__all__ = ["IdRule", "ReplayMessage", "clean_json", "clean_text", "replayable", "written_once"]

_Thing = TypeVar("_Thing")
_Written = TypeVar("_Written")

ReplayMessage = UserMessage | AssistantMessage | ToolResultMessage

_NO_RESULT = "no result was recorded"
_NO_OUTPUT = "(no output)"
_TOOL_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile("[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_DIGEST_LENGTH = 8
# Deeper than anything that means something, and shallow enough for whatever copies or writes a request afterwards.
_DEEPEST = 200
_ALPHANUMERIC = string.digits + string.ascii_letters


@attrs.frozen(eq=False, repr=False)
class IdRule(Record):
    """Which tool-call ids an API accepts.

    `allowed` is the inside of a regular expression's character class, `longest` the greatest length. With `exact` an id
    must have that length and is made of letters and digits. Raises `ValueError` for a rule that leaves no room to make
    ids up.
    """

    allowed: str = "a-zA-Z0-9_-"
    longest: int = 64
    exact: bool = False

    def __attrs_post_init__(self) -> None:
        needed = _ALPHANUMERIC if self.exact else string.hexdigits.lower() + "_"
        if self.longest < _DIGEST_LENGTH + 1 or not re.fullmatch(f"[{self.allowed}]+", needed):
            raise ValueError(f"tool-call ids need {_DIGEST_LENGTH + 1} characters or more, {needed!r} among them")

    def accepts(self, id: str) -> bool:
        """Return whether an id may be sent as it is."""
        length = len(id) == self.longest if self.exact else 0 < len(id) <= self.longest
        return length and re.fullmatch(f"[{self.allowed}]+", id) is not None


def replayable(
    messages: Iterable[Any],
    model: Model,
    *,
    api: str | None = None,
    ids: IdRule | None = None,
    tool_names: Iterable[str] = (),
    image_types: frozenset[str] | None = None,
    memo: dict[str, Any] | None = None,
) -> list[ReplayMessage]:
    """Return the messages as a request to `model` over `api` (the model's, when left out) can hold them.

    `tool_names` are the names the request declares; a call of any other tool is renamed if its name has characters
    that no API takes. `image_types` are the media types that the API takes, `None` for any. Messages of other classes
    than the three a model understands are left out. With the `memo` of the request before, only messages that came after
    it are looked at: the same objects give the same objects again.
    """
    rule, names = IdRule() if ids is None else ids, frozenset(tool_names)
    types = image_types if "image" in model.input else frozenset[str]()
    key = ((model.provider, model.api if api is None else api, model.id), types, rule, names)
    memo = {} if memo is None else memo
    known, given = memo.get("replay"), list(messages)
    if not isinstance(known, _Transcript) or known.key != key or not known.is_beginning_of(given):
        known = _Transcript(key)
    # Taken out while it grows: an interrupt in the middle must not leave half a turn to build on.
    if memo.pop("replay", None) is not known:
        _forget_what_is_no_longer_sent(memo)
    known.add(given)
    memo["replay"] = known
    return known.replayed.copy()


def written_once(
    memo: dict[str, Any], model: Model, things: Iterable[_Thing], write: Callable[[_Thing], _Written]
) -> list[_Written]:
    """Return `write(thing)` for messages, or tools: made once in a run for each of them and model.

    Nobody may change what was written.
    """
    kept = memo.get("written")
    if not isinstance(kept, _Kept) or kept.model is not model:
        kept = memo["written"] = _Kept(model)
    entries, before = kept.entries, kept.before
    written: list[_Written] = []
    for thing in things:
        entry = entries.get(id(thing))
        if entry is None:
            entry = entries[id(thing)] = before.get(id(thing)) or (thing, write(thing))
        written.append(entry[1])
    return written


@attrs.define(eq=False, repr=False)
class _Kept:
    """What was written of messages and tools for a model, by their ids, with them, so that nothing else gets its id.

    `before` is what requests needed before the transcript last began anew: of it is taken what is still needed.
    """

    model: Model
    entries: dict[int, tuple[Any, Any]] = attrs.field(factory=dict)
    before: dict[int, tuple[Any, Any]] = attrs.field(factory=dict)


def _forget_what_is_no_longer_sent(memo: dict[str, Any]) -> None:
    """A hook that makes every message anew for each request must not have them all kept until the end of the run."""
    kept = memo.get("written")
    if isinstance(kept, _Kept):
        memo["written"] = _Kept(kept.model, {}, kept.entries)


_Key = tuple[tuple[str, str, str], frozenset[str] | None, IdRule, frozenset[str]]


# --- pairing --------------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class _Turn:
    """A message that is sent, and its calls with their results (`None` for one that has none), at `place`."""

    message: UserMessage | AssistantMessage
    results: list[ToolResultMessage | None]
    place: int = 0
    calls: tuple[ToolCall, ...] = ()


class _Transcript:
    """A transcript as it is replayed, which can grow.

    A result belongs to the last unanswered call of its id before it: providers that count calls anew in each turn use
    the same ids again and again. Since every call has exactly one result in what is replayed, be it that it has none,
    one that comes later takes its place and nothing else moves.
    """

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.sources: list[Any] = []
        self.replayed: list[ReplayMessage] = []
        self._writer = _Writer(*key)
        # For each id the turns whose calls of that id wait, with the numbers of these calls, first one first.
        self._waiting: dict[str, list[tuple[_Turn, list[int]]]] = {}

    def is_beginning_of(self, messages: list[Any]) -> bool:
        """Return whether a transcript begins with the very messages that have been added."""
        sources = self.sources
        return len(sources) <= len(messages) and all(map(operator.is_, sources, messages))

    def add(self, messages: list[Any]) -> None:
        """Add the messages that are new."""
        new: list[_Turn] = []
        answered: list[tuple[_Turn, int]] = []
        for message in messages[len(self.sources) :]:
            if isinstance(message, ToolResultMessage):
                places = self._waiting.get(message.tool_call_id)
                if places:
                    turn, numbers = places[-1]
                    number = numbers.pop(0)
                    turn.results[number] = message
                    answered.append((turn, number))
                    if not numbers:
                        places.pop()
            elif isinstance(message, AssistantMessage):
                turn = self._turn_of(message)
                # The results of a message that is left out find their place in it, and go with it.
                if message.stop_reason not in ("error", "aborted"):
                    new.append(turn)
            elif isinstance(message, UserMessage):
                new.append(_Turn(message, []))
        written = {id(turn) for turn in new}
        for turn, number in answered:
            if id(turn) not in written and turn.calls:
                answer = self._writer.result(turn.calls[number], turn.results[number], turn.message.timestamp)
                self.replayed[turn.place + 1 + number] = answer
        for turn in new:
            turn.place = len(self.replayed)
            self.replayed.extend(self._writer.written(turn))
        self.sources = messages

    def _turn_of(self, message: AssistantMessage) -> _Turn:
        calls = message.tool_calls
        turn = _Turn(message, [None] * len(calls))
        by_id: dict[str, list[int]] = {}
        for number, call in enumerate(calls):
            by_id.setdefault(call.id, []).append(number)
        for id, numbers in by_id.items():
            self._waiting.setdefault(id, []).append((turn, numbers))
        return turn


# --- writing --------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes the messages of one request, in order."""

    def __init__(
        self,
        origin: tuple[str, str, str],
        image_types: frozenset[str] | None,
        rule: IdRule,
        tool_names: frozenset[str],
    ) -> None:
        self._origin = origin
        self._image_types = image_types
        self._rule = rule
        self._tool_names = tool_names
        self._used: set[str] = set()

    def written(self, turn: _Turn) -> list[ReplayMessage]:
        message = turn.message
        if isinstance(message, UserMessage):
            return self._user(message)
        content = self._assistant_content(message)
        if not content:
            return []
        turn.calls = tuple(block for block in content if isinstance(block, ToolCall))
        pairs = zip(turn.calls, turn.results, strict=True)
        answers = [self.result(call, result, message.timestamp) for call, result in pairs]
        return [message if content == message.content else attrs.evolve(message, content=content), *answers]

    def _user(self, message: UserMessage) -> list[ReplayMessage]:
        content = message.content
        if isinstance(content, str):
            text = clean_text(content)
            if not text.strip():
                return []
            return [message if text is content else attrs.evolve(message, content=text)]
        blocks = self._readable(content)
        if not blocks:
            return []
        return [message if blocks == content else attrs.evolve(message, content=blocks)]

    def result(self, call: ToolCall, result: ToolResultMessage | None, timestamp: int) -> ToolResultMessage:
        if result is None:
            return ToolResultMessage(call.id, call.name, _NO_RESULT, is_error=True, timestamp=timestamp)
        content = self._readable(result.content) or (TextContent(_NO_OUTPUT),)
        if (call.id, call.name, content) == (result.tool_call_id, result.tool_name, result.content):
            return result
        return attrs.evolve(result, tool_call_id=call.id, tool_name=call.name, content=content)

    def _readable(self, content: Sequence[ContentBlock]) -> tuple[ContentBlock, ...]:
        """Return what a user or a tool said as blocks of text and images."""
        blocks: list[ContentBlock] = []
        for block in content:
            if isinstance(block, TextContent):
                if block.text.strip():
                    text = clean_text(block.text)
                    blocks.append(block if text is block.text and not block.signature else TextContent(text))
            elif isinstance(block, ImageContent):
                blocks.append(self._image(block))
        return tuple(blocks)

    def _image(self, image: ImageContent) -> ContentBlock:
        """Return an image, or the note that takes its place."""
        given, types = image.mime_type, self._image_types
        kind = "image/jpeg" if given.lower() == "image/jpg" else given.lower()
        if types is not None and kind not in types:
            return _note(image, "such " if types else "")
        return image if kind == given else attrs.evolve(image, mime_type=kind)

    def _assistant_content(self, message: AssistantMessage) -> tuple[ContentBlock, ...]:
        same = (message.provider, message.api, message.model) == self._origin
        blocks: list[ContentBlock] = []
        for block in message.content:
            if isinstance(block, ToolCall):
                blocks.append(self._call(block, same))
            elif isinstance(block, ProviderContent):
                if same and (block.provider, block.api) == self._origin[:2]:
                    data = clean_json(block.data)
                    if isinstance(data, dict):
                        blocks.append(block if data == block.data else attrs.evolve(block, data=data))
            elif isinstance(block, ImageContent):
                blocks.append(self._image(block) if same else _note(block))
            elif isinstance(block, ThinkingContent):
                if same:
                    if block.signature or block.thinking.strip():
                        text = clean_text(block.thinking)
                        blocks.append(block if text is block.thinking else attrs.evolve(block, thinking=text))
                elif not block.redacted and block.thinking.strip():
                    blocks.append(TextContent(clean_text(block.thinking)))
            elif same and block.signature:
                blocks.append(attrs.evolve(block, text=clean_text(block.text)))
            elif block.text.strip():
                blocks.append(TextContent(clean_text(block.text)))
        return tuple(blocks)

    def _call(self, call: ToolCall, same: bool) -> ToolCall:
        arguments = {} if call.partial_json is not None else clean_json(call.arguments)
        signature = call.thought_signature if same else None
        return ToolCall(self._id(call.id), self._name(call.name), arguments, None, signature)

    def _name(self, name: str) -> str:
        """Return a tool's name, or what can be sent in place of one that a model made up."""
        if name in self._tool_names or _TOOL_NAME.fullmatch(name):
            return name
        return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"

    def _id(self, wanted: str) -> str:
        """Return an id that the API accepts and that no call before has; the wanted one if possible."""
        rule = self._rule
        id, number = wanted, 1
        while id in self._used or not rule.accepts(id):
            id = _rewritten(wanted, number, rule)
            number += 1
        self._used.add(id)
        return id


def _note(image: ImageContent, which: str = "") -> TextContent:
    return TextContent(f"[an image ({image.mime_type}) was left out: this model does not read {which}images]")


def _rewritten(wanted: str, number: int, rule: IdRule) -> str:
    """Return the `number`th id in place of one that cannot be sent.

    It always carries a digest, so that it does not take the place of an id that can be sent as it is.
    """
    digest = hashlib.sha256(f"{number} {wanted}".encode("utf-8", "surrogatepass")).digest()
    if rule.exact:
        return "".join(_ALPHANUMERIC[byte % len(_ALPHANUMERIC)] for byte in digest[: rule.longest])
    kept = re.sub(f"[^{rule.allowed}]", "_", wanted) or "call"
    ending = "_" + digest.hex()[:_DIGEST_LENGTH]
    return kept[: rule.longest - len(ending)] + ending


# --- text that can be sent ------------------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """Return text that UTF-8 can hold: two halves of a surrogate pair become their character, lone ones U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Any) -> Any:
    """Return a copy of data with every text in it clean, and whatever JSON cannot hold as the nearest thing to it."""
    try:
        return _clean(value, _DEEPEST)
    except RecursionError:
        return _clean(json_safe(value), _DEEPEST)  # which cuts off what is too deep


def _clean(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if not levels:
        raise RecursionError
    levels -= 1
    if isinstance(value, dict):
        return {_clean_key(key): _clean(item, levels) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, levels) for item in value]
    return value if value is None or isinstance(value, bool) else _plain(value, levels)


def _clean_key(key: Any) -> str:
    return clean_text(key if isinstance(key, str) else str(key))


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return value
    nearest = json_safe(value)
    return nearest if isinstance(nearest, int) else _clean(nearest, levels)
