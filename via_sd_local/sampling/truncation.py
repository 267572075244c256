"""Truncating samplers on the few tokens that can survive them, instead of on the whole vocabulary.

The result is that of llama.cpp's samplers in the same order, up to ties at the cut and the rounding of a cumulative
sum. Probabilities that a sampler compares with a threshold still refer to the whole vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from .distribution import Distribution
from .params import SamplingParams
from .rows import at_least, sum_exp, top_k

MOST = 1024  # tokens; more are left to the samplers of the whole vocabulary
_NUCLEUS = (64, MOST)  # tokens among which the end of a nucleus is looked for

Candidates = tuple[npt.NDArray[np.int32], Floats]  # ids and logits


def best_candidates(row: Floats, params: SamplingParams) -> Candidates | None:
    """Return the tokens that top-k keeps of the logits `[n_vocab]`, in descending order.

    None if there is no top-k, or it keeps too many. Samplers that follow top-k see nothing else.
    """
    if params.mirostat_mode or not 0 < params.top_k <= MOST:
        return None
    return top_k(row, params.top_k)


def truncated(row: Floats, params: SamplingParams) -> Distribution | None:
    """Return the distribution after top-p, min-p and temperature, given the processed logits `[n_vocab]`.

    None if other samplers take part, or if more than 1024 tokens may be left.
    """
    if params.mirostat_mode or params.top_k > 0 or params.typical_p < 1 or params.temperature <= 0:
        return None
    largest = float(row.max())
    least = largest + math.log(params.min_p) if params.min_p > 0 else -math.inf
    if params.top_p < 1:
        candidates = _nucleus(row, params.top_p, largest)
        if candidates is None:
            return None
        ids, logits = candidates
        kept = logits >= np.float32(least)
        kept[0] = True
        ids, logits = ids[kept], logits[kept]
    elif params.min_p > 0:
        found = at_least(row, least, MOST)
        if found is None:
            return None
        ids, logits = found, row[found]
    else:
        return None
    return Distribution.from_logits(ids, logits / np.float32(params.temperature))


def _nucleus(row: Floats, mass: float, largest: float) -> Candidates | None:
    """Return the fewest most probable tokens whose probabilities sum to at least `mass`; None if they are too many."""
    total = sum_exp(row, largest)
    for k in _NUCLEUS:
        ids, logits = top_k(row, k)
        cumulative = np.exp(logits.astype(np.float64) - largest).cumsum() / total
        if cumulative[-1] >= mass or len(ids) == len(row):
            end = min(int(np.searchsorted(cumulative, mass)) + 1, len(ids))
            return ids[:end], logits[:end]
    return None
