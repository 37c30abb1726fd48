"""Which model answers: its address, its abilities, its prices, and how hard it thinks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs

from agentcore._records import Record, is_a

if TYPE_CHECKING:
    from agentcore.messages import Usage

__all__ = ["Model", "ThinkingLevel", "has_prices", "usage_cost"]

_PRICED = ("input", "output", "cache_read", "cache_write")


class ThinkingLevel(str, Enum):
    """How much a model may think before it answers; each API maps it to its own words or budgets."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(f"{value!r} is no thinking level: it is one of {', '.join(cls)}")


def _as_prices(value: Mapping[str, float] | None) -> dict[str, float] | None:
    if value is None:
        return None
    unknown = sorted(set(value) - set(_PRICED))
    if unknown:
        raise ValueError(f"`cost` has unknown kinds {unknown}; it takes {', '.join(_PRICED)} (USD per million tokens)")
    prices = {kind: float(value[kind]) for kind in _PRICED if value.get(kind) is not None}
    for kind, price in prices.items():
        if not math.isfinite(price) or price < 0:
            raise ValueError(f"the price of {kind!r} is {price!r}; it must be USD per million tokens, or left out")
    return prices


def _as_kinds(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


# `dict` itself as a converter would hide from type checkers what the fields take.
def _as_headers(value: Mapping[str, str]) -> dict[str, str]:
    return dict(value)


def _as_dict(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)


def _header_names(headers: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: …" for name in headers) + "}"


def _without_credentials(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    address, query, _ = rest.rpartition("@")[2].partition("?")
    return repr(scheme + separator + address + (f"{query}…" if query else ""))


def _text_or_empty(value: str | None) -> str:
    return "" if value is None else value


def _tokens(model: Model, field: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`Model.{field.name}` is a number of tokens or None, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"`Model.{field.name}` is {value!r}; it must be above 0 (None is unknown)")


@attrs.frozen(eq=False, repr=False)
class Model(Record):
    """A model and how to reach it.

    `api` names the wire API, `base_url` where it is served (OpenAI style ends in `/v1`, Anthropic is the bare host,
    Gemini ends in `/v1beta`). `cost` is USD per million tokens by kind: `input`, `output`, `cache_read`,
    `cache_write`; a kind that is left out has no known price. `input` lists what it can read: `"text"`, `"image"`.
    `context_window` and `max_tokens` are tokens. `headers` go with every request to it; `compat` overrides what its
    dialect of the API would be taken to be.
    """

    id: str = attrs.field(validator=is_a(str))
    api: str = attrs.field(default="openai-completions", validator=is_a(str), kw_only=True)
    provider: str = attrs.field(default="", validator=is_a(str), kw_only=True)
    base_url: str = attrs.field(default="", converter=_text_or_empty, repr=_without_credentials, kw_only=True)
    name: str = attrs.field(default=attrs.Factory(lambda self: self.id, takes_self=True), kw_only=True)
    reasoning: bool = attrs.field(default=False, kw_only=True)
    input: tuple[str, ...] = attrs.field(default=("text",), converter=_as_kinds, kw_only=True)
    cost: dict[str, float] | None = attrs.field(default=None, converter=_as_prices, kw_only=True)
    context_window: int | None = attrs.field(default=None, validator=_tokens, kw_only=True)
    max_tokens: int | None = attrs.field(default=None, validator=_tokens, kw_only=True)
    headers: dict[str, str] = attrs.field(factory=dict, converter=_as_headers, repr=_header_names, kw_only=True)
    compat: dict[str, Any] = attrs.field(factory=dict, converter=_as_dict, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.id:
            raise ValueError("a model needs an `id`")


def has_prices(model: Model) -> bool:
    """Return whether what the model reads and writes has a price."""
    return model.cost is not None and "input" in model.cost and "output" in model.cost


def usage_cost(model: Model, usage: Usage) -> dict[str, float] | None:
    """Return what a usage costs in USD, by kind and in `total`; `None` when a price that it needs is unknown.

    A kind without tokens costs nothing, known price or not.
    """
    prices = model.cost
    if prices is None:
        return None
    cost: dict[str, float] = {}
    for kind in _PRICED:
        tokens = getattr(usage, kind)
        if tokens and kind not in prices:
            return None
        cost[kind] = tokens * prices.get(kind, 0.0) / 1_000_000
    cost["total"] = sum(cost.values())
    return cost
