"""The slim tier's decisions at a temperature: it samples losslessly from its own distribution, or does not decide.

Whether it decides a position depends on its confidence there and never on the drafted token. Otherwise a token that the
draft model drew and the slim tier kept would count twice: once as the sample that was kept, and again in the
distribution from which the other positions are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.acceptance import accept_or_resample
from ..sampling.distribution import Distribution, best_probability
from ..sampling.sampler import NoTokenLeft, Sampler
from ..tiers.drafter import Draft
from .gate import Region, Rule, SlimVerdict


@dataclass(frozen=True, slots=True)
class SlimJudgement:
    """The verdict on a draft, whether the slim tier was unsure of the next token, and the distributions sampled from.

    `distributions[i]` belongs to the token at position i of the block, the slim tier's own included. It is None at
    temperature 0, and for a sampler that has no distribution (mirostat).
    """

    verdict: SlimVerdict
    unsure: bool
    distributions: list[Distribution | None]


def sample_by_slim(
    rule: Rule, draft: Draft, slim_logits: Floats, sampler: Sampler, end_tokens: frozenset[int], most: int
) -> SlimJudgement:
    """Sample from the slim tier with the draft as proposal, until it does not decide a position.

    `slim_logits` is `[len(draft.tokens) + 1, n_vocab]`; row i is for the position of `draft.tokens[i]`. The slim tier
    decides a position if `rule.decides(max q')` and fewer than `most` tokens of the draft were kept, unless the sampler
    rules out every token there. A draft token that
    is a sample is kept with probability min(1, q'/p), else the residual is drawn (speculative sampling); a draft token
    that is no sample is kept if it equals the slim tier's own draw. Region B ends the draft at a token that is not
    kept, region C at a position that the slim tier does not decide. The sampler accepts every kept token but an end
    token.
    """
    distributions: list[Distribution | None] = []

    def judgement(kept: int, region: Region, token: int, *, sure: bool, unsure: bool = False) -> SlimJudgement:
        return SlimJudgement(SlimVerdict(kept, region, token, sure), unsure, distributions)

    for position, drafted in enumerate([*draft.tokens, None]):
        logits = slim_logits[position]
        try:
            row = sampler.processed(logits)
        except NoTokenLeft:
            best, decides = -1, False
        else:
            best = int(row.argmax())
            decides = rule.decides(best_probability(row, best))
        if not decides or position >= most:
            region = Region.A if drafted is None else Region.C
            return judgement(position, region, best, sure=False, unsure=drafted is not None and position < most)
        distribution = sampler.distribution(logits) if sampler.is_distribution else None
        distributions.append(distribution)
        if drafted is not None and distribution is not None and position < len(draft.proposals):
            token = accept_or_resample(distribution, draft.proposals[position], drafted, sampler.random)
        else:
            token = sampler.choose(logits)
        if drafted is None:
            return judgement(position, Region.A, token, sure=True)
        if token != drafted:
            return judgement(position, Region.B, token, sure=True)
        if token in end_tokens:
            return judgement(position + 1, Region.A, token, sure=False)
        sampler.accept(token)
    raise AssertionError("the position after the draft ends the loop")
