"""Which region a draft token falls into, on logits whose probabilities are plain to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.arrays import Floats
from via_sd_local.engine.gate import (
    DEFAULT_RULE,
    ConfidenceRule,
    JointRule,
    PaperRule,
    RatioRule,
    Region,
    Rule,
    SlimVerdict,
    judge,
)

JOINT = JointRule(accept=0.6, rewrite=0.8)
RATIO = ConfidenceRule(accept=0.5, rewrite=0.8)


def rows(*probabilities: list[float]) -> Floats:
    """Logits with these softmax probabilities, shifted by another constant in every row."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(probabilities)) + np.arange(len(probabilities))[:, None] * 7 - 5
    return logits.astype(np.float32)


END = [0.25, 0.25, 0.25, 0.25]  # an unsure row behind the block


@pytest.mark.parametrize(
    ("rule", "probabilities", "token", "expected"),
    [
        # joint: only the argmax with confidence is kept
        (JOINT, [0.1, 0.7, 0.1, 0.1], 1, Region.A),
        (JOINT, [0.1, 0.5, 0.3, 0.1], 1, Region.C),  # the argmax, but too unsure to keep
        (JOINT, [0.05, 0.85, 0.05, 0.05], 0, Region.B),
        (JointRule(0.3, 0.3), [0.0, 0.5, 0.498, 0.002], 2, Region.B),  # as good as the argmax, but another token
        (JOINT, [0.1, 0.7, 0.1, 0.1], 2, Region.C),  # another token, and q' too unsure to rewrite
        # ratio: any token close enough to the argmax is kept, however unsure q' is
        (RATIO, [0.1, 0.4, 0.3, 0.2], 1, Region.A),
        (RATIO, [0.1, 0.4, 0.3, 0.2], 2, Region.A),  # ratio 0.75
        (RATIO, [0.1, 0.6, 0.2, 0.1], 2, Region.C),  # ratio 0.33, max q' 0.6
        (RATIO, [0.05, 0.85, 0.05, 0.05], 0, Region.B),
        (RATIO, [0.0, 0.9, 0.1, 0.0], 0, Region.B),  # a token that q' rules out
    ],
)
def test_region_of_a_draft_token(rule: Rule, probabilities: list[float], token: int, expected: Region) -> None:
    verdict = judge(rule, [token], rows(probabilities, END))
    if expected is Region.A:
        assert verdict == SlimVerdict(1, Region.A, 0, sure=False)
    else:
        assert verdict == SlimVerdict(0, expected, 1, sure=expected is Region.B)


@pytest.mark.parametrize(
    ("rule", "token", "expected"),
    [
        (JointRule(0.5, 1.0), 0, Region.A),  # max q' is exactly accept
        (JointRule(np.nextafter(0.5, 1), 1.0), 0, Region.C),
        (JointRule(1.0, 0.5), 2, Region.B),  # max q' is exactly rewrite
        (JointRule(1.0, np.nextafter(0.5, 1)), 2, Region.C),
        (ConfidenceRule(0.5, 1.0), 1, Region.A),  # the ratio is exactly accept
        (ConfidenceRule(np.nextafter(0.5, 1), 1.0), 1, Region.C),
        (ConfidenceRule(1.0, 0.5), 1, Region.B),
        (ConfidenceRule(1.0, np.nextafter(0.5, 1)), 1, Region.C),
        (ConfidenceRule(0.0, 0.0), 3, Region.A),
    ],
)
def test_a_threshold_belongs_to_the_more_confident_side(rule: Rule, token: int, expected: Region) -> None:
    # in exact float32: exp(0) = 1 and three further terms that sum to 1, so max q' = 0.5
    logits = np.log(np.array([[1.0, 0.5, 0.25, 0.25], END], np.float32))
    verdict = judge(rule, [token], logits)
    assert (Region.A if verdict.kept else verdict.region) is expected


def test_tied_argmaxes_agree_with_either() -> None:
    tied = rows([0.45, 0.45, 0.05, 0.05], END)
    rule = JointRule(0.4, 0.4)
    assert judge(rule, [0], tied).kept == judge(rule, [1], tied).kept == 1
    assert judge(rule, [2], tied) == SlimVerdict(0, Region.B, 0, sure=True)


