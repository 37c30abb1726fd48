"""What sets the imitators of OpenAI's Chat Completions apart when a request is written, as data.

`dialect_of` picks a `Dialect` by the host of `Model.base_url`, else by `Model.provider`; `Model.compat` then overrides
single fields by their names. A server that nobody here knows gets `GENERIC`: the fields that nearly all understand.

How responses differ is not here: the reader takes every known form from everybody, since a gateway may pass on any of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from agentcore._records import Record
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._replay import IdRule
from agentcore.providers._request import vendor_of

__all__ = ["DIALECTS", "Dialect", "GENERIC", "HOSTS", "dialect_of"]


def _efforts(words: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Return the levels as values of `reasoning_effort`: one word for each level from `minimal` to `max`.

    Level `off` asks for nothing.
    """
    names = [level.value for level in ThinkingLevel if level is not ThinkingLevel.OFF]
    return {name: {**more, "reasoning_effort": word} for name, word in zip(names, words.split(), strict=True)}


def _nested_efforts(words: str) -> dict[str, dict[str, Any]]:
    return {level: {"reasoning": {"effort": fields["reasoning_effort"]}} for level, fields in _efforts(words).items()}


def _switch(field: str, on: Any, off: Any) -> dict[str, dict[str, Any]]:
    """Return the levels of an API that only turns thinking on or off."""
    return {level.value: {field: off if level is ThinkingLevel.OFF else on} for level in ThinkingLevel}


