"""The environment variables that hold provider keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["KEY_VARIABLES", "without_keys"]

KEY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "alibaba": ("DASHSCOPE_API_KEY",),
        "anthropic": ("ANTHROPIC_API_KEY",),
        "azure": ("AZURE_OPENAI_API_KEY",),
        "cerebras": ("CEREBRAS_API_KEY",),
        "deepseek": ("DEEPSEEK_API_KEY",),
        "fireworks": ("FIREWORKS_API_KEY",),
        "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "groq": ("GROQ_API_KEY",),
        "mistral": ("MISTRAL_API_KEY",),
        "moonshot": ("MOONSHOT_API_KEY",),
        "ollama": ("OLLAMA_API_KEY",),
        "openai": ("OPENAI_API_KEY",),
        "openrouter": ("OPENROUTER_API_KEY",),
        "together": ("TOGETHER_API_KEY",),
        "xai": ("XAI_API_KEY",),
        "zai": ("ZAI_API_KEY",),
    }
)
"""Provider → the variables its key is looked for in, the first one that is set wins."""


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of an environment less the variables that hold provider keys."""
    keys = {name for names in KEY_VARIABLES.values() for name in names}
    return {name: value for name, value in environment.items() if name.upper() not in keys}
