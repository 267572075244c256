"""The speed of plain decoding: full passes of one token, timed in this session at the present length of the text."""

from __future__ import annotations

import statistics

from ..tiers.verifier import Verifier

_PASSES = 3
_SIMILAR = 256  # tokens of context within which a measurement still holds


class PlainSpeed:
    """The measured speed of plain decoding, renewed as the context grows."""

    def __init__(self) -> None:
        self._measured: tuple[Verifier, int, float] | None = None

    def tokens_per_second(self, verifier: Verifier) -> float | None:
        """Return the tokens a second of full passes alone, without sampling; None where the cache cannot be rewound.

        Runs a few passes now and then. Afterwards the cache holds the same text, all of it computed by the full model.
        """
        n = verifier.n_kv
        if n < 2 or not verifier.can_rewind:
            return None
        if self._measured is not None:
            of, at, seconds = self._measured
            if of is verifier and abs(at - n) < _SIMILAR:
                return 1 / seconds
        seconds = _seconds_of_a_pass(verifier)
        self._measured = (verifier, n, seconds)
        return 1 / seconds


def _seconds_of_a_pass(verifier: Verifier) -> float:
    """Return the median seconds of passes that compute the last token again, after one to warm up."""
    verifier.reopen(0)
    if verifier.n_full < verifier.n_kv:
        verifier.full([], 1)
    times: list[float] = []
    last = verifier.cells[-1]
    for _ in range(1 + _PASSES):
        verifier.rewind(verifier.n_kv - 1)
        verifier.full([last], 1, recorder=lambda _kind, _tokens, seconds: times.append(seconds))
    return max(statistics.median(times[1:]), 1e-9)
