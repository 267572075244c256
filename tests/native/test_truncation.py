"""Samplers on the tokens that can survive them, compared with llama.cpp's samplers on the whole vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
import tiny

from via_sd_local.runtime.model import Model
from via_sd_local.sampling import chain
from via_sd_local.sampling.chain import ChainSampler
from via_sd_local.sampling.params import SamplingParams

SETTINGS = [
    {"top_k": 40, "top_p": 0.95},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.9},
    {"top_k": 1},
    {"top_p": 0.95},
    {"top_p": 0.3, "min_p": 0.1},
    {"top_p": 0.0},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.9, "repeat_penalty": 1.3, "logit_bias": ((5, 4.0), (6, float("-inf")))},
]


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_distribution_is_that_of_the_samplers_on_the_whole_vocabulary(
    settings: dict[str, object],
    temperature: float,
    tiny_model: Callable[..., Model],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_vocab = 977
    model = tiny_model(tiny.spec("llama", n_vocab=n_vocab, n_layer=1))
    params = SamplingParams(temperature=temperature, seed=7, **settings)  # type: ignore[arg-type]
    random = np.random.default_rng(1)
    rows = [(scale * random.standard_normal(n_vocab)).astype(np.float32) for scale in (1, 3, 6)]
    with closing(ChainSampler(model, params)) as fast, closing(ChainSampler(model, params)) as whole:
        for row in rows:
            got = fast.distribution(row)
            with monkeypatch.context() as patch:
                patch.setattr(chain, "truncated", lambda *_: None)
                patch.setattr(chain, "best_candidates", lambda *_: None)
                expected = whole.distribution(row)
                drawn = whole.choose(row)
            assert dict(zip(got.tokens.tolist(), got.probabilities.tolist(), strict=True)) == pytest.approx(
                dict(zip(expected.tokens.tolist(), expected.probabilities.tolist(), strict=True)), rel=1e-5
            )
            assert fast.choose(row) == drawn
            for sampler in (fast, whole):
                sampler.accept(drawn)
