"""Labels and texts in two columns: pure text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap


def columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return the rows as lines of at most `width` columns, unless a word is longer; texts continue under themselves."""
    indent = max(len(label) for label, _ in rows) + 2
    lines: list[str] = []
    for label, text in rows:
        lines += wrap(
            text,
            max(width, indent + 20),
            initial_indent=f"{label:<{indent}}",
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [label]
    return lines
