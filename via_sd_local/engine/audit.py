"""Tokens that the slim tier decided since the last full pass, and the full model's judgement of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.distribution import token_probability
from ..sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class SlimDecision:
    """A token, the region that decided it (A or B; a bonus token counts as B), and its probability under p or q'."""

    token: int
    region: str
    probability: float


@dataclass(frozen=True, slots=True)
class AuditedToken:
    """The full model's judgement of a token; `overshoot` is the token's probability under p or q' less that under q."""

    region: str
    deviates: bool
    overshoot: float


@dataclass(frozen=True, slots=True)
class Deviation:
    """The first token of a block that deviates: its position in the block, and the sampler's state before it.

    The owner of the deviation closes the sampler.
    """

    position: int
    before: Sampler


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The judgements of an audit, oldest token first, and the block's first deviation or None."""

    tokens: list[AuditedToken]
    first: Deviation | None

    @property
    def deviations(self) -> int:
        """The number of tokens that deviate."""
        return sum(token.deviates for token in self.tokens)


class Audit:
    """The decisions of the slim tier that wait for a full pass, with the sampler's state before the first of them."""

    def __init__(self) -> None:
        self._decisions: list[SlimDecision] = []
        self._before: Sampler | None = None

    def __len__(self) -> int:
        """The number of decisions that wait."""
        return len(self._decisions)

    def begin(self, sampler: Sampler) -> None:
        """Remember the sampler's state, unless decisions are waiting already."""
        if not self._decisions:
            self.close()
            self._before = sampler.fork()

    def expect(self, token: int, region: str, probability: float) -> None:
        """Add a decision of the slim tier."""
        self._decisions.append(SlimDecision(token, region, probability))

    def compare(self, logits: Floats, block: int, end_tokens: frozenset[int]) -> AuditReport:
        """Compare the newest decisions with the full model's logits for them, and forget all decisions.

        `logits` is `[n, n_vocab]` with n at most `len(self)`; older decisions are not judged. A greedy token deviates
        if it is not the full model's best one under the sampler's settings; a sampled token deviates if the full model
        could not have drawn it. The block begins at decision `block`, from which the first deviation is looked for.
        """
        tokens: list[AuditedToken] = []
        first: Deviation | None = None
        sampler = self._before
        skipped = len(self._decisions) - len(logits)
        for index, decision in enumerate(self._decisions):
            assert sampler is not None
            if index < skipped:
                sampler.accept(decision.token)
                continue
            audited = _judged(decision, logits[index - skipped], sampler)
            tokens.append(audited)
            if audited.deviates and first is None and index >= block:
                first = Deviation(index - block, sampler.fork(fresh=True))  # the draw at this position is spent
            if decision.token not in end_tokens:
                sampler.accept(decision.token)
        self._decisions.clear()
        return AuditReport(tokens, first)

    def close(self) -> None:
        """Free the remembered state."""
        if self._before is not None:
            self._before.close()
            self._before = None


def _judged(decision: SlimDecision, logits: Floats, sampler: Sampler) -> AuditedToken:
    """Judge one decision by the full model's logits `[n_vocab]` and the sampler's state at its position."""
    row = sampler.processed(logits)
    if sampler.greedy:
        deviates = decision.token != int(row.argmax())
    else:
        deviates = sampler.is_distribution and sampler.distribution(logits).probability(decision.token) == 0
    return AuditedToken(decision.region, deviates, decision.probability - token_probability(row, decision.token))
