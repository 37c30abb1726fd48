"""Write `agentcore/providers/catalog.json` anew: prices and context windows from the package `genai-prices`, the rest by hand.

    python scripts/refresh_catalog.py          write the file
    python scripts/refresh_catalog.py --check  say what would change; exit status 1 if anything would

`catalog_models.json` beside this script lists the models, and what the price data does not know: the output limit, what
a model reads, and whether it thinks.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CATALOG = HERE.parent / "agentcore" / "providers" / "catalog.json"
KINDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def price_of(value: Any) -> float | None:
    """Return a price in USD per million tokens; of prices by size, that of short requests."""
    base = getattr(value, "base", value)
    return None if base is None else float(base)


def prices_of(model: Any, now: dt.datetime) -> dict[str, float]:
    """Return the prices that hold now, by kind; a kind without a known price is left out."""
    prices = model.get_prices(now) if hasattr(model, "get_prices") else model.prices
    found = {kind: price_of(getattr(prices, field, None)) for kind, field in KINDS.items()}
    return {kind: price for kind, price in found.items() if price is not None}


def built(now: dt.datetime) -> dict[str, Any]:
    """Return the catalog as it is now."""
    from genai_prices.data import providers

    by_id = {provider.id: {model.id: model for model in provider.models} for provider in providers}
    kept = json.loads((HERE / "catalog_models.json").read_text("utf-8"))
    catalog: dict[str, Any] = {}
    for name, provider in kept["providers"].items():
        models: dict[str, Any] = {}
        for id, facts in provider["models"].items():
            source = by_id[provider["source_id"]].get(id)
            if source is None:
                raise SystemExit(f"the price data has no {name}/{id}; take it out of catalog_models.json")
            models[id] = {
                "name": source.name or id,
                "context_window": source.context_window,
                **facts,
                "cost": prices_of(source, now),
            }
        catalog[name] = {"api": provider["api"], "base_url": provider["base_url"], "models": models}
    version = importlib.metadata.version("genai-prices")
    return {
        "date": now.date().isoformat(),
        "source": f"prices and context windows: genai-prices {version} (MIT); the rest: the vendors' pages",
        "providers": catalog,
    }


def main(arguments: list[str]) -> int:
    """Write the catalog, or check it."""
    catalog = built(dt.datetime.now(dt.timezone.utc))
    if "--check" in arguments:
        known = json.loads(CATALOG.read_text("utf-8"))
        same = known["providers"] == catalog["providers"]
        print("up to date" if same else "the catalog has changed: run scripts/refresh_catalog.py")
        return 0 if same else 1
    CATALOG.write_text(json.dumps(catalog, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{sum(len(provider['models']) for provider in catalog['providers'].values())} models written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
