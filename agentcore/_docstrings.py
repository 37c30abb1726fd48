"""A docstring as a model is told it: what the thing is for, and what is said of each parameter."""

from __future__ import annotations

__all__ = ["read_docstring"]


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return what a docstring says, and what it says of each name; Google, NumPy or Sphinx style, without indentation.

    The sections about parameters, results and errors are left out of the first. Never raises.
    """
    if not text:
        return "", {}
    from docstring_parser import parse

    try:
        # The blank lines let a docstring begin with a section.
        parsed = parse("\n\n" + text)
    except Exception:  # not only its own error: a stray `: :param` is an IndexError
        return text.strip(), {}
    between = "\n\n" if parsed.blank_after_short_description else "\n"
    said = between.join(part for part in (parsed.short_description, parsed.long_description) if part)
    described = {}
    for parameter in parsed.params:
        if parameter.description:
            for name in parameter.arg_name.split(","):  # NumPy style describes `x, y : int` together
                described[name.strip()] = " ".join(parameter.description.split())
    return said, described
