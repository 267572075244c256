"""Tokens that the slim tier decided since the last full pass, and the full model's judgement of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.distribution import Distribution, token_probability, total_variation
from ..sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class SlimDecision:
    """A token, the region that decided it (A or B; a bonus token counts as B), and its probability under p or q'.

    `distribution` is q' as it was sampled from; None at temperature 0, and for a sampler without a distribution.
    """

    token: int
    region: str
    probability: float
    distribution: Distribution | None = None


@dataclass(frozen=True, slots=True)
class AuditedToken:
    """The full model's judgement of a token.

    `deviation` is 0 or 1 at temperature 0, and otherwise the total variation distance of q' and q at its position: the
    share of texts in which sampling from q' instead of q changes this token. `overshoot` is the token's probability
    under p or q' less that under q.
    """

    region: str
    deviation: float
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
    """The judgements of an audit, oldest token first, and the block's first deviation or None.

    At a temperature nothing is taken back, so `first` is None: a token that is drawn anew because of what followed it
    would not be distributed as q.
    """

    tokens: list[AuditedToken]
    first: Deviation | None

    @property
    def deviations(self) -> float:
        """The sum of the tokens' deviations."""
        return sum(token.deviation for token in self.tokens)


class Audit:
    """The decisions of the slim tier that wait for a full pass, with the sampler's state before the first of them."""

    def __init__(self) -> None:
        self._decisions: list[SlimDecision] = []
        self._before: Sampler | None = None

    def __len__(self) -> int:
        """Return the number of pending decisions."""
        return len(self._decisions)

    def begin(self, sampler: Sampler) -> None:
        """Remember the sampler's state, unless decisions are waiting already."""
        if not self._decisions:
            self.close()  # the state before an older decision
            self._before = sampler.fork()

    def expect(self, decision: SlimDecision) -> None:
        """Add a decision of the slim tier."""
        self._decisions.append(decision)

    def compare(self, logits: Floats, block: int, end_tokens: frozenset[int]) -> AuditReport:
        """Compare the newest decisions with the full model's logits for them, and forget all decisions.

        `logits` is `[n, n_vocab]` with n at most `len(self)`; older decisions are not judged. A greedy token deviates
        if it is not the full model's best one under the sampler's settings; for a sampled token see `AuditedToken`. The
        block begins at decision `block`, from which the first deviation is looked for.
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
            if sampler.greedy and audited.deviation and first is None and index >= block:
                first = Deviation(index - block, sampler.fork(fresh=True))  # the draw at this position is spent
            if decision.token not in end_tokens:
                sampler.accept(decision.token)
        self._decisions.clear()
        return AuditReport(tokens, first)

    def close(self) -> None:
        """Forget all decisions, and free the remembered state."""
        self._decisions.clear()
        if self._before is not None:
            self._before.close()
            self._before = None


def _judged(decision: SlimDecision, logits: Floats, sampler: Sampler) -> AuditedToken:
    """Judge one decision by the full model's logits `[n_vocab]` and the sampler's state at its position."""
    row = sampler.processed(logits)
    if sampler.greedy:
        deviation = float(decision.token != int(row.argmax()))
    elif decision.distribution is not None:
        deviation = total_variation(decision.distribution, sampler.distribution(logits))
    else:
        deviation = 0.0  # unknown
    return AuditedToken(decision.region, deviation, decision.probability - token_probability(row, decision.token))