@pytest.mark.parametrize("rule", [JOINT, RATIO])
@pytest.mark.parametrize(("top", "sure"), [(0.85, True), (0.7, False)])
def test_a_block_kept_whole_ends_with_a_bonus_if_the_slim_verifier_is_sure(rule: Rule, top: float, sure: bool) -> None:
    sure_of_1, rest = [0.05, 0.85, 0.05, 0.05], (1 - top) / 3
    assert judge(rule, [1, 1], rows(sure_of_1, sure_of_1, [rest, rest, rest, top])) == SlimVerdict(2, Region.A, 3, sure)


def test_an_empty_draft_leaves_only_the_bonus() -> None:
    assert judge(JOINT, [], rows([0.9, 0.1, 0.0, 0.0])) == SlimVerdict(0, Region.A, 0, sure=True)


@pytest.mark.parametrize(
    ("probabilities", "region", "token", "sure"),
    [([0.05, 0.05, 0.05, 0.85], Region.B, 3, True), ([0.1, 0.1, 0.1, 0.7], Region.C, 3, False)],
)
def test_the_first_token_that_is_not_kept_ends_the_block(
    probabilities: list[float], region: Region, token: int, sure: bool
) -> None:
    sure_of_1 = [0.05, 0.85, 0.05, 0.05]
    logits = rows(sure_of_1, sure_of_1, probabilities, sure_of_1, sure_of_1)
    assert judge(JOINT, [1, 1, 1, 1], logits) == SlimVerdict(2, region, token, sure)


def test_a_rule_that_turns_down_the_token_it_would_rewrite_to_escalates() -> None:
    rule = JointRule(accept=0.9, rewrite=0.5)
    assert judge(rule, [1], rows([0.1, 0.7, 0.1, 0.1], END)) == SlimVerdict(0, Region.C, 1, sure=False)
    assert judge(rule, [0], rows([0.1, 0.7, 0.1, 0.1], END)) == SlimVerdict(0, Region.B, 1, sure=True)


def test_logits_that_are_no_numbers_escalate() -> None:
    logits = np.full((2, 4), np.nan, np.float32)
    for rule in (JOINT, RATIO):
        assert judge(rule, [1], logits).region is Region.C


probability = st.floats(0.05, 0.95)


@pytest.mark.parametrize("kind", [JointRule, ConfidenceRule])
@given(accept=probability, rewrite=probability)
def test_no_region_is_empty_whatever_the_thresholds(kind: type[Rule], accept: float, rewrite: float) -> None:
    rule, n = kind(accept, rewrite), 1000  # so flat a row is unsure under any threshold
    flat = np.zeros(n, np.float32)
    peak = np.where(np.arange(n) == 1, np.float32(30), np.float32(0))
    tilted = np.where(np.arange(n) == 1, np.float32(3.5), np.float32(0))  # max q' 0.03, others 0.03 times that
    found = {
        Region.A: judge(rule, [1], np.stack([peak, flat])),
        Region.B: judge(rule, [0], np.stack([peak, flat])),
        Region.C: judge(rule, [0], np.stack([tilted, flat])),
    }
    assert found[Region.A].kept == 1
    assert (found[Region.B].kept, found[Region.B].region) == (0, Region.B)
    assert (found[Region.C].kept, found[Region.C].region) == (0, Region.C)


@given(
    st.sampled_from([JointRule, ConfidenceRule]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.lists(st.floats(-20, 20, width=32), min_size=5, max_size=5),
    st.integers(0, 4),
)
def test_regions_follow_their_definition(
    kind: type[Rule], accept: float, rewrite: float, logits: list[float], token: int
) -> None:
    q = np.exp(np.array(logits, np.float64) - max(logits))
    top, ratio = 1 / q.sum(), q[token]
    near = min(abs(top - accept), abs(top - rewrite), abs(ratio - accept)) < 1e-5
    near |= 1 - ratio < 1e-5 and token != np.argmax(q)  # a tie, or nearly one
    if near:
        return  # float32 may fall on either side
    agrees = (ratio == 1 and top >= accept) if kind is JointRule else ratio >= accept
    expected = Region.A if agrees else Region.B if top >= rewrite and ratio < 1 else Region.C
    verdict = judge(kind(accept, rewrite), [token], np.array([logits, [0] * 5], np.float32))
    assert (Region.A if verdict.kept else verdict.region) is expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("joint:0.5,0.25", JointRule(0.5, 0.25)),
        ("confidence:0.7,0.5", ConfidenceRule(0.7, 0.5)),
        ("0.4,0.3", JointRule(0.4, 0.3)),
        (" confidence : 1 , 0 ", ConfidenceRule(1.0, 0.0)),
        ("ratio:0.9,0.03", RatioRule(0.9, 0.03)),
    ],
)
def test_a_rule_is_read_from_text_and_written_as_it_is_read(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["", "joint", "joint:", "0.5", "0.5,0.5,0.5", "joint:a,b", "confidence:0.5;0.5", "best:1,1"]
)
def test_a_text_that_is_no_rule_is_shown_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"RULE:ACCEPT,REWRITE, e\.g\. joint:0\.5,0\.5") as caught:
        Rule.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("joint:1.1,0.5", "joint threshold accept is 1.1"),
        ("confidence:0.5,-0.1", "confidence threshold rewrite is -0.1"),
        ("joint:0.5,nan", "joint threshold rewrite is nan"),
        ("inf,0.5", "joint threshold accept is inf"),
    ],
)
def test_thresholds_are_probabilities(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"{complaint}; it must be a probability from 0 to 1"):
        Rule.parse(text)


