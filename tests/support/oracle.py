"""When a text counts as the reference model's own greedy choice.

Kernels round differently in batches of different shapes, so two correct decoders may part ways where the two best
logits are close. A token passes if, with the same text before it, its logit is within MARGIN of the best one; those
that are not the best are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from via_sd_local.runtime.context import Context
from via_sd_local.sampling.sampler import Sampler

MARGIN = 0.75  # logits of these quantised models move by up to 0.7 between batch shapes (measured)


def near_ties(reference: Context, prompt: Sequence[int], emitted: Sequence[int], sampler: Sampler | None = None) -> int:
    """How many emitted tokens are not the reference's argmax; AssertionError for one that is no near-tie either.

    With a `sampler` (fresh, for this prompt) by the logits that it makes of the reference's.
    """
    reference.clear()
    logits = reference.decode([*prompt, *emitted[:-1]], 0, len(emitted))
    if sampler is not None:
        logits = logits.copy()
        for i, token in enumerate(emitted):
            logits[i] = sampler.processed(logits[i])
            sampler.accept(token)
    best = logits.max(axis=1)
    gaps = best - logits[np.arange(len(emitted)), list(emitted)]
    worst = int(gaps.argmax())
    assert gaps[worst] <= MARGIN, f"token {worst} ({emitted[worst]}) is {gaps[worst]:.2f} below the best"
    return int((gaps > 0).sum())
