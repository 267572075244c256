"""What distributions over the calibration text are worth: the paper's KL cost, plain KL, agreement, tokens per second.

Pairs of distributions are log-probabilities `[n, m]` over the same m events, one row a position: a whole vocabulary,
or the tokens that are kept and, as the last column, all the rest as one event. Every cost here is better when it is
lower, and 0 for equal distributions (softplus aside); `agreement` and `expected_speed` are better when higher.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ...arrays import Floats
from ...engine.costs import Costs
from ...json_form import from_json
from ..top_logits import TopLogits

Phi: TypeAlias = Literal["relu", "softplus"]
Objective: TypeAlias = Literal["kl", "relu", "softplus", "agreement"]

OBJECTIVES: tuple[Objective, ...] = ("kl", "relu", "softplus", "agreement")
ALPHA, BETA = 0.3, 0.7  # probabilities within a factor of 0.7 cost nothing; the paper's own margins are not known here
TINIEST = -30.0  # in place of log 0
LONGEST_DRAFT = 16


@dataclass(frozen=True, slots=True)
class Score:
    """How far a slim model's q' is from the full model's q, as means over `tokens` positions.

    `kl` is D(q ‖ q'), `relu` and `softplus` the paper's R(q ‖ q'), all in nats; `agreement` the share of positions with
    the same argmax.
    """

    kl: float
    relu: float
    softplus: float
    agreement: float
    tokens: int

    def loss(self, objective: Objective) -> float:
        """What a search makes small."""
        return 1.0 - self.agreement if objective == "agreement" else float(getattr(self, objective))

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Score:
        """Return the score from what `to_json` returned; raises ValueError that names the wrong entry."""
        score: Score = from_json(cls, data, "score")
        return score


def score(log_q: Floats, log_u: Floats, same: npt.NDArray[np.bool_]) -> Score:
    """All measures of u against q at once; `same` says where their best tokens agree."""
    return Score(
        kl=float(kl(log_q, log_u).mean()),
        relu=float(relaxed_cost(log_q, log_u).mean()),
        softplus=float(relaxed_cost(log_q, log_u, phi="softplus").mean()),
        agreement=float(same.mean()),
        tokens=len(log_q),
    )


def kl(log_a: Floats, log_b: Floats) -> Floats:
    """D(a ‖ b) = Σ a · (log a - log b), `[n]`."""
    result: Floats = (np.exp(log_a) * (log_a - log_b)).sum(axis=1)
    return result


def relaxed_cost(
    log_q: Floats, log_p: Floats, *, alpha: float = ALPHA, beta: float = BETA, phi: Phi = "relu"
) -> Floats:
    """The paper's R(q ‖ p) of each position, `[n]`: what a judge q has against a proposal p.

    R = Σ p · φ(log(1 - alpha) + log p - log q) + Σ q · φ(log beta + log p - log q). Both terms grow where p gives a
    token *more* probability than q does, the first as p sees it, the second as q does; that is where q rejects what p
    proposes. With φ = ReLU, ratios p / q up to 1 / (1 - alpha) and 1 / beta cost nothing, so R(q ‖ q) is 0; softplus
    is its smooth upper bound, and never 0. ValueError for alpha outside [0, 1), beta outside (0, 1].
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is {alpha}; it is a margin from 0 (none) to below 1")
    if not 0 < beta <= 1:
        raise ValueError(f"beta is {beta}; it is a margin above 0, up to 1 (none)")
    if phi not in ("relu", "softplus"):
        raise ValueError(f"phi is {phi!r}; it is relu or softplus")
    excess = log_p - log_q
    terms = np.exp(log_p) * _phi(np.log1p(-alpha) + excess, phi) + np.exp(log_q) * _phi(np.log(beta) + excess, phi)
    result: Floats = terms.sum(axis=1)
    return result


def _phi(x: Floats, phi: Phi) -> Floats:
    result: Floats = np.maximum(x, 0.0) if phi == "relu" else np.logaddexp(0.0, x)
    return result


def delta(c_qp: float, c_up: float, c_qu: float) -> float:
    """Δ(u) = C(q ‖ p) - C(u ‖ p) - C(q ‖ u), C(judge ‖ proposal) the sum of R; above 0, the judge u in between pays.

    Here p is the drafter, u the slim verifier, q the full one.
    """
    return c_qp - c_up - c_qu


def agreement(a: TopLogits, b: TopLogits) -> float:
    """The share of positions where both have the same best token."""
    return float((a.best == b.best).mean())


def paired(a: TopLogits, b: TopLogits) -> tuple[Floats, Floats]:
    """Log-probabilities of both, `[n, k_a + k_b + 1]`: over the tokens that either keeps, and the rest as one event.

    A token that only one of them keeps gets an estimate from the other: half of what that one leaves out, spread over
    as many tokens, at most its last kept one's probability. The columns of what both keep come twice, the second time
    as events of no probability. ValueError for different numbers of positions.
    """
    if len(a) != len(b):
        raise ValueError(f"the distributions are of {len(a)} and {len(b)} positions; compare the same text")
    equal = a.ids[:, :, None] == b.ids[:, None, :]
    in_a, in_b = equal.any(axis=1), equal.any(axis=2)
    of_b = np.take_along_axis(b.log_probs, equal.argmax(axis=2), axis=1)
    log_a = [a.log_probs, np.where(in_a, TINIEST, _unkept(a, b.ids.shape[1]))]
    log_b = [np.where(in_b, of_b, _unkept(b, a.ids.shape[1])), np.where(in_a, TINIEST, b.log_probs)]
    return with_rest(np.concatenate(log_a, axis=1)), with_rest(np.concatenate(log_b, axis=1))


def _unkept(top: TopLogits, n: int) -> Floats:
    """The estimated log-probability of any of n tokens that are not kept, `[rows, 1]`."""
    left = 1.0 - np.exp(top.log_probs.astype(np.float64)).sum(axis=1, keepdims=True)
    estimate = np.log(np.maximum(left / (2 * n), np.exp(TINIEST)))
    result: Floats = np.minimum(estimate, top.log_probs[:, -1:]).astype(np.float32)
    return result


def with_rest(log_probs: Floats) -> Floats:
    """`[n, m]` with the probability that is left over as one more column."""
    left = 1.0 - np.exp(log_probs.astype(np.float64)).sum(axis=1, keepdims=True)
    rest = np.log(np.maximum(left, np.exp(TINIEST)))
    joined: Floats = np.concatenate([log_probs, rest.astype(np.float32)], axis=1)
    return joined


def expected_speed(
    costs: Costs, *, skipped: float, first: float, slim_agreement: float, draft_agreement: float
) -> float:
    """Tokens a second of three tiers at the best draft length: an estimate by which masks are compared.

    `skipped` is the share of a full pass that the mask saves, `first` the share of layers below its first skipped one;
    agreements are with the full model's choice. A slim pass is taken to cost 1 - skipped of a full one, a resumed pass
    1 - first. Blocks end at the first draft token that the slim tier rewrites, or with its bonus token. A block goes on
    to a resumed pass if the slim tier is wrong anywhere in it, as if thresholds found that out, without a mistake. The
    drafter is free where `costs` has no draft passes. KeyError without full passes.
    """
    for name, value in (
        ("skipped", skipped),
        ("first", first),
        ("slim_agreement", slim_agreement),
        ("draft_agreement", draft_agreement),
    ):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}; it is a share, from 0 to 1")
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
