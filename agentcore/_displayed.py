"""What a notebook asks a value for when it shows it."""

from __future__ import annotations

__all__ = ["Displayed"]


class Displayed:
    """The base of what a notebook shows as more than its `repr`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from agentcore.display._values import html_of  # only where something is shown

        return html_of(self)

    def _repr_markdown_(self) -> str | None:
        from agentcore.display._values import markdown_of

        return markdown_of(self)
