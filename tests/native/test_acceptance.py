"""Lossless acceptance converges to q, tiered to its mixture: fixed tiny distributions, seeded, chi-square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import fakes
import numpy as np
import pytest
import tiny
from scipy.stats import chisquare
from tiny_vocab import vocabulary

from via_sd_local.engine import decoder
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import DEFAULT_RULE, ConfidenceRule, JointRule, PaperRule, RatioRule, Rule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.steps import Tier
from via_sd_local.runtime.model import Model
from via_sd_local.sampling import acceptance
from via_sd_local.sampling.acceptance import accept_or_resample
from via_sd_local.sampling.distribution import Distribution, residual
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.sampler import Sampler, TemperatureSampler
from via_sd_local.tiers.drafter import Draft, Drafter, Hints
from via_sd_local.tiers.model_drafter import draft_tokens

Q = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
P = np.array([0.1, 0.5, 0.05, 0.3, 0.05])
SLIM = np.array([0.55, 0.15, 0.05, 0.2, 0.05])
TOKENS = np.arange(5, dtype=np.int32)
N = 20_000


def distribution(probabilities: np.ndarray) -> Distribution:
    return Distribution(TOKENS, probabilities)


def fits(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts could come from the expected probabilities, at the 0.1 % level (seeded: always the same)."""
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    return bool(chisquare(counts[possible], counts.sum() * expected[possible] / expected.sum()).pvalue > 1e-3)


def count(draw: Callable[[], int], n: int = N) -> np.ndarray:
    return np.bincount([draw() for _ in range(n)], minlength=5)


def test_a_rejected_token_leaves_the_residual() -> None:
    left = residual(distribution(Q), distribution(P))
    assert left.probabilities == pytest.approx([0.75, 0, 0.25, 0, 0])
    swapped = Distribution(TOKENS[::-1].copy(), P[::-1].copy())
    assert residual(distribution(Q), swapped).probabilities == pytest.approx(left.probabilities)
    partial = Distribution(np.array([3, 1], np.int32), np.array([0.5, 0.5]))
    expected = np.array([0.4, 0, 0.15, 0, 0.05])
    assert residual(distribution(Q), partial).probabilities == pytest.approx(expected / expected.sum())


def test_where_nothing_is_left_the_residual_is_q() -> None:
    assert residual(distribution(Q), distribution(Q)).probabilities == pytest.approx(Q)


def test_acceptance_converges_to_q_and_accepts_as_often_as_theory_says() -> None:
    random = np.random.default_rng(1)
    p, q = distribution(P), distribution(Q)
    accepted = 0

    def draw() -> int:
        nonlocal accepted
        proposed = p.draw(random.random())
        token = accept_or_resample(q, p, proposed, random)
        accepted += token == proposed
        return token

    assert fits(count(draw), Q)
    assert accepted / N == pytest.approx(np.minimum(P, Q).sum(), abs=0.01)


def test_a_broken_residual_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistical tests can fail: with q in place of the residual they do."""
    monkeypatch.setattr(acceptance, "residual", lambda q, p: q)
    random = np.random.default_rng(1)
    p, q = distribution(P), distribution(Q)
    assert not fits(count(lambda: accept_or_resample(q, p, p.draw(random.random()), random)), Q)


#
# whole generations of two tokens, over tiers whose distributions are fixed
#


class Fixed:
    """Every text goes on with the same distributions."""

    def full(self, text: Sequence[int]) -> np.ndarray:
        return padded(Q)

    def slim(self, text: Sequence[int]) -> np.ndarray:
        return padded(SLIM)


def padded(probabilities: np.ndarray) -> np.ndarray:
    logits = np.full(fakes.N_VOCAB, -60, np.float32)
    logits[:5] = np.log(probabilities)
    return logits


class Sampling(Drafter):
    """A drafter that draws from P as the target's sampler would."""

    name = "sampling"
    is_free = True

    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        alone = Hints(hints.sampler)
        return draft_tokens(padded(P), lambda _token: padded(P), limit, alone, end_tokens=frozenset())


