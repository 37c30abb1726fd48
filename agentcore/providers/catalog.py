"""Known models with their limits and prices, as data: `get_model("anthropic", "claude-sonnet-5")`."""

from __future__ import annotations

import difflib
import functools
import json
import re
from importlib import resources
from typing import Any

from agentcore.models import Model

__all__ = ["catalog_models", "get_model"]

_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


@functools.cache
def _catalog() -> dict[str, Any]:
    text = resources.files("agentcore.providers").joinpath("catalog.json").read_text("utf-8")
    catalog: dict[str, Any] = json.loads(text)
    return catalog


def get_model(provider: str, id: str) -> Model:
    """Return a model of the catalog.

    An id with a date at its end is the model without it. Raises `ValueError` naming near ids for one that is not known;
    `Model(id, api=…, provider=…, base_url=…)` makes any model by hand.
    """
    providers = _catalog()["providers"]
    known = providers.get(provider)
    if known is None:
        names = ", ".join(sorted(providers))
        raise ValueError(f"the catalog has no provider {provider!r}; it knows {names}{_near(provider, providers)}")
    facts = known["models"].get(id) or known["models"].get(_DATED.sub("", id))
    if facts is None:
        by_hand = f"Model({id!r}, api={known['api']!r}, provider={provider!r}, base_url={known['base_url']!r})"
        near = _near(id, known["models"])
        raise ValueError(f"the catalog has no model {id!r} of {provider}; by hand it is `{by_hand}`{near}")
    return Model(
        id,
        api=known["api"],
        provider=provider,
        base_url=known["base_url"],
        name=facts["name"],
        reasoning=facts["reasoning"],
        input=tuple(facts["input"]),
        cost=facts["cost"] or None,
        context_window=facts["context_window"],
        max_tokens=facts["max_tokens"],
    )


def catalog_models() -> list[tuple[str, str]]:
    """Return the provider and id of every model of the catalog."""
    providers = _catalog()["providers"]
    return [(provider, id) for provider, known in providers.items() for id in known["models"]]


def _near(wanted: str, known: Any) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
