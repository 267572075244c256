"""A pattern that finds any of many literal texts, such as a vocabulary's thousands of control tokens, in one pass."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

_DEEPEST = 30  # nested groups; beyond them the rest is a flat alternation, since patterns are compiled recursively


def any_of(texts: Collection[str]) -> re.Pattern[str]:
    """Return a pattern that matches the longest of the texts at each place; it matches nothing if there are none.

    Common beginnings are factored out, so that a place costs as many steps as it has characters in common with a text,
    not as many as there are texts.
    """
    distinct = sorted(set(texts) - {""})
    return re.compile(_alternatives(distinct, 0) if distinct else r"(?!)")


def _alternatives(texts: list[str], depth: int) -> str:
    """Return alternatives that match the longest of these distinct texts in sorted order, of which one may be empty."""
    if depth == _DEEPEST:
        return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    parts = []
    for _, same in groupby(filter(None, texts), key=lambda text: text[0]):
        group = list(same)
        prefix = _common_prefix(group[0], group[-1])  # of all of them, since they are sorted
        rests = [text[len(prefix) :] for text in group]
        parts.append(re.escape(prefix) + (f"(?:{_alternatives(rests, depth + 1)})" if len(rests) > 1 else ""))
    if "" in texts[:1]:
        parts.append("")  # last, since it is the shortest
    return "|".join(parts)


def _common_prefix(a: str, b: str) -> str:
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]