def _words(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _types(value: Iterable[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(value)


def _as_ids(value: IdRule | Mapping[str, Any]) -> IdRule:
    return value if isinstance(value, IdRule) else IdRule(**value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Dialect(Record):
    """How one vendor's Chat Completions wants its requests; every field can be set in `Model.compat`.

    - `max_tokens_field`: what bounds the answer.
    - `system_role`: the role of the system prompt.
    - `include_usage`: whether to ask for usage in the stream (`stream_options`).
    - `levels`: for each thinking level the fields that ask for it, for `off` those that keep a model from thinking by
      itself. Only sent for a model with `reasoning=True`.
    - `openai_efforts`: whether a level that is not in `levels` goes as the `reasoning_effort` that is nearest to it among
      those that OpenAI's model of that id takes, `off` as `none` if it takes that. Set in `compat` it stands in place of
      the vendor's `levels`.
    - `budget_field`: where a thinking budget in tokens goes, as a path; in place of what the level says there.
    - `reasoning_field`: under which name the thinking of the same model goes back in assistant messages: a string
      field, `content` for Mistral's list of parts, or `None` for not at all.
    - `reasoning_filler`: what that field holds where there was no thinking, for servers that miss it; `None` leaves it out.
    - `prompt_cache`: whether `session_id` and `cache_retention` are known as `prompt_cache_key` and
      `prompt_cache_retention`.
    - `cache_control_for`: beginnings of ids of models whose prompts are cached where a mark says so.
    - `session_header`: a header that takes `session_id`, to reach the server that has the conversation cached.
    - `tool_ids`: which tool-call ids are accepted.
    - `image_types`: the media types of images that are accepted, `None` for whatever there is.
    - `tool_result_name`: whether a tool's result repeats its name.
    - `assistant_after_tool`: whether a user message may not follow a tool's result.
    - `metadata`: whether `metadata` is understood.
    - `key_header`: the header of the key; any but `Authorization` takes the bare key.
    - `body`: fields added to every request.
    """

    name: str = ""
    hosts: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    system_role: str = "system"
    include_usage: bool = True
    levels: Mapping[str, Mapping[str, Any]] = attrs.field(factory=lambda: _efforts("low low medium high high high"))
    openai_efforts: bool = False
    budget_field: tuple[str, ...] = attrs.field(default=(), converter=_words)
    reasoning_field: str | None = "reasoning_content"
    reasoning_filler: str | None = None
    prompt_cache: bool = False
    cache_control_for: tuple[str, ...] = attrs.field(default=(), converter=_words)
    session_header: str | None = None
    tool_ids: IdRule = attrs.field(default=IdRule("!-~", 40), converter=_as_ids)
    image_types: frozenset[str] | None = attrs.field(default=None, converter=_types)
    tool_result_name: bool = False
    assistant_after_tool: bool = False
    metadata: bool = True
    key_header: str = "Authorization"
    body: Mapping[str, Any] = attrs.field(factory=dict)


GENERIC = Dialect()

_IMAGES = ("image/png", "image/jpeg", "image/webp")
_IMAGES_AND_GIF = (*_IMAGES, "image/gif")

_THINKING = _switch("thinking", {"type": "enabled"}, {"type": "disabled"})

DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="openai",
        hosts=("api.openai.com",),
        max_tokens_field="max_completion_tokens",
        levels={},
        openai_efforts=True,
        reasoning_field=None,
        prompt_cache=True,
        image_types=_IMAGES_AND_GIF,
    ),
    Dialect(
        name="azure",
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        max_tokens_field="max_completion_tokens",
        levels={},
        openai_efforts=True,
        reasoning_field=None,
        prompt_cache=True,
        image_types=_IMAGES_AND_GIF,
        key_header="api-key",
    ),
    Dialect(
        name="openrouter",
        hosts=("openrouter.ai",),
        # `off` asks for nothing: to forbid thinking is an error for the models that always think.
        levels=_nested_efforts("minimal low medium high xhigh xhigh"),
        budget_field=("reasoning", "max_tokens"),
        reasoning_field="reasoning",
        prompt_cache=True,
        cache_control_for=("anthropic/",),
        # Behind it may be anybody, the strictest included.
        tool_ids=IdRule("a-zA-Z0-9_-", 40),
        image_types=_IMAGES_AND_GIF,
    ),
    Dialect(
        name="groq",
        hosts=("api.groq.com",),
        max_tokens_field="max_completion_tokens",
        reasoning_field="reasoning",
        metadata=False,
    ),
    Dialect(
        name="deepseek",
        hosts=("api.deepseek.com",),
        levels={
            **_efforts("low low high high max max", thinking={"type": "enabled"}),
            "off": {"thinking": {"type": "disabled"}},
        },
        reasoning_filler="",
        metadata=False,
    ),
    Dialect(
        name="mistral",
        hosts=("api.mistral.ai",),
        levels=_efforts("high high high high high high"),
        reasoning_field="content",
        tool_ids=IdRule("a-zA-Z0-9", 9, exact=True),
        image_types=_IMAGES_AND_GIF,
        tool_result_name=True,
        assistant_after_tool=True,
    ),
    Dialect(
        name="xai",
        hosts=("api.x.ai",),
        max_tokens_field="max_completion_tokens",
        levels={},  # its models think by themselves, and all but one refuse to be told how much
        session_header="x-grok-conv-id",
        image_types=("image/png", "image/jpeg"),
        metadata=False,
    ),
    Dialect(
        name="google",
        hosts=("generativelanguage.googleapis.com",),
        levels=_efforts("minimal low medium high high high"),
        reasoning_field=None,
        image_types=(*_IMAGES, "image/heic", "image/heif"),
        metadata=False,
    ),
    Dialect(name="zai", hosts=("api.z.ai", "open.bigmodel.cn"), levels=_THINKING, metadata=False),
    Dialect(
        name="moonshot",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        levels=_THINKING,
        reasoning_filler=" ",  # an empty text counts as a missing one
        metadata=False,
    ),
    Dialect(
        name="alibaba",
        hosts=("aliyuncs.com",),
        levels=_switch("enable_thinking", True, False),
        budget_field=("thinking_budget",),
        metadata=False,
    ),
    Dialect(name="together", hosts=("api.together.xyz", "api.together.ai"), reasoning_field="reasoning"),
    Dialect(name="fireworks", hosts=("api.fireworks.ai",), session_header="x-session-affinity"),
    Dialect(
        name="cerebras",
        hosts=("api.cerebras.ai",),
        max_tokens_field="max_completion_tokens",
        reasoning_field=None,
        metadata=False,
    ),
    Dialect(name="ollama", hosts=("ollama.com",), reasoning_field="reasoning"),
    Dialect(
        name="snowflake",
        hosts=("snowflakecomputing.com",),
        max_tokens_field="max_completion_tokens",
        levels=_nested_efforts("low low medium high high high"),
        tool_ids=IdRule("a-zA-Z0-9_-", 40),
    ),
    Dialect(
        name="databricks",
        hosts=("databricks.com", "azuredatabricks.net"),
        include_usage=False,  # it always tells
        tool_ids=IdRule("a-zA-Z0-9_-", 40),
        metadata=False,
    ),
    Dialect(name="copilot", hosts=("githubcopilot.com",), reasoning_field=None, levels={}, openai_efforts=True),
)
"""The vendors that are known; a vendor is one by `name` or by a host that is, or ends in, one of `hosts`."""

HOSTS: Mapping[str, str] = {host: dialect.name for dialect in DIALECTS for host in dialect.hosts}
"""The vendor of each host."""

_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def dialect_of(model: Model) -> Dialect:
    """Return the dialect that a model's server speaks.

    Raises `ValueError` for a key of `Model.compat` that is no field, or a value that cannot be one.
    """
    dialect = _BY_NAME.get(vendor_of(model.base_url, HOSTS)) or _BY_NAME.get(model.provider, GENERIC)
    if not model.compat:
        return dialect
    fields = {field.name for field in attrs.fields(Dialect)} - {"name", "hosts"}
    unknown = sorted(set(model.compat) - fields)
    if unknown:
        raise ValueError(f"`Model.compat` has unknown keys {unknown}; it takes {', '.join(sorted(fields))}")
    overrides = dict(model.compat)
    levels = overrides.get("levels", {})
    if isinstance(levels, Mapping):
        known = {} if overrides.get("openai_efforts") else dialect.levels
        overrides["levels"] = {**known, **levels}
    try:
        return attrs.evolve(dialect, **overrides)
    except (TypeError, ValueError, re.error) as error:
        raise ValueError(f"`Model.compat` has a value that does not fit: {error}") from None
