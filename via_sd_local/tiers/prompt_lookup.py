"""Prompt lookup: an n-gram at the end of the text predicts what followed its last occurrence."""

from __future__ import annotations

from collections.abc import Sequence

from .cache import common_prefix
from .drafter import NO_HINTS, Draft, Drafter, Hints


class PromptLookup(Drafter):
    """Proposes the tokens that followed the last occurrence of the text's last few tokens; the longest match wins.

    An index maps each n-gram to the position where it last ended, so the cost of a token is constant. Each position
    remembers the entries that it replaced, so that the index can be rewound.
    """

    name = "lookup"
    is_free = True

    def __init__(self, *, max_ngram: int = 4, min_ngram: int = 2) -> None:
        """Match between `min_ngram` and `max_ngram` tokens; ValueError unless 1 <= `min_ngram` <= `max_ngram`."""
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"min_ngram {min_ngram} and max_ngram {max_ngram} must satisfy 1 <= min <= max")
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # an n-gram → the position after its last occurrence
        self._replaced: list[tuple[int, ...]] = []  # by position: the earlier ends of the n-grams that end there, or 0

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        self._follow(text, hints.unchanged)
        n = len(self._text)
        for size in self._sizes:
            end = self._ends.get(tuple(self._text[n - size :])) if size < n else None
            if end is not None:
                return Draft(self._text[end : end + limit])
        return Draft([])

    def _follow(self, text: Sequence[int], unchanged: int) -> None:
        """Bring the index up to `text`, without its last n-grams, which would match themselves."""
        known = common_prefix(self._text, text, unchanged)
        while len(self._text) > known:
            self._text.pop()
            for ngram, before in zip(self._last_ngrams(), self._replaced.pop(), strict=True):
                if before:
                    self._ends[ngram] = before
                else:
                    del self._ends[ngram]
        for token in text[known:]:
            ngrams = self._last_ngrams()
            self._replaced.append(tuple(self._ends.get(ngram, 0) for ngram in ngrams))
            self._ends.update(dict.fromkeys(ngrams, len(self._text)))
            self._text.append(token)

    def _last_ngrams(self) -> list[tuple[int, ...]]:
        """Return the n-grams at the end of the text, the longest first."""
        n = len(self._text)
        return [tuple(self._text[n - size :]) for size in self._sizes if size <= n]

    def reset(self) -> None:
        self._follow([], 0)
