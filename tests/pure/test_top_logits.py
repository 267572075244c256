"""Top logits against whole softmax rows."""

from __future__ import annotations

import numpy as np
import pytest

from via_sd_local.calibration.top_logits import TopLogits


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 3, (20, 200)).astype(np.float32)


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_kept_tokens_are_the_best_ones_in_order_with_their_softmax_over_all(logits):
    top = TopLogits.from_logits(logits, 16)
    order = np.argsort(-logits, axis=1)[:, :16]
    assert (top.ids == order).all()
    np.testing.assert_allclose(np.exp(top.log_probs), np.take_along_axis(softmax(logits), order, axis=1), rtol=1e-5)
    assert (top.best == logits.argmax(axis=1)).all()
    np.testing.assert_allclose(top.confidence, softmax(logits).max(axis=1), rtol=1e-5)


def test_among_equal_logits_the_best_is_argmax(logits):
    flat = np.zeros_like(logits)
    flat[:, 100:] = 1
    assert (TopLogits.from_logits(flat, 4).best == 100).all()


def test_the_probability_of_a_token_is_exact_if_kept_and_bounded_from_above_if_not(logits):
    top, probabilities = TopLogits.from_logits(logits, 16), softmax(logits)
    for rank in (0, 7, 15):
        tokens = np.argsort(-logits, axis=1)[:, rank]
        exact = np.take_along_axis(probabilities, tokens[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(np.exp(top.log_prob_of(tokens)), exact, rtol=1e-5)
    for rank in (16, 50, 199):
        tokens = np.argsort(-logits, axis=1)[:, rank]
        exact = np.take_along_axis(probabilities, tokens[:, None], axis=1)[:, 0]
        assert (np.exp(top.log_prob_of(tokens)) >= exact * (1 - 1e-5)).all()
        assert (top.log_prob_of(tokens) <= top.log_probs[:, -1]).all()


def test_a_small_vocabulary_is_kept_whole(logits):
    top = TopLogits.from_logits(logits, 1000)
    assert top.ids.shape == logits.shape
    np.testing.assert_allclose(np.exp(top.log_probs).sum(axis=1), 1, rtol=1e-5)


def test_slices_and_joins_keep_the_rows(logits):
    top = TopLogits.from_logits(logits, 8)
    again = TopLogits.join([top[:7], top[7:]])
    assert len(again) == len(top) == 20
    assert (again.ids == top.ids).all()
    assert (again.log_probs == top.log_probs).all()
