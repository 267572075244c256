"""The distributions of the three tiers over a recording, and what they say of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..profiles.profile import Agreement, DeltaCriterion
from .dimr.objective import agreement, delta, paired, relaxed_cost
from .recording import Recording
from .top_logits import TopLogits


@dataclass(frozen=True, slots=True)
class TierDistributions:
    """The tiers' distributions over all recorded positions, `[n]` each; None for a tier that was not recorded."""

    full: TopLogits
    slim: TopLogits | None
    draft: TopLogits | None

    @classmethod
    def of(cls, recording: Recording) -> TierDistributions:
        """Return the distributions over all answers of a recording, in order; ValueError for an empty recording."""

        def joined(parts: Sequence[TopLogits | None]) -> TopLogits | None:
            recorded = [part for part in parts if part is not None]
            return TopLogits.join(recorded) if len(recorded) == len(parts) else None

        full = TopLogits.join([answer.full for answer in recording.answers])
        slim = joined([answer.slim for answer in recording.answers])
        return cls(full, slim, joined([answer.draft for answer in recording.answers]))

    def agreements(self) -> dict[str, Agreement]:
        """Return the agreement of each pair of recorded tiers: p the draft model, q' the slim tier, q the full one."""
        pairs = {"p-q": (self.draft, self.full), "q'-q": (self.slim, self.full), "p-q'": (self.draft, self.slim)}
        return {
            name: Agreement(round(agreement(a, b), 6), len(self.full))
            for name, (a, b) in pairs.items()
            if a is not None and b is not None
        }

    def delta(self) -> DeltaCriterion | None:
        """Return the paper's criterion, in nats per position; None where a tier was not recorded."""
        if self.slim is None or self.draft is None:
            return None

        def cost(judge: TopLogits, proposal: TopLogits) -> float:
            return float(np.mean(relaxed_cost(*paired(judge, proposal))))

        q_p, u_p, q_u = cost(self.full, self.draft), cost(self.slim, self.draft), cost(self.full, self.slim)
        return DeltaCriterion(*(round(value, 6) for value in (q_p, u_p, q_u, delta(q_p, u_p, q_u))))
