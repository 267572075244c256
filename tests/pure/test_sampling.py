"""How a token is chosen from logits."""

from __future__ import annotations

import numpy as np
import pytest

from via_sd_local.sampling.distribution import log_softmax, token_probability
from via_sd_local.sampling.sampler import DrafterSampler, TemperatureSampler

LOGITS = np.array([1.0, -2.0, 3.0, 0.5, 2.5, -np.inf], np.float32)


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) / temperature)
    return weights / weights.sum()


def text(temperature: float, seed: int | None, n: int = 50) -> list[int]:
    """What a sampler chooses again and again of the same logits."""
    sampler, tokens = TemperatureSampler(temperature, seed), []
    for _ in range(n):
        tokens.append(sampler.choose(LOGITS))
        sampler.accept(tokens[-1])
    return tokens


def test_temperature_0_takes_the_largest_logit_and_the_first_of_equals() -> None:
    choose = TemperatureSampler()
    assert choose.greedy
    assert choose.choose(LOGITS) == 2
    assert choose.choose(np.array([0, 4, 4], np.float32)) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_converge_to_the_softmax(temperature: float) -> None:
    n = 20_000
    counts = np.bincount(text(temperature, 1, n), minlength=len(LOGITS))
    expected = n * softmax(LOGITS, temperature)
    assert counts[5] == 0  # a token of probability 0 is never sampled
    chi_square = ((counts - expected)[:5] ** 2 / expected[:5]).sum()
    assert chi_square < 18.5  # 4 degrees of freedom, p = 0.001


def test_a_tiny_temperature_is_nearly_greedy_and_a_huge_one_nearly_uniform() -> None:
    assert {TemperatureSampler(1e-6, seed=seed).choose(LOGITS) for seed in range(50)} == {2}
    assert {TemperatureSampler(1e6, seed=seed).choose(LOGITS) for seed in range(100)} == {0, 1, 2, 3, 4}


def test_logits_may_be_shifted_and_large() -> None:
    logits = np.array([1000, 1001, 900], np.float32)
    choices = [TemperatureSampler(1.0, seed=seed).choose(logits) for seed in range(200)]
    assert choices == [TemperatureSampler(1.0, seed=seed).choose(logits - 1000) for seed in range(200)]
    assert set(choices) == {0, 1}


def test_a_choice_depends_on_the_seed_and_the_number_of_accepted_tokens_alone() -> None:
    """Asked again it is the same, forks agree, and what other tokens could be chosen changes no time in the race."""
    one, other = TemperatureSampler(1.0, seed=5), TemperatureSampler(1.0, seed=5)
    other.random.random(7)
    other.propose(LOGITS)
    seen = set()
    for _ in range(60):
        token = one.choose(LOGITS)
        assert one.choose(LOGITS) == other.fork().choose(LOGITS) == one.draw(LOGITS).token == token
        only = np.where(np.arange(6) == token, LOGITS, -np.inf).astype(np.float32)
        assert one.choose(only) == token
        seen.add(token)
        for sampler in (one, other):
            sampler.accept(0)
    assert len(seen) >= 4


def test_a_fresh_fork_draws_for_itself() -> None:
    one = TemperatureSampler(1.0, seed=5)
    alike, fresh = one.fork(), one.fork(fresh=True)
    texts = [[], [], []]
    for _ in range(40):
        for sampler, text in zip((one, alike, fresh), texts, strict=True):
            text.append(sampler.choose(LOGITS))
            sampler.accept(text[-1])
    assert texts[0] == texts[1] != texts[2]


def test_a_taken_token_has_its_softmax_probability() -> None:
    sampler, expected = TemperatureSampler(0.8, seed=5), softmax(LOGITS, 0.8)
    for _ in range(10):
        taken = sampler.draw(LOGITS)
        assert taken.probability == pytest.approx(expected[taken.token], rel=1e-5)
        assert taken.source is None
        sampler.accept(taken.token)
    assert TemperatureSampler().draw(LOGITS).token == 2


def test_a_drafter_that_is_compared_proposes_what_the_target_would_choose_or_its_best() -> None:
    target = TemperatureSampler(1.0, seed=5)
    for _ in range(30):
        token = target.choose(LOGITS)
        assert DrafterSampler(target, coupled=True).fork().propose(LOGITS) == target.draw(LOGITS)
        assert DrafterSampler(target, coupled=False).fork().propose(LOGITS).token == 2
        sampled = target.fork().propose(LOGITS)
        assert sampled.source is not None
        assert sampled.probability == sampled.source.probability(sampled.token)
        target.accept(token)


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    assert text(1.0, 3) == text(1.0, 3)
    assert text(1.0, 3) != text(1.0, 4)
    assert text(1.0, None) != text(1.0, None)  # 50 tokens: equal by chance once in 10²⁵


@pytest.mark.parametrize("temperature", [-0.1, float("inf"), float("nan")])
def test_a_temperature_is_a_finite_number_from_0(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {temperature}; it must be a number from 0"):
        TemperatureSampler(temperature)


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="seed is -1; it must be 0 or larger"):
        TemperatureSampler(1.0, seed=-1)


def test_log_softmax_normalises_rows_over_the_whole_vocabulary_also_for_some_of_the_tokens() -> None:
    rows = np.stack([LOGITS, LOGITS[::-1] * 2 + 100])
    whole = log_softmax(rows)
    assert np.exp(whole) == pytest.approx(np.stack([softmax(row - row.max(), 1.0) for row in rows]), rel=1e-5)
    assert whole.dtype == np.float32
    tokens = np.array([2, 0], np.int32)
    assert (log_softmax(rows, tokens) == whole[:, tokens]).all()
    for row, log_probs in zip(rows, whole, strict=True):
        assert (log_softmax(row) == log_probs).all()
        assert token_probability(row, 2) == pytest.approx(np.exp(log_probs[2]), rel=1e-5)
