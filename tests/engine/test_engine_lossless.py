"""Lossless generation on a language without weights: the full verifier's text, whoever drafts."""

from __future__ import annotations

from itertools import product

import fakes
import numpy as np
import pytest
from fakes import FakeDrafter, Language, RandomLanguage, expected_text
from generations import DRAFTERS, LOSSLESS, PROMPT, any_drafter, build, generate
from hypothesis import given, settings
from hypothesis import strategies as st

from via_sd_local.engine.gate import ConfidenceRule, JointRule
from via_sd_local.engine.policy import Mode
from via_sd_local.engine.steps import Tier
from via_sd_local.sampling.params import SamplingParams


@pytest.mark.parametrize("seed", range(3))
def test_plain_emits_the_full_verifiers_choice_token_by_token(seed: int) -> None:
    language = RandomLanguage(seed)
    engine = build(language, Mode.PLAIN)
    tokens, tiers, reason = generate(engine, max_tokens=20)
    assert tokens == expected_text(language, PROMPT, 20)
    assert set(tiers) == {Tier.FULL}
    assert reason == "length"
    assert fakes.passes(engine.verifier) == [("full", 0, 3), *(("full", 3 + i, 1) for i in range(19))]


@pytest.mark.parametrize(
    ("temperature", "mode", "drafter"),
    [
        case
        for case in product([0.0, 0.9], LOSSLESS, sorted(DRAFTERS))
        # a sampled draft changes which random numbers are drawn; test_acceptance.py compares those distributions
        if case != (0.9, Mode.SD, "model")
    ],
)
def test_lossless_modes_emit_the_plain_text(temperature: float, mode: Mode, drafter: str) -> None:
    for seed, draft_tokens, resume in product(range(3), range(1, 9), (True, False)):
        language = RandomLanguage(seed)
        engine = build(language, mode, DRAFTERS[drafter](language), draft_tokens=draft_tokens, resume=resume)
        expected = expected_text(language, PROMPT, 30, sampling=SamplingParams(temperature=temperature, seed=seed))
        tokens, tiers, _ = generate(engine, max_tokens=30, sampling=SamplingParams(temperature=temperature, seed=seed))
        assert tokens == expected
        assert set(tiers) == {Tier.FULL}


@any_drafter
def test_tiered_with_a_slim_tier_that_is_never_sure_emits_the_plain_text(drafter: str) -> None:
    for seed, draft_tokens in product(range(3), range(1, 9)):
        language = RandomLanguage(seed, confidences=[0.3])
        engine = build(language, Mode.TIERED, DRAFTERS[drafter](language), draft_tokens=draft_tokens)
        tokens, tiers, _ = generate(engine, max_tokens=30)
        assert tokens == expected_text(language, PROMPT, 30)
        assert set(tiers) == {Tier.FULL}


def tiered_text(language: Language, n: int, drafter: FakeDrafter, length: int) -> tuple[list[int], list[Tier]]:
    """What section 1 of the design says, position by position, with joint:0.5,0.5 and without audits."""
    text, tiers = [*PROMPT, int(language.full(PROMPT).argmax())], [Tier.FULL]

    def add(token: int, tier: Tier) -> None:
        text.append(token)
        tiers.append(tier)

    while (left := n + len(PROMPT) - len(text)) > 0:
        escalated = False
        draft = drafter.propose(text, min(length, left - 1)).tokens if left > 1 else []
        for token in draft:
            if escalated:
                add(int(language.full(text).argmax()), Tier.FULL)
            else:
                slim = language.slim(text)
                best, top = int(slim.argmax()), np.exp(slim).max() / np.exp(slim).sum()
                if top < 0.5:
                    escalated = True
                    add(int(language.full(text).argmax()), Tier.FULL)
                else:
                    add(best, Tier.DRAFT if best == token else Tier.SLIM)
            if text[-1] != token:
                break
        else:
            slim = language.slim(text)
            if escalated or not draft:
                add(int(language.full(text).argmax()), Tier.FULL)
            elif np.exp(slim).max() / np.exp(slim).sum() >= 0.5:
                add(int(slim.argmax()), Tier.SLIM)
    return text[len(PROMPT) :], tiers


@pytest.mark.parametrize("drafter", ["oracle", "always_wrong", "sometimes_right", "slim_like", "of_any_length"])
@pytest.mark.parametrize("resume", [True, False])
def test_tiered_text_is_the_one_that_the_regions_spell_out(drafter: str, resume: bool) -> None:
    for seed, draft_tokens in product(range(4), range(1, 7)):
        language = RandomLanguage(seed, agreement=0.8, confidences=[0.3, 0.9, 0.9])
        new = DRAFTERS[drafter]
        engine = build(language, Mode.TIERED, new(language), draft_tokens=draft_tokens, audit_every=1000, resume=resume)
        tokens, tiers, _ = generate(engine, max_tokens=40)
        reference = new(language)
        assert isinstance(reference, FakeDrafter)
        assert (tokens, tiers) == tiered_text(language, 40, reference, draft_tokens)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_combination_of_settings_changes_a_lossless_text(data: st.DataObject) -> None:
    draw = data.draw
    mode = draw(st.sampled_from([Mode.PLAIN, *LOSSLESS]))
    language = RandomLanguage(
        draw(st.integers(0, 10**6)),
        agreement=draw(st.floats(0, 1)),
        confidences=draw(st.sampled_from([[0.3], [0.9], [0.3, 0.9]])),
    )
    eog = draw(st.sets(st.integers(0, 10), max_size=2))
    n_ctx = draw(st.integers(6, 40))
    prompt = draw(st.lists(st.integers(0, 10), min_size=1, max_size=6))
    temperature, seed = draw(st.sampled_from([0.0, 0.7])), draw(st.integers(0, 99))
    # a sampled draft changes which random numbers are drawn (test_acceptance.py compares those distributions)
    names = sorted(set(DRAFTERS) - ({"model"} if temperature and mode is Mode.SD else set()))
    engine = build(
        language,
        mode,
        DRAFTERS[draw(st.sampled_from(names))](language) if mode is not Mode.PLAIN else None,
        draft_tokens=draw(st.integers(1, 8)),
        rule=draw(st.sampled_from([JointRule, ConfidenceRule]))(draw(st.floats(0, 1)), draw(st.floats(0, 1))),
        audit_every=draw(st.integers(1, 12)),
        n_ctx=n_ctx,
        eog=tuple(eog),
        resume=draw(st.booleans()),
    )
    for _ in range(draw(st.integers(1, 3))):  # further turns over the same cache
        max_tokens = draw(st.none() | st.integers(0, 20))
        room = min(n_ctx - len(prompt), n_ctx if max_tokens is None else max_tokens)
        expected = expected_text(
            language, prompt, room, eog=eog, sampling=SamplingParams(temperature=temperature, seed=seed)
        )
        tokens, _, reason = generate(
            engine, prompt, max_tokens=max_tokens, sampling=SamplingParams(temperature=temperature, seed=seed)
        )
        assert tokens == expected
        assert reason == ("length" if len(tokens) == room else "stop")
        kept = draw(st.integers(0, len(prompt) + len(tokens)))
        prompt = [*[*prompt, *tokens][:kept], *draw(st.lists(st.integers(0, 10), min_size=1, max_size=3))][:n_ctx]
