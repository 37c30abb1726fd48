"""Which model the command line asks: by name, by the keys that are set, or the demo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

import attrs

from agentcore._keys import KEY_VARIABLES
from agentcore.models import Model
from agentcore.providers.catalog import catalog_models, get_model

__all__ = ["UsageError", "choose_model", "key_hint", "model_words"]

_VARIABLE: Final = "AGENTCORE_MODEL"
_TRY_DEMO: Final = "`agentcore --model demo` works without a key"

_DEFAULTS: Final = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-5.4-mini",
    "google": "gemini-3.8-flash",
}
"""Which model of a provider is asked when its key is set and no model is named."""


class UsageError(Exception):
    """What the command line was given cannot be right; the message is one sentence that says what to do."""


def choose_model(
    name: str | None,
    stack: ExitStack,
    *,
    base_url: str | None = None,
    api: str | None = None,
    reasoning: bool = False,
) -> Model:
    """Return the model that is named, or the one that the environment suggests.

    `reasoning` says of a model that is not known that it can think. The demo's server is closed with the stack. Raises `UsageError`.
    """
    name = name or os.environ.get(_VARIABLE) or None
    if api is not None and base_url is None:
        raise UsageError("`--api` says what a server speaks: give its address with `--base-url` too")
    if base_url is not None:
        return _served(name, base_url, api, reasoning)
    if name is None:
        name = _suggested(os.environ)
    if name == "demo":
        from agentcore.testing.demo import DemoServer

        return stack.enter_context(DemoServer()).model
    model = _known(name)
    if not _needs_no_key(model) and not _key_variables_set(model.provider, os.environ):
        variables = " or ".join(KEY_VARIABLES.get(model.provider, ()))
        raise UsageError(f"there is no key for {model.provider}: set {variables}; {_TRY_DEMO}")
    return model


def _served(name: str | None, base_url: str, api: str | None, reasoning: bool) -> Model:
    """Return a model behind an address; the part before the slash names its provider, if it is one we know."""
    if name is None:
        raise UsageError("`--base-url` needs `--model`, the name that the server has for the model")
    if not base_url.lower().startswith(("http://", "https://")):
        raise UsageError(f"`--base-url` begins with http:// or https://, and {base_url!r} does not")
    provider, slash, id = name.partition("/")
    if not slash or not id or provider not in KEY_VARIABLES:
        provider, id = "", name
    known = _looked_up(f"{provider}/{id}") if provider else None
    if isinstance(known, Model) and api is None:
        return attrs.evolve(known, base_url=base_url)
    try:
        return Model(id, provider=provider, base_url=base_url, api=api or "openai-completions", reasoning=reasoning)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _suggested(environment: Mapping[str, str]) -> str:
    for provider, id in _DEFAULTS.items():
        if _key_variables_set(provider, environment):
            return f"{provider}/{id}"
    others = [provider for provider in KEY_VARIABLES if _key_variables_set(provider, environment)]
    if others:
        raise UsageError(f"which model? name one of {' or '.join(others)}, as in `--model {others[0]}/…`")
    variables = ", ".join(KEY_VARIABLES[provider][0] for provider in _DEFAULTS)
    raise UsageError(
        f"there is no key for a model: set one of {variables}, or name a model of your own server with `--base-url` and "
        f"`--model`; {_TRY_DEMO}"
    )


def _known(name: str) -> Model:
    if "/" not in name:
        raise UsageError(f"`--model` is provider/id, as in `--model openai/{name}`, or `demo`")
    found = _looked_up(name)
    if isinstance(found, Model):
        return found
    provider = name.partition("/")[0]
    like = next((get_model(*listed) for listed in catalog_models() if listed[0] == provider), None)
    if like is None:
        raise UsageError(f"{found.rstrip('?')}; a server of your own is named with `--base-url` and `--api`")
    why = "; ".join(part for part in found.rstrip("?").split("; ") if not part.startswith("by hand it is"))
    raise UsageError(f"{why}; for one that is not listed add `--base-url {like.base_url} --api {like.api}`")


def _looked_up(name: str) -> Model | str:
    """Return a model of the catalog, or why there is none."""
    provider, _, id = name.partition("/")
    try:
        return get_model(provider, id)
    except ValueError as error:
        return str(error)


def _needs_no_key(model: Model) -> bool:
    host = urlsplit(model.base_url).hostname or ""
    return host in ("localhost", "127.0.0.1", "::1") or model.provider not in KEY_VARIABLES


def _key_variables_set(provider: str, environment: Mapping[str, str]) -> list[str]:
    return [name for name in KEY_VARIABLES.get(provider, ()) if environment.get(name, "").strip()]


def key_hint(model: Model) -> str | None:
    """Return where the key that a provider has refused came from."""
    variables = _key_variables_set(model.provider, os.environ)
    return f"The key came from {variables[0]}." if variables else None


def model_words(model: Model) -> str:
    """Return what a model is called."""
    if model.provider == "demo":
        return "the built-in demo model, which follows a few rules and understands nothing"
    return f"{model.provider}/{model.id}" if model.provider else model.id