def second_tokens(mode: Mode, rule: Rule, params: dict[str, float], n: int) -> tuple[np.ndarray, dict[Tier, int]]:
    """How often each token comes second in a text (the first one is the prefill's), and who decided it."""
    engine = Engine(fakes.fake_verifier(Fixed(), mask="2"), Sampling(), Policy(mode, 1, rule))
    counts, tiers = np.zeros(5, int), dict.fromkeys(Tier, 0)
    for seed in range(n):
        steps = engine.generate([1], max_tokens=3, sampling=SamplingParams(seed=seed, **params))
        next(steps)
        step = next(steps)
        counts[step.tokens[0]] += 1
        tiers[step.tiers[0]] += 1
    return counts, tiers


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    weights = probabilities ** (1 / temperature)
    return weights / weights.sum()


KEEPS_ALL = ConfidenceRule(0.0, 0.5)
MODES_AND_RULES = [
    pytest.param(Mode.PLAIN, DEFAULT_RULE, id="plain"),
    pytest.param(Mode.SD, DEFAULT_RULE, id="sd"),
    pytest.param(Mode.EXACT, DEFAULT_RULE, id="exact"),
    pytest.param(Mode.EXACT, KEEPS_ALL, id="exact, all drafts reach the full tier"),
]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize(("mode", "rule"), MODES_AND_RULES)
def test_lossless_modes_converge_to_q(mode: Mode, rule: Rule, temperature: float) -> None:
    counts, _ = second_tokens(mode, rule, {"temperature": temperature}, 4000)
    assert fits(counts, tempered(Q, temperature))


PENALTY, TOP_P = 1.5, 0.82
SHAPED = {"temperature": 1.0, "top_p": TOP_P, "repeat_penalty": PENALTY}


def shaped(probabilities: np.ndarray, *repeated: int) -> np.ndarray:
    """A distribution after a repeat penalty on some tokens (logarithms are negative: it multiplies) and top-p."""
    logits = np.log(np.maximum(probabilities, 1e-30))
    logits[[*{*repeated}]] *= PENALTY
    weights = np.exp(logits)
    weights /= weights.sum()
    order = np.argsort(-weights)
    kept = order[: int(np.searchsorted(weights[order].cumsum(), TOP_P)) + 1]
    result = np.zeros_like(weights)
    result[kept] = weights[kept] / weights[kept].sum()
    return result


def second_shaped() -> np.ndarray:
    """What comes second under penalties and top-p, whatever came first."""
    first = shaped(Q)
    expected: np.ndarray = sum(first[token] * shaped(Q, token) for token in range(len(Q)))
    return expected


@pytest.mark.parametrize(("mode", "rule"), MODES_AND_RULES)
def test_lossless_modes_converge_with_top_p_and_penalties(mode: Mode, rule: Rule) -> None:
    counts, _ = second_tokens(mode, rule, SHAPED, 4000)
    assert fits(counts, second_shaped())
    assert counts[shaped(Q) == 0].sum() > 0  # tokens that only the penalty lets in


def third_tokens(mode: Mode, params: dict[str, float], n: int) -> np.ndarray:
    """What follows where the second token was drafted and came: it is drafted, too, and decided in the same pass."""
    engine = Engine(fakes.fake_verifier(Fixed(), mask="2"), Sampling(), Policy(mode, 2, JointRule(1.0, 1.0)))
    counts = np.zeros(5, int)
    for seed in range(n):
        steps = engine.generate([1], max_tokens=4, sampling=SamplingParams(seed=seed, **params))
        next(steps)
        step = next(steps)
        assert set(step.tiers) == {Tier.FULL}
        if len(step.tokens) > 1:
            counts[step.tokens[1]] += 1
    return counts


def third_shaped(mode: Mode) -> np.ndarray:
    """The same, expected: by what was likely to come before, drafted and kept (tiered asked the slim tier first)."""
    expected = np.zeros(len(Q))
    for first, likely in enumerate(shaped(Q)):
        p, q = shaped(P, first), shaped(Q, first)
        for second, kept in enumerate(np.minimum(p, q) if mode is Mode.SD else p * q):
            expected += likely * kept * shaped(Q, first, second)
    result: np.ndarray = expected / expected.sum()
    return result


@pytest.mark.parametrize("mode", [Mode.SD, Mode.TIERED], ids=lambda mode: mode.value)
def test_the_rest_of_a_draft_that_the_full_tier_decides_is_accepted_losslessly(mode: Mode) -> None:
    assert fits(third_tokens(mode, {"temperature": 1.0}, 4000), Q)
    assert fits(third_tokens(mode, SHAPED, 4000), third_shaped(mode))


