"""The costs against whole vocabularies, their signs, and what tokens a second are expected of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.calibration.dimr.objective import (
    Score,
    agreement,
    delta,
    expected_speed,
    kl,
    paired,
    relaxed_cost,
    score,
    with_rest,
)
from via_sd_local.calibration.plan import PaperSearch, Plan
from via_sd_local.calibration.top_logits import TopLogits
from via_sd_local.engine.costs import Costs


def log(*probabilities: float) -> np.ndarray:
    return np.log(np.array([probabilities], np.float32))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


Q = log(0.7, 0.2, 0.1)
OVER = log(0.2, 0.2, 0.6)  # as a proposal: far too much for the third token
CAUTIOUS = log(0.6, 0.25, 0.15)  # within a factor of 0.7 of Q everywhere


def test_kl_is_that_of_the_formula_and_has_a_direction():
    expected = 0.7 * np.log(0.7 / 0.2) + 0.1 * np.log(0.1 / 0.6)
    np.testing.assert_allclose(kl(Q, OVER), [expected], rtol=1e-5)
    assert kl(Q, OVER)[0] != pytest.approx(kl(OVER, Q)[0])
    assert kl(Q, Q)[0] == 0


def test_a_proposal_costs_what_the_judge_would_reject():
    third = 0.6 * np.log(0.7 * 0.6 / 0.1) + 0.1 * np.log(0.7 * 0.6 / 0.1)  # only there is the proposal above the judge
    np.testing.assert_allclose(relaxed_cost(Q, OVER), [third], rtol=1e-5)


def test_equal_distributions_and_those_within_the_margins_cost_nothing():
    assert relaxed_cost(Q, Q)[0] == 0
    assert relaxed_cost(Q, CAUTIOUS)[0] == pytest.approx(0.2 * 0 + 0.15 * np.log(0.7 * 1.5) + 0.1 * np.log(0.7 * 1.5))
    assert relaxed_cost(Q, CAUTIOUS, alpha=0.4, beta=0.6)[0] == 0
    assert relaxed_cost(Q, CAUTIOUS, alpha=0, beta=1)[0] > relaxed_cost(Q, CAUTIOUS)[0]


def test_the_two_terms_weigh_by_the_proposal_and_by_the_judge():
    """With one margin at its widest only the other term is left."""
    near_one = 1 - 1e-12
    by_judge = relaxed_cost(Q, OVER, alpha=near_one, beta=1)[0]
    by_proposal = relaxed_cost(Q, OVER, alpha=0, beta=1e-12)[0]
    assert by_judge == pytest.approx(0.1 * np.log(6), rel=1e-5)
    assert by_proposal == pytest.approx(0.6 * np.log(6), rel=1e-5)


def test_swapping_judge_and_proposal_is_another_cost():
    assert relaxed_cost(OVER, Q)[0] == pytest.approx((0.7 + 0.2) * np.log(0.7 * 0.7 / 0.2), rel=1e-5)


def test_softplus_is_above_relu_and_close_to_it_far_from_the_margin():
    soft, hard = relaxed_cost(Q, OVER, phi="softplus")[0], relaxed_cost(Q, OVER)[0]
    assert hard < soft < hard + 2 * np.log(2)
    far = log(1e-8, 1e-8, 1 - 2e-8)
    wide = log(1 - 2e-8, 1e-8, 1e-8)
    assert relaxed_cost(wide, far, phi="softplus")[0] == pytest.approx(relaxed_cost(wide, far)[0], rel=1e-3)


@pytest.mark.parametrize(
    ("options", "says"), [({"alpha": 1.0}, "alpha"), ({"beta": 0.0}, "beta"), ({"phi": "x"}, "phi")]
)
def test_margins_and_phi_outside_their_range_are_refused(options, says):
    with pytest.raises(ValueError, match=f"{says} is"):
        relaxed_cost(Q, OVER, **options)


def test_delta_is_positive_where_the_one_in_between_pays():
    assert delta(c_qp=1.0, c_up=0.3, c_qu=0.2) == pytest.approx(0.5)
    p, u = log(0.3, 0.2, 0.5), log(0.5, 0.2, 0.3)  # u lies between p and q
    c = {name: float(relaxed_cost(a, b).sum()) for name, a, b in (("qp", Q, p), ("up", u, p), ("qu", Q, u))}
    assert delta(c["qp"], c["up"], c["qu"]) > 0
    beyond = log(0.05, 0.05, 0.9)
    c = {name: float(relaxed_cost(a, b).sum()) for name, a, b in (("up", beyond, p), ("qu", Q, beyond), ("qp", Q, p))}
    assert delta(c["qp"], c["up"], c["qu"]) < 0


#
# top logits
#


def pair(scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A vocabulary of 5,000 with tails like a language model's, and a perturbed copy."""
    rng = np.random.default_rng(seed)
    logits = 3.5 * rng.gumbel(size=(60, 5000)).astype(np.float32)
    return logits, logits + scale * rng.standard_normal(logits.shape).astype(np.float32)


