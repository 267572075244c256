"""Random numbers by position and token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, pearsonr

from via_sd_local.sampling.noise import _STEP, Noise, _mixed

N = 50_000


def test_the_mix_is_that_of_splitmix64() -> None:
    """The first outputs for seed 0, as published with its reference code."""
    assert [_mixed(n) for n in (1, 2, 3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_times_of_many_tokens_are_those_of_each_one() -> None:
    noise = Noise(12345)
    start = _mixed(12345 + _mixed(8))
    inverse = pow(_STEP, -1, 1 << 64)  # so that _mixed(x * inverse + token) mixes x + token * _STEP
    expected = [-math.log((_mixed(start * inverse + token) >> 11) * 2.0**-53) for token in range(300)]
    assert noise.times(7, 300) == pytest.approx(expected, rel=1e-12)
    some = np.array([299, 3, 70], np.int32)
    assert noise.times(7, 3, some).tolist() == noise.times(7, 300)[some].tolist()


def test_times_are_exponentially_distributed_over_tokens_positions_and_keys() -> None:
    tables = [
        Noise(1).times(0, N),
        np.array([Noise(2).times(position, 1)[0] for position in range(5000)]),
        np.array([Noise(key).times(3, 1)[0] for key in range(5000)]),
    ]
    for times in tables:
        assert (times > 0).all()
        assert kstest(times, "expon").pvalue > 1e-3


@pytest.mark.parametrize("lag", [1, 2, 64])
def test_times_of_neighbours_are_independent(lag: int) -> None:
    noise = Noise(7)
    times = noise.times(0, N)
    assert pearsonr(times[:-lag], times[lag:]).pvalue > 1e-3
    assert pearsonr(times, noise.times(lag, N)).pvalue > 1e-3
    assert pearsonr(times, Noise(7 + lag).times(0, N)).pvalue > 1e-3


def test_a_token_wins_as_often_as_its_weight_says() -> None:
    noise, weights = Noise(3), np.array([4, 3, 0, 2, 1], np.float32)
    tokens = np.array([900, 2, 40, 41, 7], np.int32)
    for winners in (
        [noise.winner(position, weights) for position in range(20_000)],
        [noise.winner(position, weights, tokens) for position in range(20_000)],
    ):
        counts = np.bincount(winners, minlength=5)
        assert counts[2] == 0
        assert chisquare(counts[[0, 1, 3, 4]], 20_000 * weights[[0, 1, 3, 4]] / 10).pvalue > 1e-3


def test_a_winner_stays_the_winner_when_others_leave() -> None:
    """So the draft's race and the target's, over different candidates, mostly end alike."""
    noise, random = Noise(5), np.random.default_rng(0)
    for position in range(200):
        weights = random.exponential(size=50) ** 3
        winner = noise.winner(position, weights)
        left = np.append(random.permutation(np.delete(np.arange(50), winner))[:10], winner).astype(np.int32)
        assert left[noise.winner(position, weights[left], left)] == winner