@pytest.mark.parametrize("params", [{"temperature": 1.0}, SHAPED], ids=["temperature", "top-p and penalty"])
@pytest.mark.parametrize("mode", [Mode.SD, Mode.TIERED], ids=lambda mode: mode.value)
def test_a_broken_residual_would_be_noticed_in_whole_generations(
    mode: Mode, params: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "residual", lambda q, p: q)
    is_shaped = params is SHAPED
    assert not fits(third_tokens(mode, params, 4000), third_shaped(mode) if is_shaped else Q)
    if mode is Mode.SD:
        counts, _ = second_tokens(mode, JointRule(0.5, 0.5), params, 4000)
        assert not fits(counts, second_shaped() if is_shaped else Q)


@pytest.mark.parametrize("params", [{"temperature": 1.0}, SHAPED], ids=["temperature", "top-p and penalty"])
def test_a_broken_residual_would_be_noticed_in_exact_too(
    params: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There candidates are compared with the full tier's own draws; here they count as what they are, samples of p.

    That is lossless as well while the slim tier keeps every draft, but only with the right residual.
    """
    right = decoder.verify

    def by_residual(sampler: Sampler, draft: list[int], _none: list[Any], *rest: Any) -> list[int]:
        return right(sampler, draft, [sampler.distribution(padded(P))] * len(draft), *rest)

    monkeypatch.setattr(decoder, "verify", by_residual)
    expected = second_shaped() if params is SHAPED else Q
    assert fits(second_tokens(Mode.EXACT, KEEPS_ALL, params, 4000)[0], expected)
    monkeypatch.setattr(acceptance, "residual", lambda q, p: q)
    assert not fits(second_tokens(Mode.EXACT, KEEPS_ALL, params, 4000)[0], expected)


@pytest.mark.parametrize(
    ("rule", "slim_decides"),
    [
        (ConfidenceRule(0.3, 0.5), True),
        (RatioRule(0.3, 0.1), True),
        (ConfidenceRule(0.3, 0.9), False),
        (JointRule(0.5, 0.5), True),
        (JointRule(0.9, 0.5), False),
    ],
    ids=str,
)
def test_tiered_samples_from_the_tier_that_the_slim_confidence_chooses(rule: Rule, slim_decides: bool) -> None:
    """Who decides depends on max q' alone, and whoever decides samples losslessly from its own distribution."""
    assert rule.decides(float(SLIM.max())) == slim_decides
    n = 4000
    counts, tiers = second_tokens(Mode.TIERED, rule, {"temperature": 1.0}, n)
    assert fits(counts, SLIM if slim_decides else Q)
    assert not fits(counts, Q if slim_decides else SLIM)
    kept = np.minimum(P, SLIM).sum() if slim_decides else 0.0
    assert tiers[Tier.DRAFT] / n == pytest.approx(kept, abs=0.03)
    assert tiers[Tier.SLIM] / n == pytest.approx(slim_decides * (1 - kept), abs=0.03)
    assert tiers[Tier.FULL] / n == pytest.approx(1 - slim_decides, abs=0.03)


PAPER = PaperRule(0.5, 0.7)  # SLIM's r is 1, 0.27, 0.09, 0.36, 0.09: A is {0}, B is {3}, C is {1, 2, 4}


def paper_mixture(p: np.ndarray, slim: np.ndarray, full: np.ndarray) -> np.ndarray:
    """(1 - d2) [(1 - d1) p + d1 q'] + d2 q."""
    delta1, delta2 = p[3] / (p[0] + p[3]), p[[1, 2, 4]].sum()
    result: np.ndarray = (1 - delta2) * ((1 - delta1) * p + delta1 * slim) + delta2 * full
    return result


@pytest.mark.parametrize(("length", "temperature"), [(1, 1.0), (5, 0.6)])
def test_viasd_samples_from_the_papers_mixture(length: int, temperature: float) -> None:
    engine = Engine(fakes.fake_verifier(Fixed(), mask="2"), Sampling(), Policy.viasd(length, PAPER))
    counts = np.zeros(5, int)
    for seed in range(1000):
        steps = engine.generate([1], max_tokens=8, sampling=SamplingParams(seed=seed, temperature=temperature))
        next(steps)
        counts[next(steps).tokens[0]] += 1
    p, slim, full = (tempered(tier, temperature) for tier in (P, SLIM, Q))
    assert fits(counts, paper_mixture(p, slim, full))
    for other in (p, slim, full, paper_mixture(p, slim, slim)):
        assert not fits(counts, other)


def test_viasd_keeps_what_it_drafts_itself_as_the_regions_say_where_the_draft_is_no_sample() -> None:
    """Then p is the drafted token alone: A keeps it, B draws from q', and C from q."""
    for token, expected in ((0, np.eye(5)[0]), (3, SLIM), (1, Q)):
        engine = Engine(fakes.fake_verifier(Fixed(), mask="2"), Always(token), Policy.viasd(1, PAPER))
        counts = np.zeros(5, int)
        for seed in range(400):
            steps = engine.generate([1], max_tokens=3, sampling=SamplingParams(seed=seed, temperature=1.0))
            next(steps)
            counts[next(steps).tokens[0]] += 1
        assert (counts[0] == 400) if token == 0 else fits(counts, expected)


class Always(Drafter):
    """Proposes one token, which is no sample."""

    name = "always"
    is_free = True

    def __init__(self, token: int) -> None:
        self._token = token

    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        return Draft([self._token] * limit)


GRAMMAR = 'root ::= ("A" [BCD] | [B-E] [AE])+'


@pytest.fixture
def letters(tiny_model: Callable[..., Model]) -> Model:
    """A model whose tokens 0 to 4 are the letters A to E, for grammars."""
    vocab = vocabulary(320)
    for token, letter in enumerate("ABCDE"):
        vocab = vocab.with_token(token, letter)
    return tiny_model(tiny.spec("llama"), vocab=replace(vocab, bos=318, eos=319))


def second_by_grammar(tier: np.ndarray) -> np.ndarray:
    """What comes second under the grammar if Q gives the first token and `tier` the second."""
    expected = np.zeros(5)
    for first, likely in enumerate(Q):
        allowed = [1, 2, 3] if first == 0 else [0, 4]
        expected[allowed] += likely * tier[allowed] / tier[allowed].sum()
    return expected


@pytest.mark.parametrize(
    ("mode", "rule", "tier"),
    [
        *((mode, DEFAULT_RULE, Q) for mode in (Mode.PLAIN, Mode.SD, Mode.EXACT)),
        (Mode.TIERED, JointRule(1.0, 1.0), Q),
        (Mode.TIERED, ConfidenceRule(0.0, 0.0), SLIM),
    ],
    ids=["plain", "sd", "exact", "tiered, full", "tiered, slim"],
)
def test_every_mode_samples_losslessly_under_a_grammar(
    letters: Model, mode: Mode, rule: Rule, tier: np.ndarray
) -> None:
    verifier = fakes.fake_verifier(Fixed(), mask="2")
    verifier.model.vocab = letters.vocab  # type: ignore[misc]
    engine = Engine(verifier, Sampling(), Policy(mode, 1, rule))
    counts = np.zeros(5, int)
    for seed in range(500):
        sampling = SamplingParams(seed=seed, temperature=1.0, grammar=GRAMMAR)
        tokens = [t for step in engine.generate([1], max_tokens=3, sampling=sampling) for t in step.tokens]
        counts[tokens[1]] += 1
    assert fits(counts, second_by_grammar(tier))
    assert not fits(counts, second_by_grammar(P))


class Identical:
    """All tiers expect the same, whatever the text."""

    def full(self, text: Sequence[int]) -> np.ndarray:
        return padded(Q)

    slim = full


class Likewise(Drafter):
    """Draws from the tiers' distribution, or proposes its best token as no sample."""

    name = "likewise"
    is_free = True

    def __init__(self, *, samples: bool) -> None:
        self._samples = samples

    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        if not self._samples:
            return Draft([int(Q.argmax())] * limit)
        return draft_tokens(padded(Q), lambda _: padded(Q), limit, Hints(hints.sampler), end_tokens=frozenset())


LOSSLESS = [(Mode.SD, DEFAULT_RULE), (Mode.EXACT, DEFAULT_RULE)]
TIERED = [(Mode.TIERED, rule) for rule in (JointRule(0.3, 0.3), RatioRule(0.7, 0.3), ConfidenceRule(0.7, 0.3))]
LENGTHS_AND_SEEDS = [(length, seeded) for length in (2, None) for seeded in (True, False)]


@pytest.mark.parametrize(
    ("params", "length", "seeded"),
    [*(({"temperature": 1.0}, *which) for which in LENGTHS_AND_SEEDS), (SHAPED, 2, True), (SHAPED, None, True)],
    ids=str,
)
@pytest.mark.parametrize("samples", [True, False], ids=["samples", "no samples"])
@pytest.mark.parametrize(("mode", "rule"), [*LOSSLESS, *TIERED], ids=str)
def test_identical_tiers_give_their_distribution_in_every_mode(
    mode: Mode,
    rule: Rule,
    seeded: bool,
    length: int | None,
    samples: bool,
    params: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With p = q' = q nothing is lost in any mode, so the text is distributed as q, position by position."""
    fresh, seeds = np.random.default_rng, iter(range(10**6))
    monkeypatch.setattr(np.random, "default_rng", lambda seed=None: fresh(next(seeds) if seed is None else seed))
    engine = Engine(fakes.fake_verifier(Identical(), mask="2"), Likewise(samples=samples), Policy(mode, length, rule))
    second, third = np.zeros(5, int), np.zeros(5, int)
    for seed in range(500):
        sampling = SamplingParams(seed=10**6 + seed if seeded else None, **params)
        tokens = [t for step in engine.generate([1], max_tokens=3, sampling=sampling) for t in step.tokens]
        second[tokens[1]] += 1
        third[tokens[2]] += 1
    assert fits(second, second_shaped() if params is SHAPED else Q)
    if params is not SHAPED:
        assert fits(third, Q)


def test_the_same_seed_gives_the_same_text_in_every_mode() -> None:
    for mode in Mode:
        rule = PAPER if mode is Mode.VIASD else ConfidenceRule(0.3, 0.5)
        engine = Engine(fakes.fake_verifier(Fixed()), Sampling(), Policy(mode, 3, rule))
        texts = []
        for seed in (1, 1, 2):
            steps = engine.generate([1], max_tokens=20, sampling=SamplingParams(temperature=1.0, seed=seed))
            texts.append([token for step in steps for token in step.tokens])
        assert texts[0] == texts[1] != texts[2], mode


def compared(mode: Mode, temperature: float, n: int, rule: Rule = DEFAULT_RULE) -> tuple[np.ndarray, float]:
    """Second tokens where lengths are automatic, so that draws are compared with drafts; the share that was drafted."""
    engine = Engine(fakes.fake_verifier(Fixed(), mask="2"), Sampling(), Policy(mode, None, rule))
    counts, hits = np.zeros(5, int), 0
    for seed in range(n):
        (pace,) = engine.paces
        pace.next_length = lambda room, *_: min(room, 1)  # type: ignore[method-assign]
        steps = engine.generate([1], max_tokens=3, sampling=SamplingParams(seed=seed, temperature=temperature))
        next(steps)
        counts[next(steps).tokens[0]] += 1
        hits += engine.stats.accepted
    return counts, hits / n


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("mode", [Mode.SD, Mode.EXACT], ids=lambda mode: mode.value)
def test_draws_that_are_compared_with_drafts_like_them_converge_to_q(mode: Mode, temperature: float) -> None:
    counts, _ = compared(mode, temperature, 4000)
    assert fits(counts, tempered(Q, temperature))


def test_a_slim_tier_that_decides_draws_from_its_own_distribution_with_the_drafts_random_numbers() -> None:
    """It decides by its confidence alone, so numbers that it shares with the drafter do not show in what it draws."""
    counts, accepted = compared(Mode.TIERED, 1.0, 4000, ConfidenceRule(0.3, 0.5))
    distance = np.abs(P - SLIM).sum() / 2
    assert accepted > (1 - distance) / (1 + distance) - 0.02
    assert fits(counts, SLIM)


def test_drafts_in_the_targets_likeness_are_accepted_as_often_as_a_race_promises() -> None:
    """Two racers with weights p and q have the same winner v with probability 1 / sum_w max(p_w/p_v, q_w/q_v)."""
    same = sum(1 / np.maximum(P / P[v], Q / Q[v]).sum() for v in range(5))
    distance = np.abs(P - Q).sum() / 2
    _, accepted = compared(Mode.SD, 1.0, 4000)
    assert accepted == pytest.approx(same, abs=0.025)
    assert accepted > (1 - distance) / (1 + distance)


def test_a_fork_leaves_the_random_numbers_of_its_origin_alone() -> None:
    plain, forked = TemperatureSampler(1.0, 3), TemperatureSampler(1.0, 3)
    logits = padded(Q)
    expected = [plain.propose(logits).token for _ in range(20)]
    got = []
    for _ in range(20):
        twin = forked.fork()
        twin.propose(logits)
        got.append(forked.propose(logits).token)
    assert got == expected