def test_the_default_rule_can_keep_rewrite_and_escalate() -> None:
    likely, unlikely = [0.1, 0.7, 0.1, 0.1], [0.3, 0.4, 0.2, 0.1]
    assert judge(DEFAULT_RULE, [1], rows(likely, END)).kept == 1
    assert judge(DEFAULT_RULE, [0], rows(likely, END)).region is Region.B
    assert judge(DEFAULT_RULE, [1], rows(unlikely, END)).region is Region.C


def test_the_text_form_of_a_rule_has_no_superfluous_digits() -> None:
    assert [str(DEFAULT_RULE), str(RatioRule(1.0, 0.001))] == ["joint:0.5,0.5", "ratio:1,0.001"]


def test_a_tighter_rule_is_half_as_far_from_certainty() -> None:
    assert JointRule(0.5, 0.2).tighter() == JointRule(0.75, 0.6)
    assert ConfidenceRule(0.5, 1.0).tighter() == ConfidenceRule(0.75, 1.0)
    assert RatioRule(0.5, 0.1).tighter() == RatioRule(0.75, 0.05)


#
# the paper's rule
#


@pytest.mark.parametrize(
    ("rest", "expected"),
    [(0.5, Region.A), (0.45, Region.A), (0.34, Region.B), (0.16, Region.B), (0.14, Region.C), (0.0, Region.C)],
)
def test_the_papers_slim_tier_rewrites_what_it_doubts_and_escalates_what_it_rules_out(
    rest: float, expected: Region
) -> None:
    """r is twice the probability of the drafted token: A from 0.7 on, B from 0.3 on."""
    verdict = judge(PaperRule(0.3, 0.7), [1], rows([0.5, rest, 0.5 - rest, 0.0], END))
    assert verdict == SlimVerdict(int(expected is Region.A), expected, 0, sure=expected is Region.B)


def test_the_papers_regions_b_and_c_are_exchanged_in_ratio() -> None:
    doubted, ruled_out = rows([0.5, 0.25, 0.25, 0.0], END), rows([0.5, 0.05, 0.25, 0.2], END)
    paper, ratio = PaperRule(0.3, 0.7), RatioRule(0.7, 0.3)
    assert [judge(paper, [1], logits).region for logits in (doubted, ruled_out)] == [Region.B, Region.C]
    assert [judge(ratio, [1], logits).region for logits in (doubted, ruled_out)] == [Region.C, Region.B]


@pytest.mark.parametrize(("alpha1", "alpha2"), [(0.5, 0.3), (0.3, 0.3)])
def test_thresholds_of_the_paper_that_leave_region_b_empty_are_refused(alpha1: float, alpha2: float) -> None:
    with pytest.raises(ValueError, match=f"alpha1 {alpha1} and alpha2 {alpha2}; alpha1 must be below alpha2"):
        Rule.parse(f"paper:{alpha1},{alpha2}")


def test_the_papers_rule_is_written_with_its_alphas_and_tightens_towards_the_full_tier() -> None:
    rule = Rule.parse("paper:0.3,0.7")
    assert rule == PaperRule(0.3, 0.7)
    assert str(rule) == "paper:0.3,0.7"
    assert rule.tighter() == PaperRule(0.15, 0.35)
    for ratio in (0.8, 0.5, 0.1):  # nothing becomes laxer
        assert rule.keeps(ratio, 0.5) >= rule.tighter().keeps(ratio, 0.5)
        assert rule.rewrites(ratio, 0.5) >= rule.tighter().rewrites(ratio, 0.5)
