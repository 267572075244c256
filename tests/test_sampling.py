"""How a token is chosen from logits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from via_sd_local.sampling import TemperatureSampler

LOGITS = np.array([1.0, -2.0, 3.0, 0.5, 2.5, -np.inf], np.float32)


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) / temperature)
    return weights / weights.sum()


def test_temperature_0_takes_the_largest_logit_and_the_first_of_equals() -> None:
    choose = TemperatureSampler()
    assert choose.greedy
    assert choose.choose(LOGITS) == 2
    assert choose.choose(np.array([0, 4, 4], np.float32)) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_converge_to_the_softmax(temperature: float) -> None:
    n, choose = 20_000, TemperatureSampler(temperature, seed=1)
    counts = np.bincount([choose.choose(LOGITS) for _ in range(n)], minlength=len(LOGITS))
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


def test_a_token_costs_exactly_one_random_number() -> None:
    choose, numbers = TemperatureSampler(0.8, seed=5), np.random.default_rng(5)
    cumulative = softmax(LOGITS, 0.8).cumsum()
    for _ in range(100):
        assert choose.choose(LOGITS) == (cumulative <= numbers.random()).sum()


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (0.5, 2), (np.nextafter(1, 0), 2)])
def test_the_edges_of_the_unit_interval_hit_no_impossible_token(number: float, token: int) -> None:
    choose = TemperatureSampler(1.0, seed=0)
    choose._random = SimpleNamespace(random=lambda: number)  # type: ignore[assignment]
    assert choose.choose(np.array([-np.inf, 0, 0, -np.inf], np.float32)) == token


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    def sample(seed: int | None) -> list[int]:
        choose = TemperatureSampler(1.0, seed)
        return [choose.choose(LOGITS) for _ in range(50)]

    assert sample(3) == sample(3)
    assert sample(3) != sample(4)
    assert sample(None) != sample(None)  # 50 tokens: equal by chance once in 10²⁵


@pytest.mark.parametrize("temperature", [-0.1, float("inf"), float("nan")])
def test_a_temperature_is_a_finite_number_from_0(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {temperature}; it must be a number from 0"):
        TemperatureSampler(temperature)


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="seed is -1; it must be 0 or larger"):
        TemperatureSampler(1.0, seed=-1)
