"""Lossless acceptance of drafts: what is emitted is distributed as if the target model had drawn every token itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..arrays import Floats
from .distribution import Distribution, residual
from .sampler import Sampler


def accept_or_resample(q: Distribution, p: Distribution, token: int, random: np.random.Generator) -> int:
    """Keep `token`, a sample of p, with probability min(1, q/p); otherwise draw from the residual.

    The returned token is distributed as q (speculative sampling; Leviathan et al., 2023).
    """
    if random.random() * p.probability(token) < q.probability(token):
        return token
    return residual(q, p).draw(random.random())


def verify(
    sampler: Sampler,
    draft: Sequence[int],
    proposals: Sequence[Distribution | None],
    logits: Floats,
    end_tokens: frozenset[int],
    lets_through: Callable[[int, float], bool] | None = None,
    ends: Callable[[int, int], bool] | None = None,
) -> list[int]:
    """Return the accepted prefix of a draft, and the target's own token after it.

    `logits` is `[len(draft) + 1, n_vocab]`; row i judges `draft[i]`. `proposals[i]` is the distribution that `draft[i]`
    was sampled from. Where it is None, or the list is too short, the draft token is no sample and is accepted if it
    equals the target's own draw. An end token ends the result, and so does the token at index i if `ends(i, token)` is
    true; `ends` is called for every token but an end token, in order. The sampler accepts every returned token but one
    that ends the result.

    `lets_through(i, gap)` makes acceptance lossy: it decides whether to keep `draft[i]` although its logit is `gap`
    below the best one. It is called for greedy samplers only, and never if either token is an end token.
    """
    tokens: list[int] = []
    for position in range(len(draft) + 1):
        proposal = proposals[position] if position < len(proposals) else None
        if proposal is not None and not sampler.greedy and sampler.is_distribution:
            q = sampler.distribution(logits[position])
            token = accept_or_resample(q, proposal, draft[position], sampler.random)
        else:
            token = sampler.choose(logits[position])
            if lets_through is not None and sampler.greedy and position < len(draft):
                drafted = draft[position]
                if token != drafted and token not in end_tokens and drafted not in end_tokens:
                    row = sampler.processed(logits[position])
                    if lets_through(position, float(row[token] - row[drafted])):
                        token = drafted
        tokens.append(token)
        if token in end_tokens or (ends is not None and ends(position, token)):
            break
        sampler.accept(token)
        if position < len(draft) and token != draft[position]:
            break
    return tokens