def exact(log_q: np.ndarray, log_u: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `Evaluator.score` compares: both at the tokens that q keeps, and the rest."""
    return (
        with_rest(np.take_along_axis(log_q, ids, axis=1)),
        with_rest(np.take_along_axis(log_u, ids, axis=1)),
    )


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.5])
def test_64_tokens_and_the_rest_stand_for_a_vocabulary(scale):
    logits, other = pair(scale)
    log_q, log_u = log_softmax(logits), log_softmax(other)
    top = TopLogits.from_logits(logits)
    left = 1 - np.exp(top.log_probs).sum(axis=1)
    a, b = exact(log_q, log_u, top.ids)
    assert (kl(a, b) <= kl(log_q, log_u) + 1e-4).all()  # merging events never adds
    assert abs(kl(a, b).mean() - kl(log_q, log_u).mean()) <= 0.05 * kl(log_q, log_u).mean() + left.mean()
    assert abs(relaxed_cost(a, b).mean() - relaxed_cost(log_q, log_u).mean()) <= 4 * left.mean() * (1 + scale)
    # estimates where not both keep a token
    c, d = paired(top, TopLogits.from_logits(other))
    assert abs(kl(c, d).mean() - kl(log_q, log_u).mean()) <= 0.1 * kl(log_q, log_u).mean() + left.mean()


def test_pairs_are_distributions_over_the_same_events():
    logits, other = pair(1.0)
    a, b = paired(TopLogits.from_logits(logits, 32), TopLogits.from_logits(other, 20))
    assert a.shape == b.shape == (60, 53)
    for side in (a, b):
        np.testing.assert_allclose(np.exp(side).sum(axis=1), 1, atol=1e-4)
    same = paired(TopLogits.from_logits(logits), TopLogits.from_logits(logits))
    np.testing.assert_allclose(kl(*same), 0, atol=1e-6)


def test_pairs_of_different_texts_are_refused():
    logits, _ = pair(1.0)
    with pytest.raises(ValueError, match="60 and 59 positions"):
        paired(TopLogits.from_logits(logits), TopLogits.from_logits(logits)[:59])


def test_agreement_counts_equal_best_tokens():
    a = TopLogits.from_logits(np.array([[3, 1, 0], [0, 3, 1], [0, 1, 3], [3, 0, 0]], np.float32))
    b = TopLogits.from_logits(np.array([[3, 1, 0], [3, 0, 1], [0, 1, 3], [3, 0, 0]], np.float32))
    assert agreement(a, b) == 0.75


def test_a_score_holds_means_and_survives_its_json():
    log_q, log_u = np.concatenate([Q, Q]), np.concatenate([OVER, Q])
    made = score(log_q, log_u, np.array([False, True]))
    assert made.agreement == 0.5
    assert made.tokens == 2
    assert made.kl == pytest.approx(float(kl(Q, OVER)[0]) / 2)
    assert made.loss("agreement") == 0.5
    assert made.loss("relu") == made.relu == pytest.approx(float(relaxed_cost(Q, OVER)[0]) / 2)
    assert Score.from_json(made.to_json()) == made
    with pytest.raises(ValueError, match=r"score\.relu is missing"):
        Score.from_json({"kl": 1})


#
# tokens a second
#

FLAT = Costs({"full": {1: 0.1, 16: 0.1}, "draft": {1: 0.001, 2: 0.001}})


def speed(**changes: float) -> float:
    values = {"skipped": 0.4, "first": 0.4, "slim_agreement": 0.9, "draft_agreement": 0.8} | changes
    return expected_speed(FLAT, **values)


@pytest.mark.parametrize(
    ("name", "worse", "better"),
    [("skipped", 0.3, 0.5), ("first", 0.2, 0.6), ("slim_agreement", 0.8, 0.95), ("draft_agreement", 0.6, 0.9)],
)
def test_speed_grows_with_each_of_its_causes(name, worse, better):
    assert speed(**{name: worse}) < speed() < speed(**{name: better})


def test_a_perfect_slim_tier_for_free_costs_only_drafts():
    assert speed(skipped=1.0, slim_agreement=1.0, draft_agreement=1.0) == pytest.approx(2 / 0.001)


def test_a_slim_tier_that_is_always_wrong_costs_a_resumed_pass_each_block():
    assert speed(slim_agreement=0.0, draft_agreement=1.0) == pytest.approx(1 / (0.001 + 0.06 + 0.06))


def test_costs_without_a_drafter_draft_for_free():
    """Passes of any size cost the same, so the longest draft, of 16 tokens, and one token more are emitted by one."""
    assert expected_speed(
        Costs({"full": {1: 0.1, 16: 0.1}}), skipped=0, first=1, slim_agreement=1, draft_agreement=1
    ) == pytest.approx(17 / 0.1)


@pytest.mark.parametrize("name", ["skipped", "first", "slim_agreement", "draft_agreement"])
def test_shares_outside_0_to_1_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 1.5"):
        speed(**{name: 1.5})


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_speed_is_positive_and_finite(skipped, first, slim, draft):
    assert 0 < expected_speed(FLAT, skipped=skipped, first=first, slim_agreement=slim, draft_agreement=draft) < 1e6


def test_wider_margins_make_a_score_cost_less():
    log_q, log_u = np.log([[0.5, 0.3, 0.2]]), np.log([[0.2, 0.5, 0.3]])
    same = np.array([False])
    strict, usual, lax = (score(log_q, log_u, same, alpha=a, beta=b) for a, b in ((0, 1), (0.3, 0.7), (0.6, 0.4)))
    # without margins: sum of p max(0, log p/q) and of q max(0, log p/q)
    expected = 0.5 * np.log(5 / 3) + 0.3 * np.log(1.5) + 0.3 * np.log(5 / 3) + 0.2 * np.log(1.5)
    assert strict.relu == pytest.approx(expected)
    assert strict.relu > usual.relu > lax.relu == 0
    assert strict.kl == usual.kl == lax.kl


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.0}, "alpha is 1.0; it must be a margin"),
        ({"beta": 0.0}, "beta is 0.0; it must be a margin"),
        ({"theta": 0}, "theta is 0; every theta-th"),
        ({"acquisition": "pi"}, "acquisition is 'pi'; it is one of ei, gp-ucb"),
    ],
)
def test_options_of_the_papers_search_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        PaperSearch(**options)


def test_options_of_the_papers_search_are_refused_by_other_strategies():
    with pytest.raises(ValueError, match="theta is an option of strategy 'paper'; this is strategy 'guided'"):
        Plan("big", paper=PaperSearch(theta=3))
    assert Plan("big", strategy="paper", paper=PaperSearch(theta=3)).paper.theta == 3
