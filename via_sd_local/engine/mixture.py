"""The paper's mixture of three distributions, sampled losslessly: mode `viasd` at a temperature.

VIA-SD (arXiv 2606.12243) describes the emitted token by

    pi = (1 - delta2) * [(1 - delta1) * p + delta1 * q'] + delta2 * q

where delta1 and delta2 are the masses that reach regions B and C, with p of the drafter, q' of the slim verifier and q
of the full one. A draft token v, a sample of p, is accepted with probability min(1, pi(v) / p(v)), and otherwise
replaced by a sample of the residual max(0, pi - p): speculative sampling (Leviathan et al., 2023) with pi as target.
That is exact for any deltas that do not depend on v. Here they are the probabilities under p of the regions of
`PaperRule`, so they depend on p and q' alone: delta2 is that of region C, delta1 that of region B relative to A and B.

q is known only after a full pass, so pi is sampled in two steps, which leaves it unchanged: with probability delta2 the
position, and the rest of the draft, go to the full verifier, which samples q with v as proposal; otherwise v is the
proposal for the bracket. Keeping v wherever q' likes it, and drawing from the whole q' or q elsewhere, would not give
pi: what region A keeps would count twice.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats
from ..sampling.acceptance import accept_or_resample
from ..sampling.distribution import Distribution, best_probability
from ..sampling.sampler import Sampler
from ..tiers.drafter import Draft
from .gate import PaperRule, Region, SlimVerdict
from .slim_sampling import SlimJudgement


def region_masses(rule: PaperRule, p: Distribution, row: Floats) -> tuple[float, float]:
    """Return delta1 and delta2, from 0 to 1, given the slim verifier's processed logits `[n_vocab]` of the position."""
    ratio = np.exp(row[p.tokens] - row.max())
    in_a = float(p.probabilities[ratio >= 1 - rule.accept].sum())
    in_c = float(p.probabilities[ratio < 1 - rule.rewrite].sum())
    in_b = max(0.0, 1 - in_a - in_c)
    return (in_b / (in_a + in_b) if in_a + in_b > 0 else 0.0), min(in_c, 1.0)


def mixed(a: Distribution, b: Distribution, share: float) -> Distribution:
    """Return (1 - share) * a + share * b."""
    tokens, at = np.unique(np.concatenate([a.tokens, b.tokens]), return_inverse=True)
    weights = np.zeros(len(tokens))
    np.add.at(weights, at, np.concatenate([(1 - share) * a.probabilities, share * b.probabilities]))
    return Distribution.from_weights(tokens, weights)


def sample_mixture(
    rule: PaperRule, draft: Draft, slim_logits: Floats, sampler: Sampler, end_tokens: frozenset[int], most: int
) -> SlimJudgement:
    """Sample from the mixture with the draft as proposal, until the full verifier decides a position.

    `slim_logits` is `[len(draft.tokens) + 1, n_vocab]`; row i is for the position of `draft.tokens[i]`. A draft token
    that is no sample is its own distribution p. At most `most` tokens of the draft are kept. After a draft that is kept
    whole, the slim verifier adds a sample of q' where `rule.emits`. Region B ends the draft at a token that was
    replaced. The sampler, which must have a distribution, accepts every kept token but an end token.
    """
    distributions: list[Distribution | None] = []

    def judgement(kept: int, region: Region, token: int, *, sure: bool, unsure: bool = False) -> SlimJudgement:
        return SlimJudgement(SlimVerdict(kept, region, token, sure), unsure, distributions)

    for position, drafted in enumerate(draft.tokens):
        logits = slim_logits[position]
        row = sampler.processed(logits)
        proposal = draft.proposals[position] if position < len(draft.proposals) else None
        p = Distribution(np.array([drafted], np.int32), np.ones(1)) if proposal is None else proposal
        delta1, delta2 = region_masses(rule, p, row)
        if position >= most or sampler.random.random() < delta2:
            return judgement(position, Region.C, int(row.argmax()), sure=False, unsure=position < most)
        target = mixed(p, sampler.distribution(logits), delta1)
        token = accept_or_resample(target, p, drafted, sampler.random)
        distributions.append(target)
        if token != drafted:
            return judgement(position, Region.B, token, sure=True)
        if token in end_tokens:
            return judgement(position + 1, Region.A, token, sure=False)
        sampler.accept(token)
    n = len(draft.tokens)
    logits = slim_logits[n]
    row = sampler.processed(logits)
    best = int(row.argmax())
    if n >= most or not rule.emits(best_probability(row, best)):
        return judgement(n, Region.A, best, sure=False)
    distributions.append(sampler.distribution(logits))
    return judgement(n, Region.A, sampler.choose(logits), sure=True)
