"""Objectives over the calibration text: the paper's KL cost, plain KL, agreement, and expected tokens per second.

Distributions to compare are log-probabilities `[n, m]` over the same m events, one row for each position: either a
whole vocabulary, or the tokens that are kept and, as the last column, the rest as one event. Costs are better when
lower, and 0 for equal distributions (except with softplus); `agreement` and `expected_speed` are better when higher.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ...arrays import Floats
from ...engine.costs import Costs
from ...json_form import from_json
from ..top_logits import LOG_ZERO, TopLogits, log_rest

Phi: TypeAlias = Literal["relu", "softplus"]
Objective: TypeAlias = Literal["kl", "relu", "softplus", "agreement"]

OBJECTIVES: tuple[Objective, ...] = ("kl", "relu", "softplus", "agreement")
ALPHA, BETA = 0.3, 0.7  # probabilities within a factor of 0.7 cost nothing; the paper does not print its own margins
LONGEST_DRAFT = 16


@dataclass(frozen=True, slots=True)
class Score:
    """How far a slim model's q' is from the full model's q, as means over `tokens` positions.

    `kl` is D(q ‖ q'), and `relu` and `softplus` are the paper's R(q ‖ q'), all in nats; `agreement` is the share of
    positions with the same argmax.
    """

    kl: float
    relu: float
    softplus: float
    agreement: float
    tokens: int

    def loss(self, objective: Objective) -> float:
        """Return the loss that a search minimises."""
        return 1.0 - self.agreement if objective == "agreement" else float(getattr(self, objective))

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Score:
        """Return the score from what `to_json` returned; raises ValueError that names the wrong entry."""
        score: Score = from_json(cls, data, "score")
        return score


def score(
    log_q: Floats, log_u: Floats, same: npt.NDArray[np.bool_], *, alpha: float = ALPHA, beta: float = BETA
) -> Score:
    """Score u against q, from log-probabilities `[n, m]`; `same` `[n]` tells where their best tokens agree.

    `alpha` and `beta` are the margins of `relaxed_cost`.
    """
    return Score(
        kl=float(kl(log_q, log_u).mean()),
        relu=float(relaxed_cost(log_q, log_u, alpha=alpha, beta=beta).mean()),
        softplus=float(relaxed_cost(log_q, log_u, alpha=alpha, beta=beta, phi="softplus").mean()),
        agreement=float(same.mean()),
        tokens=len(log_q),
    )


def kl(log_a: Floats, log_b: Floats) -> Floats:
    """Return D(a ‖ b) = Σ a · (log a - log b) of each position, `[n]`."""
    result: Floats = (np.exp(log_a) * (log_a - log_b)).sum(axis=1)
    return result


def relaxed_cost(
    log_q: Floats, log_p: Floats, *, alpha: float = ALPHA, beta: float = BETA, phi: Phi = "relu"
) -> Floats:
    """Return the paper's R(q ‖ p) of each position, `[n]`: the cost of a proposal p under a judge q.

    R = Σ p · φ(log(1 - alpha) + log p - log q) + Σ q · φ(log beta + log p - log q). Both terms grow where p gives a
    token *more* probability than q does, the first weighted by p, the second by q; there, q rejects what p proposes.
    With φ = ReLU, ratios p / q up to 1 / (1 - alpha) and 1 / beta cost nothing, so R(q ‖ q) is 0; softplus is its
    smooth upper bound and never 0. ValueError for alpha outside [0, 1), beta outside (0, 1], or an unknown phi.
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must be a margin of at least 0 (none) and below 1")
    if not 0 < beta <= 1:
        raise ValueError(f"beta is {beta}; it must be a margin above 0 and at most 1 (none)")
    if phi not in ("relu", "softplus"):
        raise ValueError(f"phi is {phi!r}; it must be relu or softplus")
    excess = log_p - log_q
    terms = np.exp(log_p) * _phi(np.log1p(-alpha) + excess, phi) + np.exp(log_q) * _phi(np.log(beta) + excess, phi)
    result: Floats = terms.sum(axis=1)
    return result


def _phi(x: Floats, phi: Phi) -> Floats:
    result: Floats = np.maximum(x, 0.0) if phi == "relu" else np.logaddexp(0.0, x)
    return result


def delta(c_qp: float, c_up: float, c_qu: float) -> float:
    """Return Δ(u) = C(q ‖ p) - C(u ‖ p) - C(q ‖ u), where C(judge ‖ proposal) is the mean of R in nats per token.

    p is the drafter, u the slim verifier and q the full verifier. Above 0, an intermediate judge u pays.
    """
    return c_qp - c_up - c_qu


def agreement(a: TopLogits, b: TopLogits) -> float:
    """Return the share of positions where both distributions have the same most probable token."""
    return float((a.best == b.best).mean())


def paired(a: TopLogits, b: TopLogits) -> tuple[Floats, Floats]:
    """Return the log-probabilities of both over common events, `[n, k_a + k_b + 1]` each.

    The events are the tokens that either keeps, and the rest as one event. For a token that only one of them keeps,
    the other's probability is estimated: half of its rest, divided among as many tokens, and at most the probability of
    its last kept token. A token that both keep has two columns, the second of which has no probability. ValueError for
    different numbers of positions.
    """
    if len(a) != len(b):
        raise ValueError(f"the distributions cover {len(a)} and {len(b)} positions; compare the same text")
    equal = a.ids[:, :, None] == b.ids[:, None, :]
    in_a, in_b = equal.any(axis=1), equal.any(axis=2)
    of_b = np.take_along_axis(b.log_probs, equal.argmax(axis=2), axis=1)
    log_a = [a.log_probs, np.where(in_a, LOG_ZERO, _unkept(a, b.ids.shape[1]))]
    log_b = [np.where(in_b, of_b, _unkept(b, a.ids.shape[1])), np.where(in_a, LOG_ZERO, b.log_probs)]
    return with_rest(np.concatenate(log_a, axis=1)), with_rest(np.concatenate(log_b, axis=1))


def _unkept(top: TopLogits, n: int) -> Floats:
    """Estimate the log-probability of each of n tokens that are not kept, `[rows, 1]`."""
    estimate = np.maximum(log_rest(top.log_probs) - np.log(2 * n), LOG_ZERO)
    result: Floats = np.minimum(estimate, top.log_probs[:, -1:]).astype(np.float32)
    return result


def with_rest(log_probs: Floats) -> Floats:
    """Append the rest as one more event: log-probabilities `[n, m]` become `[n, m + 1]`."""
    joined: Floats = np.concatenate([log_probs, log_rest(log_probs)], axis=1)
    return joined


def expected_speed(
    costs: Costs, *, skipped: float, first: float, slim_agreement: float, draft_agreement: float
) -> float:
    """Estimate the tokens per second of three tiers at the best draft length, in order to compare masks.

    `skipped` is the share of a full pass that the mask saves, `first` the share of weights below the first skipped
    layer; agreements are with the full model's choice. The model assumes that a slim pass costs 1 - skipped of a full
    pass and a resumed pass 1 - first; that a block ends at the first draft token that the slim tier rewrites, or with
    its bonus token; and that a block is escalated to a resumed pass exactly if the slim tier is wrong anywhere in it.
    Drafting is free if `costs` has no draft passes. KeyError without full passes, ValueError for an invalid share.
    """
    for name, value in (
        ("skipped", skipped),
        ("first", first),
        ("slim_agreement", slim_agreement),
        ("draft_agreement", draft_agreement),
    ):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}; it must be a share from 0 to 1")
    free = not costs.knows("draft")
    accepted = draft_agreement * slim_agreement + (1 - draft_agreement) * (1 - slim_agreement) / 2
    best = 0.0
    for n in range(1, LONGEST_DRAFT + 1):
        emitted = sum(accepted**i for i in range(n + 1))
        drafting = 0.0 if free else costs.of("draft", 2) + (n - 1) * costs.of("draft", 1)
        full = costs.of("full", n + 1)
        escalated = 1 - slim_agreement**emitted
        best = max(best, emitted / (drafting + (1 - skipped) * full + escalated * (1 - first) * full))
    return best
