"""The passes of one generation: run by the verifier, counted in the statistics, and learned from as costs."""

from __future__ import annotations

from collections.abc import Sequence

from ..arrays import Floats
from .costs import Costs, ResumeChoice
from .stats import Stats
from .verifier import EngineVerifier

MOST_SETTLED = 64  # positions that stay settled; the next full pass over more computes all of them again


class Passes:
    """The verifier as one generation uses it."""

    def __init__(
        self,
        verifier: EngineVerifier,
        stats: Stats,
        costs: Costs | None,
        resume_choice: ResumeChoice,
        *,
        write_through: bool = False,
    ) -> None:
        """`costs` None learns nothing, as where the lengths of drafts are fixed.

        With `write_through`, what the slim tier decides can be settled, so that no full pass computes it again.
        """
        self.write_through = write_through
        self.verifier = verifier
        self.seconds = 0.0  # of all passes, by the median of their kind and size, so that a stall does not show
        self._stats = stats
        self._costs = costs
        self._resume_choice = resume_choice

    def full(self, tokens: Sequence[int], rows: int, kind: str = "full") -> Floats:
        """Run a full pass, resumed where that is possible and costs less; returns `[rows, n_vocab]`."""
        verifier = self.verifier
        resume = not tokens and verifier.can_resume
        if resume:
            resume = self._resume_choice.should_resume(verifier.n_kv - verifier.n_full)
        return verifier.full(tokens, rows, kind, recorder=self.record, resume=resume)

    def slim(self, tokens: Sequence[int]) -> Floats:
        """Run a slim pass; returns `[len(tokens), n_vocab]`."""
        return self.verifier.slim(tokens, write_through=self.write_through, recorder=self.record)

    def settle(self) -> None:
        """Let all positions in the cache count as computed, if slim passes write K/V through."""
        if self.write_through:
            self._stats.settled += self.verifier.n_kv - self.verifier.n_full
            self.verifier.settle(self.verifier.n_kv)

    @property
    def is_renewal_due(self) -> bool:
        """Whether so many positions are settled that the next full pass is to compute them, which ends their drift."""
        return self.verifier.n_full - self.verifier.n_exact >= MOST_SETTLED

    def begin_at(self, first: int) -> None:
        """Let the next full pass begin at position `first`, if slim passes write K/V through, and else at `n_full`.

        Positions before it are settled, unless a renewal is due.
        """
        verifier = self.verifier
        if self.write_through:
            first = verifier.n_exact if self.is_renewal_due else first
            if first > verifier.n_full:
                self._stats.settled += first - verifier.n_full
                verifier.settle(first)
            verifier.reopen(first)

    def rewind(self, n: int) -> None:
        """Remove every position from `n` on."""
        self.verifier.rewind(n, self.record)

    def reuse(self, text: Sequence[int], limit: int) -> int:
        """Keep the longest common prefix of cache and text, at most `limit` positions; count and return its length."""
        n = self._stats.reused_tokens = self.verifier.reuse(text, limit, recorder=self.record)
        return n

    def record(self, kind: str, tokens: int, seconds: float) -> None:
        """Count a pass, and learn its cost; this is the recorder of the verifier's passes."""
        self._stats.record(kind, tokens, seconds)
        if self._costs is not None and kind != "prefill":
            self._costs.observe(kind, tokens, seconds)
            self.seconds += self._costs.of(kind, tokens) if self._costs.knows(kind) else seconds

    def record_draft(self, kind: str, tokens: int, seconds: float) -> None:
        """Count a pass of a drafter; this is the recorder of the drafters."""
        self._stats.draft_prefill_tokens += tokens * (kind == "prefill")
        self.record(kind, tokens, seconds)
