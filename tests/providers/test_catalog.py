"""The catalog of known models: what it says, what it refuses, and how it is made."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore import Agent, Model, Usage, get_model
from agentcore.models import has_prices, usage_cost
from agentcore.providers.catalog import catalog_models

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("provider", "id"), catalog_models(), ids="/".join)
def test_every_model_can_be_asked_and_has_prices(provider: str, id: str) -> None:
    model = get_model(provider, id)
    assert (model.id, model.provider) == (id, provider)
    assert model.base_url.startswith("https://")
    assert has_prices(model)
    assert model.context_window is None or model.context_window >= 8_000
    assert model.max_tokens is None or 1_000 <= model.max_tokens <= (model.context_window or 10**9)
    assert model.input[0] == "text"


def test_the_vendors_of_the_four_apis_and_of_the_commonest_imitators_are_there() -> None:
    apis = {provider: get_model(provider, id).api for provider, id in catalog_models()}
    assert apis["openai"] == "openai-responses"
    assert apis["anthropic"] == "anthropic-messages"
    assert apis["google"] == "google-generative-ai"
    assert {"groq", "deepseek", "mistral", "xai", "openrouter"} <= apis.keys()


def test_a_price_is_in_usd_per_million_tokens() -> None:
    model = get_model("anthropic", "claude-haiku-4-5")
    assert model.cost is not None
    cost = usage_cost(model, Usage(input=1_000_000))
    assert cost is not None
    assert cost["total"] == model.cost["input"]


def test_a_dated_id_is_the_model_without_its_date() -> None:
    dated = get_model("anthropic", "claude-haiku-4-5-20251001")
    assert dated.id == "claude-haiku-4-5-20251001"
    assert dated.cost == get_model("anthropic", "claude-haiku-4-5").cost


def test_an_unknown_id_is_refused_with_near_names() -> None:
    with pytest.raises(ValueError, match=r"no model 'gpt-5-mni' of openai.*did you mean 'gpt-5-mini'"):
        get_model("openai", "gpt-5-mni")


def test_an_unknown_provider_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no provider 'antropic'; it knows anthropic, .*did you mean 'anthropic'"):
        get_model("antropic", "claude-haiku-4-5")


def test_an_agent_takes_a_model_by_its_name() -> None:
    assert Agent("anthropic/claude-haiku-4-5").model == get_model("anthropic", "claude-haiku-4-5")
    assert Agent("groq/openai/gpt-oss-20b").model.id == "openai/gpt-oss-20b"


def test_a_model_by_hand_stays_easy() -> None:
    model = Model("qwen3", base_url="http://127.0.0.1:11434/v1")
    assert (model.api, model.provider, model.cost) == ("openai-completions", "", None)


def test_the_data_says_when_and_of_what_it_was_made() -> None:
    data = json.loads((ROOT / "agentcore" / "providers" / "catalog.json").read_text("utf-8"))
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", data["date"])
    assert "genai-prices" in data["source"]
    kept = json.loads((ROOT / "scripts" / "catalog_models.json").read_text("utf-8"))
    listed = {(provider, id) for provider, facts in kept["providers"].items() for id in facts["models"]}
    assert listed == set(catalog_models())
    assert all(facts["sources"] for facts in kept["providers"].values())


@pytest.mark.skipif(
    importlib.util.find_spec("genai_prices") is None, reason="needs the price data: pip install genai-prices"
)
def test_the_script_makes_the_catalog_of_the_price_data() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "refresh_catalog.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout in ("up to date\n", "the catalog has changed: run scripts/refresh_catalog.py\n")
