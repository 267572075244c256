"""The beginning of a message on one line: pure text."""

from __future__ import annotations

_SHOWN = 60  # characters


def excerpt(text: str) -> str:
    """Return the first line of a text, at most 60 characters of it, with an ellipsis if there is more."""
    lines = text.strip().splitlines() or [""]
    cut = len(lines) > 1 or len(lines[0]) > _SHOWN
    return f"{lines[0][:_SHOWN]}{'…' if cut else ''}"
