"""What an agent is set to: its model, its tools, its hooks and every option of its runs, each replaceable."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload

import attrs

from agentcore._queues import QUEUE_MODES
from agentcore.config import AgentLoopConfig
from agentcore.models import Model, ThinkingLevel
from agentcore.tools import check_unique_names

__all__ = ["AgentSettings", "Setting"]

_T = TypeVar("_T")

_PER_RUN = ("signal", "get_steering_messages", "get_follow_up_messages")
_OPTIONS = tuple(field.name for field in attrs.fields(AgentLoopConfig) if field.name not in _PER_RUN)


def _as_model(value: Any) -> Model:
    """Return a model; text is the `provider/id` of one in the catalog."""
    if isinstance(value, str):
        # By name and on first use: which models there are is nothing that an agent has to know to be made.
        provider, slash, id = value.partition("/")
        if not slash:
            raise ValueError(f"{value!r} names no model: the provider is wanted too, as in 'openai/gpt-5-mini'")
        value = importlib.import_module("agentcore.providers.catalog").get_model(provider, id)
    if not isinstance(value, Model):
        raise TypeError(f"`model` is a `Model` or the name of one, not {type(value).__name__}")
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`system_prompt` is text, not {type(value).__name__}")
    return value


def _as_queue_mode(value: Any) -> str:
    if value not in QUEUE_MODES:
        raise ValueError(f"a queue mode is {' or '.join(map(repr, QUEUE_MODES))}, not {value!r}")
    return str(value)


def _as_stream_fn(value: Any) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"`stream_fn` must be callable, not {type(value).__name__}")
    return value


_BESIDE: dict[str, Callable[[Any], Any]] = {
    "system_prompt": _as_text,
    "tools": lambda tools: check_unique_names(() if tools is None else tools),
    "steering_mode": _as_queue_mode,
    "follow_up_mode": _as_queue_mode,
    "stream_fn": _as_stream_fn,
}
"""The settings that are not options of a run's config, and how each is checked."""


class AgentSettings:
    """The settings by name; `thinking_level` is the config's `reasoning`, every other option has the config's name.

    Whatever is set is checked at once, together with all the rest: raises `TypeError` or `ValueError`.

    Threads: each setting is replaced by one operation, and `snapshot` reads them all by one.
    """

    def __init__(self, config: AgentLoopConfig | None, given: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = {name: _BESIDE[name](given[name]) for name in _BESIDE}
        model = _as_model(given["model"])
        options = self._options_of(config, model) if config is not None else {}
        options["model"] = model
        named = {name: value for name, value in given.items() if name not in _BESIDE and value is not None}
        level = named.pop("thinking_level", None) or options.get("reasoning") or ThinkingLevel.OFF
        checked = AgentLoopConfig(**{**options, **named, "model": model, "reasoning": level})
        self._values.update({name: getattr(checked, name) for name in _OPTIONS})

    def __getitem__(self, name: str) -> Any:
        return self._values["reasoning" if name == "thinking_level" else name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in _BESIDE:
            self._values[name] = _BESIDE[name](value)
            return
        if name == "model":
            value = _as_model(value)
        elif name == "thinking_level":
            name, value = "reasoning", ThinkingLevel.OFF if value is None else value
        self._values[name] = getattr(self._config(self.snapshot(), {name: value}), name)

    def snapshot(self) -> dict[str, Any]:
        """Return all settings, as they are at one moment."""
        return dict(self._values)

    @property
    def config(self) -> AgentLoopConfig:
        """The options of a run as one record; setting it replaces them all, and keeps the model."""
        return self._config(self.snapshot(), {})

    @config.setter
    def config(self, config: AgentLoopConfig) -> None:
        options = self._options_of(config, self["model"])
        options["reasoning"] = options["reasoning"] or ThinkingLevel.OFF
        self._values.update(options)

    @staticmethod
    def run_config(values: Mapping[str, Any], **hooks: Any) -> AgentLoopConfig:
        """Return the config of a run from a snapshot and the hooks that belong to that run."""
        return AgentSettings._config(values, hooks)

    @staticmethod
    def _config(values: Mapping[str, Any], changes: Mapping[str, Any]) -> AgentLoopConfig:
        return AgentLoopConfig(**{**{name: values[name] for name in _OPTIONS}, **changes})

    @staticmethod
    def _options_of(config: Any, model: Model) -> dict[str, Any]:
        """Return the options of a config an agent can have; the rest it sets itself, for each run."""
        if not isinstance(config, AgentLoopConfig):
            raise TypeError(f"`config` is an `AgentLoopConfig`, not {type(config).__name__}")
        if config.model != model:
            raise ValueError(f"`config` is for the model {config.model.id!r}, and the agent's is {model.id!r}")
        for name in _PER_RUN:
            if getattr(config, name) is not None:
                raise ValueError(f"`config.{name}` is set, but that is for the agent to set; leave it out")
        return {name: getattr(config, name) for name in _OPTIONS}


class Setting(Generic[_T]):
    """A part of an agent that can be replaced between runs; raises `AgentBusyError` during one."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, agent: None, owner: type) -> Setting[_T]: ...

    @overload
    def __get__(self, agent: object, owner: type) -> _T: ...

    def __get__(self, agent: Any, owner: type) -> Any:
        return self if agent is None else agent._settings[self._name]

    def __set__(self, agent: Any, value: Any) -> None:
        agent._refuse_when_busy(f"replace `{self._name}`")
        agent._settings[self._name] = value
