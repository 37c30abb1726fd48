"""The page about providers says what the code does: its tables are compared with it."""

import re
from pathlib import Path

import attrs
import pytest

from agentcore import Model, StreamOptions
from agentcore._keys import KEY_VARIABLES
from agentcore.providers import _MODULES
from agentcore.providers.dialects import DIALECTS, Dialect
from tests.providers.wire_support import BY_API

OPTIONS = StreamOptions()
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text("utf-8")
_OVERVIEW, _COMPAT = re.findall(r"^\| `api` \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)


def cells(table: str) -> list[list[str]]:
    """Return the rows of a table below its head."""
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def documented_keys() -> dict[str, set[str]]:
    """Return the keys of `Model.compat` that the page names for each API."""
    keys: dict[str, set[str]] = {}
    api = ""
    for line in _COMPAT.splitlines()[2:]:
        first, key = (cell.strip(" `") for cell in line.split("|")[1:3])
        api = first or api
        keys.setdefault(api, set()).add(key)
    for_all = keys.pop("all")
    return {name: found | for_all for name, found in keys.items()}


def refused(api: str, key: str) -> bool:
    wire = BY_API[api]
    try:
        wire.build(model=wire.model(compat={key: object()}))
    except ValueError as error:
        return "unknown keys" in str(error)
    except (TypeError, AttributeError):
        pass  # a key that is known, with a value that cannot be
    return False


def test_the_page_names_every_api() -> None:
    head = _OVERVIEW.splitlines()[0]

    assert set(re.findall(r"`([a-z-]+)`", head)) - {"api"} == set(_MODULES)
    assert set(documented_keys()) == set(_MODULES)


@pytest.mark.parametrize("api", _MODULES)
def test_the_page_names_the_settings_that_an_api_takes_and_no_others(api: str) -> None:
    every = {key for keys in documented_keys().values() for key in keys} | {"name", "hosts", "nonsense"}

    taken = {key for key in every if not refused(api, key)}

    assert taken == documented_keys()[api]


def test_the_page_names_every_field_of_a_dialect() -> None:
    fields = {field.name for field in attrs.fields(Dialect)} - {"name", "hosts"}

    assert documented_keys()["openai-completions"] == fields


def test_the_page_names_every_vendor_and_known_variables() -> None:
    listed = re.search(r"else by `provider`:\n(.*?)\. ", PAGE, re.DOTALL)
    assert listed is not None
    names = {re.sub(r"\W", "", name).lower() for name in listed[1].split(",")}

    assert names == {dialect.name for dialect in DIALECTS}
    variables = {name for variables in KEY_VARIABLES.values() for name in variables}
    assert set(re.findall(r"`([A-Z_]+_API_KEY)`", PAGE)) <= variables


@pytest.mark.parametrize("api", _MODULES)
def test_the_addresses_of_the_page_lead_to_the_apis_paths(api: str) -> None:
    row = next(row for row in cells(_OVERVIEW) if row[0] == "`base_url` ends in")
    column = [cell.strip(" `") for cell in _OVERVIEW.splitlines()[0].strip("| ").split("|")].index(api)
    endings = re.findall(r"`([^`]+)`", row[column])
    assert endings

    for ending in [*endings, ""] if "bare host" in row[column] else endings:
        url, _ = BY_API[api].adapter._ADAPTER.address(
            Model("m", api=api, base_url="http://host" + ending), OPTIONS, None
        )
        assert (
            url.partition("?")[0]
            == "http://host"
            + {
                "openai-completions": "/v1/chat/completions",
                "openai-responses": "/v1/responses",
                "anthropic-messages": "/v1/messages",
                "google-generative-ai": "/v1beta/models/m:streamGenerateContent",
            }[api]
        )
