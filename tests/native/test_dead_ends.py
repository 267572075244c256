"""Positions at which no token is left: an error where the text gets there, else the end of a draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule, Region, judge
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.slim_sampling import sample_by_slim
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.chain import ChainSampler
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.sampler import NoTokenLeft
from via_sd_local.tiers.drafter import Draft, Hints
from via_sd_local.tiers.model_drafter import ModelDrafter, draft_tokens
from via_sd_local.tiers.verifier import Verifier

LLAMA = tiny.spec("llama")
PROMPT = [1, *range(260, 272)]
FORKED = 'root ::= "a" "b" | "c" "d"'


@pytest.fixture
def model(tiny_model: Callable[..., Model]) -> Model:
    return tiny_model(LLAMA)


def beginning_with(model: Model, letters: str) -> tuple[tuple[int, float], ...]:
    """A bias of minus infinity on every token that begins with one of these letters."""
    texts = {token: model.piece(token) for token in range(model.n_vocab)}
    return tuple(
        (token, -np.inf) for token, text in texts.items() if text[:1] in [bytes([c]) for c in letters.encode()]
    )


def one(model: Model, letter: str) -> int:
    """The token of one letter."""
    return next(token for token in range(model.n_vocab) if model.piece(token) == letter.encode())


@pytest.fixture
def forked(model: Model, keep: Callable[[Any], Any]) -> Callable[..., ChainSampler]:
    """A sampler with a grammar of which the branch `a` is a dead end."""
    return lambda temperature=0.0: keep(
        ChainSampler(
            model,
            SamplingParams(temperature=temperature, grammar=FORKED, logit_bias=beginning_with(model, "b"), seed=1),
        )
    )


def preferring(model: Model, letter: str) -> np.ndarray:
    """Logits `[n_vocab]` of a model that is sure of a letter."""
    row = np.zeros(model.n_vocab, np.float32)
    row[one(model, letter)] = 50
    return row


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_answer_that_no_token_can_go_on_with_is_an_error_and_the_next_one_is_not(
    mode: Mode, temperature: float, model: Model, verifier: Callable[..., Verifier], keep: Callable[[Any], Any]
) -> None:
    masked = mode.uses_slim_tier
    drafter = keep(ModelDrafter(model, model, n_ctx=256, n_threads=1))
    engine = Engine(verifier(model, "3" if masked else ""), drafter, Policy(mode, rule=ConfidenceRule(0.2, 0.2)))

    def text(**params: Any) -> list[int]:
        sampling = SamplingParams(temperature=temperature, seed=3, **params)
        return [t for step in engine.generate(PROMPT, max_tokens=12, sampling=sampling) for t in step.tokens]

    before = text()
    everything = tuple((token, -np.inf) for token in range(model.n_vocab))
    for message, params in (
        ("after 0 tokens of the answer: logit_bias rules out every token", {"logit_bias": everything}),
        (
            "after 0 tokens of the answer: the grammar and logit_bias rule out every token",
            {"grammar": 'root ::= "yes" | "no"', "logit_bias": beginning_with(model, "yn")},
        ),
        (
            "after 2 tokens of the answer: the JSON schema and logit_bias rule out every token",
            {"json_schema": {"const": 77}, "logit_bias": ((model.eos, -np.inf),)},
        ),
        ("after 2 tokens of the answer: the grammar rules out", {"grammar": 'root ::= "xy" <[99999]>'}),
    ):
        with pytest.raises(NoTokenLeft, match=message):
            text(**params)
        assert text() == before
    assert isinstance(NoTokenLeft(""), ValueError)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_before_a_dead_end(temperature: float, model: Model, forked: Callable[..., ChainSampler]) -> None:
    rows = {None: "a", "a": "b"}
    hints = Hints(sampler=forked(temperature))
    a = one(model, "a")
    draft = draft_tokens(
        preferring(model, "a"),
        lambda token: preferring(model, rows[chr(model.piece(token)[0])]),
        4,
        hints,
        end_tokens=model.eog,
    )
    assert draft.tokens == [a]


@pytest.mark.parametrize("tokens", ["a", "ab", "abb"])
def test_the_slim_tier_leaves_a_dead_end_to_the_full_one(
    tokens: str, model: Model, forked: Callable[..., ChainSampler]
) -> None:
    draft = [one(model, letter) for letter in tokens]
    rows = np.stack([preferring(model, letter) for letter in tokens + "b"])
    region = Region.A if tokens == "a" else Region.C
    verdict = judge(ConfidenceRule(0, 0), draft, rows, forked())
    assert (verdict.kept, verdict.region, verdict.sure) == (1, region, False)
    judgement = sample_by_slim(ConfidenceRule(0, 0), Draft(draft), rows, forked(1.0), frozenset(), 10)
    verdict = judgement.verdict
    assert (verdict.kept, verdict.region, verdict.sure) == (1, region, False)


def test_a_token_that_the_grammar_rules_out_cannot_be_accepted(
    model: Model, forked: Callable[..., ChainSampler]
) -> None:
    """llama.cpp would end the process."""
    sampler = forked()
    for token in (one(model, "x"), one(model, "b"), model.eos):
        with pytest.raises(ValueError, match=f"token {token} cannot follow here"):
            sampler.accept(token)
    sampler.accept(one(model, "c"))
    sampler.accept(one(model, "d"))
    sampler.accept(model.eos)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_infinite_biases_leave_these_tokens_alone_equally_probable(
    temperature: float, model: Model, keep: Callable[[Any], Any]
) -> None:
    bias = ((5, np.inf), (6, np.inf), (7, 1.0))
    sampler = keep(ChainSampler(model, SamplingParams(temperature=temperature, logit_bias=bias, top_p=0.99)))
    row = np.random.default_rng(0).normal(size=model.n_vocab).astype(np.float32)
    row[6] = -np.inf  # as a drafter with a shorter vocabulary has it
    processed = sampler.processed(row)
    assert np.flatnonzero(processed > -np.inf).tolist() == [5]
    row[6] = 0
    assert np.flatnonzero(sampler.processed(row) > -np.inf).tolist() == [5, 6]
    if temperature:
        assert sampler.distribution(row).probabilities.tolist() == [0.5, 0.5]


def test_typical_sampling_knows_only_what_is_permitted(model: Model, keep: Callable[[Any], Any]) -> None:
    """What is ruled out has an infinite information content, and must not enter the entropy."""
    row = np.zeros(model.n_vocab, np.float32)
    letters = [one(model, letter) for letter in "abcd"]
    row[letters] = np.log([0.6, 0.2, 0.15, 0.05])
    others = tuple((token, -np.inf) for token in range(model.n_vocab) if token not in letters)
    sampler = keep(ChainSampler(model, SamplingParams(temperature=1.0, typical_p=0.5, logit_bias=others)))
    # entropy 1.06 nats; information contents 0.51, 1.61, 1.90, 3.00, of which the first two are the nearest
    found = sampler.distribution(row)
    shares = dict(zip(found.tokens.tolist(), found.probabilities.tolist(), strict=True))
    assert shares == pytest.approx({letters[0]: 0.75, letters[1]: 0.25})
