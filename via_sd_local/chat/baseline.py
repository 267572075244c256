"""What a token costs without drafts: full passes of one token, timed in this session at the context's own length."""

from __future__ import annotations

import statistics

from ..tiers.verifier import Verifier

_PASSES = 3
_SIMILAR = 256  # tokens of context by which a measurement may be off


class PlainSpeed:
    """The measured speed of plain decoding, renewed as the context grows."""

    def __init__(self) -> None:
        self._measured: tuple[Verifier, int, float] | None = None

    def tokens_per_second(self, verifier: Verifier) -> float | None:
        """Of full passes alone, sampling left out; None where passes cannot be taken back.

        Costs a few passes now and then. The cache holds the same text after, all of it computed by the full model.
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
    """The median over passes that compute the last token again, after one to warm up."""
    times: list[float] = []
    recorder, verifier.recorder = verifier.recorder, lambda _kind, _tokens, seconds: times.append(seconds)
    try:
        if verifier.n_full < verifier.n_kv:
            verifier.full([], 1)
        last = verifier.cells[-1]
        times.clear()
        for _ in range(1 + _PASSES):
            verifier.rewind(verifier.n_kv - 1)
            verifier.full([last], 1)
    finally:
        verifier.recorder = recorder
    return max(statistics.median(times[1:]), 1e-9)
