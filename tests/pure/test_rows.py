"""Passes over a row of logits: the library and NumPy compute the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from via_sd_local.sampling import rows
from via_sd_local.sampling.distribution import best_probability, token_probability
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.truncation import MOST, best_candidates, truncated

SIZES = [1, 5, 7, 8, 9, 127, 128, 129, 1023, 1024, 1025, 49_152]


@pytest.fixture(params=["library, where it was built", "NumPy"], autouse=True)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(rows, "_library", lambda: None)


def draw(n: int, seed: int = 0, scale: float = 4.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [1.0, 1.25, 0.1, 30.0])
def test_the_sum_of_exponentials_is_that_of_double_precision(n: int, scale: float) -> None:
    row = draw(n)
    largest = float(row.max())
    exact = np.exp((row.astype(np.float64) - largest) * scale).sum()
    assert rows.sum_exp(row, largest, scale) == pytest.approx(exact, rel=2e-6)


def test_ruled_out_tokens_and_tiny_probabilities_add_nothing() -> None:
    row = np.full(1000, -np.inf, np.float32)
    row[3], row[700], row[999] = 2.0, -86.0, -300.0
    assert rows.sum_exp(row, 2.0) == pytest.approx(1.0, abs=1e-30)
    row[5] = 2.0
    assert best_probability(row, 3) == pytest.approx(0.5)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", [1, 2, 40, 200])
def test_the_top_k_are_those_of_a_stable_sort(n: int, k: int) -> None:
    row = np.round(draw(n), 1)  # with many ties
    ids, logits = rows.top_k(row, k)
    expected = np.argsort(-row, kind="stable")[:k]
    assert ids.tolist() == expected.tolist()
    assert logits.tolist() == row[expected].tolist()


@pytest.mark.parametrize("n", SIZES)
def test_the_tokens_above_a_threshold_are_found_in_order(n: int) -> None:
    row = draw(n)
    least = float(np.sort(row)[-min(n, 20)])
    ids = rows.at_least(row, least, 20)
    assert ids is not None
    assert ids.tolist() == np.flatnonzero(row >= np.float32(least)).tolist()
    assert rows.at_least(row, least, len(ids) - 1) is None
    none = rows.at_least(row, float(row.max()) + 1, 20)
    assert none is not None
    assert len(none) == 0


def test_rows_of_other_kinds_are_computed_too() -> None:
    row = draw(2000)
    every_second, doubles = row[::2], row.astype(np.float64)
    for other in (every_second, doubles):
        largest = float(other.max())
        assert rows.sum_exp(other, largest) == pytest.approx(np.exp(other - largest).sum(), rel=2e-6)
        assert rows.top_k(other, 3)[0].tolist() == np.argsort(-other, kind="stable")[:3].tolist()


def test_probabilities_are_those_of_the_softmax() -> None:
    row = draw(500)
    exact = np.exp(row.astype(np.float64) - row.max())
    exact /= exact.sum()
    for token in (0, 17, int(row.argmax())):
        assert token_probability(row, token) == pytest.approx(exact[token], rel=2e-6)
    assert best_probability(row, int(row.argmax())) == pytest.approx(exact.max(), rel=2e-6)


def test_a_nucleus_has_the_fewest_tokens_of_its_mass_and_their_own_temperature() -> None:
    row = np.log(np.array([0.05, 0.4, 0.2, 0.3, 0.05], np.float32))
    got = truncated(row, SamplingParams(temperature=0.5, top_p=0.65))
    assert got is not None
    assert got.tokens.tolist() == [1, 3]
    assert got.probabilities.tolist() == pytest.approx([0.16 / 0.25, 0.09 / 0.25])
    got = truncated(row, SamplingParams(temperature=1.0, top_p=0.95, min_p=0.6))
    assert got is not None
    assert got.tokens.tolist() == [1, 3]
    got = truncated(row, SamplingParams(temperature=1.0, min_p=0.45))
    assert got is not None
    assert got.tokens.tolist() == [1, 2, 3]


def test_what_needs_the_whole_vocabulary_is_left_to_others() -> None:
    flat = np.zeros(4 * MOST, np.float32)
    assert truncated(flat, SamplingParams(temperature=1.0, top_p=0.9)) is None
    assert truncated(flat, SamplingParams(temperature=1.0, min_p=0.5)) is None
    row = draw(5000)
    for params in (
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.0, top_p=0.5, typical_p=0.9),
        SamplingParams(temperature=1.0, top_p=0.5, top_k=40),  # top-k comes first
        SamplingParams(temperature=1.0, top_p=0.5, mirostat_mode=2),
    ):
        assert truncated(row, params) is None
    assert best_candidates(row, SamplingParams(temperature=1.0, top_k=MOST + 1)) is None
    assert best_candidates(row, SamplingParams(temperature=1.0, top_p=0.5)) is None
    candidates = best_candidates(row, SamplingParams(temperature=1.0, top_k=7, top_p=0.5))
    assert candidates is not None
    assert candidates[0].tolist() == np.argsort(-row)[:7].tolist()
    assert math.isclose(float(candidates[1][0]), float(row.max()))
