"""The variables that hold provider keys are known in one place, and can be taken out of an environment."""

import ast
from pathlib import Path

import agentcore
from agentcore._keys import KEY_VARIABLES, without_keys

PROVIDERS = Path(agentcore.__file__).parent / "providers"


def test_keys_are_taken_out_and_the_rest_stays() -> None:
    environment = {"OPENAI_API_KEY": "1", "openai_api_key": "2", "PATH": "/bin", "MY_API_KEY": "3"}

    assert without_keys(environment) == {"PATH": "/bin", "MY_API_KEY": "3"}
    assert len(environment) == 4


def test_every_provider_has_variables_of_its_own() -> None:
    names = [name for variables in KEY_VARIABLES.values() for name in variables]

    assert all(KEY_VARIABLES.values())
    assert len(names) == len(set(names))
    assert {"openai", "anthropic", "google", "groq", "deepseek", "mistral", "xai", "openrouter"} <= set(KEY_VARIABLES)


def test_the_providers_name_no_key_variable_that_is_not_in_the_list() -> None:
    # A name that is spelled out somewhere else would be passed on to commands.
    known = {name for variables in KEY_VARIABLES.values() for name in variables}
    spelled_out = {
        node.value
        for path in PROVIDERS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.endswith(("_API_KEY", "_TOKEN"))
    }

    assert spelled_out <= known
