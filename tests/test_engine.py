"""The generation loop on a language without weights: who decides which token, where it ends, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import (
    POISON,
    Clock,
    FakeContext,
    FakeDrafter,
    Language,
    RandomLanguage,
    Script,
    expected_text,
    fake_verifier,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from via_sd_local import generation as generation_module
from via_sd_local import tiers as tiers_module
from via_sd_local.drafters import Draft, Drafter, PromptLookup, WantsMore, always
from via_sd_local.engine import Engine
from via_sd_local.gate import ConfidenceRule, JointRule, Rule
from via_sd_local.generation import FinishReason, Step, Tier
from via_sd_local.policy import Mode, Policy
from via_sd_local.sampling import GREEDY, Sampler, SamplingParams

PROMPT = [1, 2, 3]
JOINT = JointRule(0.5, 0.5)
LOSSLESS = [Mode.SD, Mode.EXACT]
DRAFTING = [Mode.SD, Mode.EXACT, Mode.TIERED]
DRAFTERS: dict[str, Callable[[Language], Drafter]] = {
    "oracle": fakes.oracle,
    "always_wrong": fakes.always_wrong,
    "sometimes_right": fakes.sometimes_right,
    "slim_like": fakes.slim_like,
    "of_any_length": fakes.of_any_length,
    "silent": fakes.silent,
    "model": fakes.fake_model_drafter,
    "lookup": lambda _: PromptLookup(min_ngram=1),
}
any_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def build(
    language: Language,
    mode: Mode = Mode.SD,
    drafter: Drafter | None = None,
    *,
    draft_tokens: int = 3,
    rule: Rule = JOINT,
    audit_every: int = 32,
    **verifier: Any,
) -> Engine:
    if mode is not Mode.PLAIN and drafter is None:
        drafter = fakes.oracle(language)
    return Engine(fake_verifier(language, **verifier), drafter, Policy(mode, draft_tokens, rule, audit_every))


def watched(engine: Engine, prompt: Sequence[int], steps: Iterator[Step]) -> Iterator[Step]:
    """The same steps; asserts what holds after each of them."""
    text, ended = list(prompt), False
    for step in steps:
        assert not ended, "a step after the last one"
        assert len(step.tokens) == len(step.tiers)
        assert step.tokens or step.finish_reason, "an empty step in the middle"
        assert not engine.verifier.model.eog.intersection(step.tokens)
        assert POISON not in step.tokens
        text += step.tokens
        ended = step.finish_reason is not None
        stats = engine.stats
        assert (stats.prompt_tokens, stats.completion_tokens) == (len(prompt), len(text) - len(prompt))
        assert 0 <= stats.accepted <= stats.drafted
        if not ended:
            verifier = engine.verifier
            assert verifier.cells == text[:-1]
            unaudited = engine.policy.audit_every if engine.policy.mode is Mode.TIERED else 0
            assert verifier.n_kv - verifier.n_full <= unaudited
        yield step
    assert ended, "the iterator ended without a reason"


def generate(
    engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any
) -> tuple[list[int], list[Tier], FinishReason | None]:
    steps = list(watched(engine, prompt, engine.generate(prompt, **options)))
    tokens = [token for step in steps for token in step.tokens]
    return tokens, [tier for step in steps for tier in step.tiers], steps[-1].finish_reason


def tokens_of(engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any) -> list[int]:
    return generate(engine, prompt, **options)[0]


#
# lossless: the full verifier's text, whoever drafts
#


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


#
# tiered: each region by construction. The text counts: the full tier says n after n tokens.
#

COUNT = [n % POISON for n in range(64)]
START = COUNT[:3]  # the first block begins after 4 tokens, the fourth from the prefill; it drafts 4, 5, 6
D, S, F = Tier.DRAFT, Tier.SLIM, Tier.FULL


def regions(a: int = 0, b: int = 0, c: int = 0, bonus: int = 0) -> dict[str, int]:
    return {"A": a, "B": b, "C": c, "bonus": bonus}


@pytest.mark.parametrize(
    ("draft", "slim_says", "tokens", "tiers", "counted", "accepted"),
    [
        # all A, the slim verifier sure of a bonus
        ([4, 5, 6], {}, (4, 5, 6, 7), (D, D, D, S), regions(a=3, bonus=1), 3),
        ([4, 5, 6], {7: (9, 0.9)}, (4, 5, 6, 9), (D, D, D, S), regions(a=3, bonus=1), 3),
        # all A, and no bonus
        ([4, 5, 6], {7: (7, 0.4)}, (4, 5, 6), (D, D, D), regions(a=3), 3),
        # A although the full verifier would say otherwise: the mode is lossy
        ([4, 9, 6], {5: (9, 0.9)}, (4, 9, 6, 7), (D, D, D, S), regions(a=3, bonus=1), 3),
        # B rewrites the token and ends the block
        ([4, 9, 6], {}, (4, 5), (D, S), regions(a=1, b=1), 1),
        ([4, 5, 6], {5: (9, 0.9)}, (4, 9), (D, S), regions(a=1, b=1), 1),
        ([9, 5, 6], {}, (4,), (S,), regions(b=1), 0),
        ([4, 5, 9], {}, (4, 5, 6), (D, D, S), regions(a=2, b=1), 2),
        # C: the full verifier decides from there on, as in ordinary speculative decoding
        ([4, 5, 6], {5: (5, 0.4)}, (4, 5, 6, 7), (D, F, F, F), regions(a=1, c=1), 3),
        ([4, 9, 6], {5: (5, 0.4)}, (4, 5), (D, F), regions(a=1, c=1), 1),
        ([4, 5, 9], {5: (9, 0.4)}, (4, 5, 6), (D, F, F), regions(a=1, c=1), 2),
        ([4, 5, 6], {4: (0, 0.4)}, (4, 5, 6, 7), (F, F, F, F), regions(c=1), 3),
        ([9, 5, 6], {4: (4, 0.4)}, (4,), (F,), regions(c=1), 0),
        ([4, 5, 6], {6: (6, 0.4)}, (4, 5, 6, 7), (D, D, F, F), regions(a=2, c=1), 3),
        # a B after a C does not count: the slim verifier has no say any more
        ([4, 5, 6], {5: (5, 0.4), 6: (9, 0.9)}, (4, 5, 6, 7), (D, F, F, F), regions(a=1, c=1), 3),
        # nothing drafted: the full verifier, as in plain decoding
        ([], {}, (4,), (F,), regions(), 0),
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_tiered_block(
    draft: list[int],
    slim_says: dict[int, tuple[int, float]],
    tokens: tuple[int, ...],
    tiers: tuple[Tier, ...],
    counted: dict[str, int],
    accepted: int,
    resume: bool,
) -> None:
    drafter = fakes.scripted(dict(enumerate(draft, start=4)))
    engine = build(Script(COUNT, slim_says), Mode.TIERED, drafter, resume=resume)
    steps = watched(engine, START, engine.generate(START))
    assert next(steps) == Step((3,), (F,))
    assert next(steps) == Step(tokens, tiers)
    assert engine.stats.regions == counted
    assert (engine.stats.drafted, engine.stats.accepted, engine.stats.blocks) == (len(draft), accepted, 1)
    assert drafter.observed == ([accepted] if draft else [])
    expected = [("full", 0, 3)]
    if draft:
        expected.append(("slim", 3, 4))
    else:
        expected.append(("full", 3, 1))
    if counted["C"]:
        expected.append(("resume" if resume else "full", 3, 4))
    assert fakes.passes(engine.verifier) == expected


def test_tiered_pending_cells_wait_for_the_next_full_pass() -> None:
    # block 1: 4 5 6 7 by the slim tier; block 2 escalates at 9: the full tier computes 3 … 9 again
    engine = build(Script(COUNT, {9: (9, 0.4)}), Mode.TIERED)
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(3)] == [(F,), (D, D, D, S), (D, F, F, F)]
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("slim", 7, 4), ("resume", 3, 8)]
    assert engine.verifier.n_full == engine.verifier.n_kv == 11


def test_a_plain_round_computes_pending_cells_too() -> None:
    # the drafter falls silent after the first block
    engine = build(Script(COUNT), Mode.TIERED, fakes.scripted({4: 4, 5: 5, 6: 6}))
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(3)] == [(F,), (D, D, D, S), (F,)]
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("full", 3, 5)]


@pytest.mark.parametrize(
    ("audit_every", "tiers"),
    [
        (3, [(D, D, D, F)] * 4),  # a block has 4 cells
        (4, [(D, D, D, S), (D, D, D, F)] * 2),
        (8, [(D, D, D, S), (D, D, D, S), (D, D, D, F), (D, D, D, S)]),
        (100, [(D, D, D, S)] * 4),
    ],
)
def test_audit_every_forces_a_full_pass(audit_every: int, tiers: list[tuple[Tier, ...]]) -> None:
    engine = build(Script(COUNT), Mode.TIERED, audit_every=audit_every)
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(5)] == [(F,), *tiers]
    full = [kind for kind, _, _ in fakes.passes(engine.verifier)].count("resume")
    assert full == sum(F in block for block in tiers)


def test_an_audit_overrules_the_rewrite_of_its_block() -> None:
    engine = build(Script(COUNT, {5: (9, 0.9)}), Mode.TIERED, audit_every=1)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps) == Step((4, 5, 6, 7), (D, F, F, F))
    assert engine.stats.regions["B"] == 0


def test_exact_lets_the_slim_tier_mend_drafts_before_one_full_pass() -> None:
    # 4 5 | 9 mended to 6, 7 8 | 9 a bonus, then 10 unsure: one full pass over 3 … 9
    drafter = fakes.scripted({4: 4, 5: 5, 6: 9, 7: 7, 8: 8, 9: 9, 10: 10})
    engine = build(Script(COUNT, {10: (10, 0.4)}), Mode.EXACT, drafter)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps) == Step((4, 5, 6, 7, 8, 9, 10), (F,) * 7)
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("slim", 6, 4), ("resume", 3, 7)]
    assert (engine.stats.drafted, engine.stats.accepted) == (6, 5)
    assert engine.stats.regions == regions(a=5, b=1)
    assert drafter.observed == [5]


@pytest.mark.parametrize(
    ("audit_every", "tokens", "expected_passes"),
    [
        # blocks of 3 and a bonus; no pass has seen the last bonus, so the full one gives that token
        (4, (4, 5, 6, 7), [("slim", 3, 4), ("resume", 3, 4)]),
        (5, (4, 5, 6, 7, 8, 9, 10, 0), [("slim", 3, 4), ("slim", 7, 4), ("resume", 3, 8)]),
    ],
)
def test_exact_confirms_after_audit_every_candidates(
    audit_every: int, tokens: tuple[int, ...], expected_passes: list[tuple[str, int, int]]
) -> None:
    engine = build(Script(COUNT), Mode.EXACT, audit_every=audit_every)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps).tokens == tokens
    assert fakes.passes(engine.verifier)[1:] == expected_passes


@pytest.mark.parametrize(
    ("draft", "slim_says"),
    [
        ([4, 5, 6], {5: (9, 0.9), 6: (6, 0.4)}),  # it rewrote a good draft
        ([4, 9, 6], {5: (9, 0.9), 7: (7, 0.4)}),  # it kept a bad one
    ],
)
def test_exact_turns_down_what_the_slim_tier_was_wrong_about(
    draft: list[int], slim_says: dict[int, tuple[int, float]]
) -> None:
    drafter = fakes.scripted(dict(enumerate(draft, start=4)))
    engine = build(Script(COUNT, slim_says), Mode.EXACT, drafter)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps) == Step((4, 5), (F, F))
    assert engine.stats.accepted == 1


@pytest.mark.parametrize("wrong_at", [4, 5, 6, None])
def test_sd_keeps_the_agreeing_part_of_a_draft_and_adds_one_token(wrong_at: int | None) -> None:
    draft = {n: 0 if n == wrong_at else n for n in (4, 5, 6)}
    engine = build(Script(COUNT), Mode.SD, fakes.scripted(draft))
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    expected = tuple(range(4, (wrong_at or 7) + 1))
    assert next(steps) == Step(expected, (F,) * len(expected))
    assert (engine.stats.drafted, engine.stats.accepted) == (3, len(expected) - 1)
    assert fakes.passes(engine.verifier) == [("full", 0, 3), ("full", 3, 4)]


#
# where a text ends
#


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("eog", range(3, 11))
@pytest.mark.parametrize("draft_tokens", [1, 3, 4])
def test_an_end_token_ends_the_text_wherever_it_falls_in_a_block(mode: Mode, eog: int, draft_tokens: int) -> None:
    engine = build(Script(COUNT), mode, draft_tokens=draft_tokens, eog=[eog])
    assert generate(engine, START)[::2] == (list(range(3, eog)), "stop")
    assert generate(engine, START)[::2] == (list(range(3, eog)), "stop")  # and what it left in the cache does no harm


def test_an_end_token_by_the_slim_tiers_rewrite_ends_the_text() -> None:
    engine = build(Script(COUNT, {5: (8, 0.9)}), Mode.TIERED, eog=[8])
    assert generate(engine, START) == ([3, 4], [F, D], "stop")


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("draft_tokens", [1, 3, 8])
def test_max_tokens_is_never_exceeded(mode: Mode, draft_tokens: int) -> None:
    for n in range(1, 14):
        engine = build(Script(COUNT), mode, draft_tokens=draft_tokens)
        assert generate(engine, START, max_tokens=n)[::2] == (COUNT[3 : 3 + n], "length")
        if isinstance(engine.drafter, FakeDrafter):
            texts_and_limits = zip(engine.drafter.texts, engine.drafter.limits, strict=True)
            assert all(len(text) + limit < 3 + n for text, limit in texts_and_limits)  # one is the verifier's own


@pytest.mark.parametrize("mode", DRAFTING)
def test_a_drafter_that_ignores_its_limit_does_not_lengthen_the_text(mode: Mode) -> None:
    class Eager(FakeDrafter):
        def propose(
            self, text: Sequence[int], limit: int, sampler: Sampler = GREEDY, wants_more: WantsMore = always
        ) -> Draft:
            return super().propose(text, 20)

    engine = build(Script(COUNT), mode, Eager(lambda text: len(text) % POISON))
    assert generate(engine, START, max_tokens=6)[::2] == ([3, 4, 5, 6, 7, 8], "length")


@pytest.mark.parametrize("mode", Mode)
def test_max_tokens_0_runs_nothing(mode: Mode) -> None:
    engine = build(Script(COUNT), mode)
    assert generate(engine, START, max_tokens=0) == ([], [], "length")
    assert fakes.passes(engine.verifier) == []


@pytest.mark.parametrize("mode", Mode)
def test_the_limit_counts_before_an_end_token_that_would_follow(mode: Mode) -> None:
    assert generate(build(Script(COUNT), mode, eog=[8]), START, max_tokens=5)[::2] == ([3, 4, 5, 6, 7], "length")
    assert generate(build(Script(COUNT), mode, eog=[8]), START, max_tokens=6)[::2] == ([3, 4, 5, 6, 7], "stop")


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("n_ctx", range(5, 16))
@pytest.mark.parametrize("max_tokens", [None, 1000])
def test_a_text_fills_the_context_to_the_last_token(mode: Mode, n_ctx: int, max_tokens: int | None) -> None:
    engine = build(Script(COUNT), mode, n_ctx=n_ctx, draft_tokens=4)
    assert generate(engine, START, max_tokens=max_tokens)[::2] == (COUNT[3:n_ctx], "length")


@pytest.mark.parametrize("mode", Mode)
def test_a_prompt_may_fill_the_context(mode: Mode) -> None:
    engine = build(Script(COUNT), mode, n_ctx=8)
    assert generate(engine, COUNT[:8]) == ([], [], "length")
    assert generate(engine, COUNT[:7]) == ([7], [F], "length")


#
# what a generation leaves behind
#


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("steps", range(5))
def test_a_generation_that_was_closed_early_leaves_no_trace(mode: Mode, steps: int) -> None:
    language = RandomLanguage(8, confidences=[0.3, 0.9, 0.9])
    engine = build(language, mode, fakes.sometimes_right(language) if mode is not Mode.PLAIN else None)
    fresh = build(language, mode, fakes.sometimes_right(language) if mode is not Mode.PLAIN else None)
    for prompt in (PROMPT, [1, 2, 4], [*PROMPT, 5, 6]):
        running = engine.generate(PROMPT)
        for _ in range(steps):
            next(running)
        running.close()  # type: ignore[attr-defined]
        assert tokens_of(engine, prompt, max_tokens=20) == tokens_of(fresh, prompt, max_tokens=20)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_second_generation_ends_the_first(mode: Mode, steps: int) -> None:
    language = RandomLanguage(8)
    expected = tokens_of(build(language, mode), [1, 2, 4], max_tokens=20)
    engine = build(language, mode)
    first = engine.generate(PROMPT)
    for _ in range(steps):
        next(first)
    second = watched(engine, [1, 2, 4], engine.generate([1, 2, 4], max_tokens=20))
    tokens = [*next(second).tokens]
    assert list(first) == []
    for step in second:
        tokens += step.tokens
        assert list(first) == []
    assert tokens == expected


def test_a_closed_engine_ends_its_generation_and_frees_its_parts() -> None:
    language = Script(COUNT)
    drafter = fakes.oracle(language)
    engine = build(language, Mode.SD, drafter)
    running = engine.generate(START)
    next(running)
    engine.close()
    assert list(running) == []
    assert drafter.closed
    assert isinstance(engine.verifier.context, FakeContext)
    assert engine.verifier.context.closed


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("nth", range(8))
def test_an_interrupt_in_any_pass_leaves_the_engine_usable(mode: Mode, nth: int) -> None:
    language = RandomLanguage(8, confidences=[0.3, 0.9, 0.9])
    expected = tokens_of(build(language, mode), max_tokens=20)
    engine = build(language, mode)
    context = engine.verifier.context
    assert isinstance(context, FakeContext)

    def interrupt() -> None:
        if len(fakes.passes(engine.verifier)) == nth + 1:
            raise KeyboardInterrupt

    context.fail = interrupt
    with pytest.raises(KeyboardInterrupt):
        list(engine.generate(PROMPT))
    assert tokens_of(engine, max_tokens=20) == expected


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("good_calls", [0, 1, 2])
def test_a_drafter_that_raises_is_dropped_for_this_answer_with_one_warning(mode: Mode, good_calls: int) -> None:
    language = RandomLanguage(2, confidences=[0.3])
    calls = 0

    class Failing(FakeDrafter):
        def propose(
            self, text: Sequence[int], limit: int, sampler: Sampler = GREEDY, wants_more: WantsMore = always
        ) -> Draft:
            nonlocal calls
            calls += 1
            if calls == good_calls + 1:
                raise OSError("the disk is gone")
            return super().propose(text, limit)

    engine = build(language, mode, Failing(lambda text: int(language.full(text).argmax())))
    expected = expected_text(language, PROMPT, 20)
    with pytest.warns(RuntimeWarning, match=r"the drafter failed \(the disk is gone\)") as warned:
        assert tokens_of(engine, max_tokens=20) == expected
    assert len(warned) == 1
    assert calls == good_calls + 1
    assert tokens_of(engine, max_tokens=20) == expected  # the next answer tries it again, without a warning
    assert calls > good_calls + 1
    assert engine.stats.drafted > 0


def test_a_drafter_that_is_an_empty_container_drafts_all_the_same() -> None:
    class Sized(FakeDrafter):
        def __len__(self) -> int:
            return 0

    engine = build(Script(COUNT), Mode.SD, Sized(lambda text: len(text) % POISON))
    assert tokens_of(engine, START, max_tokens=9) == COUNT[3:12]
    assert engine.stats.accepted == 6


def test_a_longer_prompt_reuses_what_the_full_tier_has_computed() -> None:
    engine = build(Script(COUNT), Mode.SD)
    tokens = tokens_of(engine, START, max_tokens=6)
    assert engine.stats.reused_tokens == 0
    fakes.passes(engine.verifier).clear()
    generate(engine, [*START, *tokens, 9, 9], max_tokens=1)
    assert engine.stats.reused_tokens == 8  # all but the last token, which no pass has seen
    assert fakes.passes(engine.verifier) == [("full", 8, 3)]


def test_the_same_prompt_again_computes_only_its_last_token() -> None:
    engine = build(Script(COUNT), Mode.SD)
    generate(engine, START, max_tokens=6)
    fakes.passes(engine.verifier).clear()
    generate(engine, START, max_tokens=1)
    assert engine.stats.reused_tokens == 2
    assert fakes.passes(engine.verifier) == [("full", 2, 1)]


def test_a_prompt_that_differs_reuses_the_common_part() -> None:
    engine = build(Script(COUNT), Mode.PLAIN)
    generate(engine, [0, 1, 2, 3, 4, 5], max_tokens=3)
    generate(engine, [0, 1, 2, 9, 4, 5, 6], max_tokens=1)
    assert engine.stats.reused_tokens == 3
    generate(engine, [9, 1], max_tokens=1)
    assert engine.stats.reused_tokens == 0


def test_what_the_slim_tier_computed_is_never_reused() -> None:
    engine = build(Script(COUNT), Mode.TIERED)  # the slim tier decides all but the first token
    tokens = tokens_of(engine, START, max_tokens=13)
    assert engine.verifier.n_kv > engine.verifier.n_full == 3
    generate(engine, [*START, *tokens], max_tokens=1)
    assert engine.stats.reused_tokens == 3


#
# what is refused
#


@pytest.mark.parametrize("mode", DRAFTING)
def test_a_verifier_that_cannot_roll_back_decodes_without_drafts(mode: Mode) -> None:
    language = RandomLanguage(1)
    with pytest.warns(RuntimeWarning, match=r"fake\.gguf cannot be rolled back") as warned:
        engine = build(language, mode, can_rewind=False)
    assert len(warned) == 1
    assert engine.policy.mode is Mode.PLAIN
    assert engine.stats.mode == "plain"
    for prompt in (PROMPT, [1, 2, 4], PROMPT):
        tokens, _, _ = generate(engine, prompt, max_tokens=10)
        assert tokens == expected_text(language, prompt, 10)
        assert engine.stats.mode == "plain"
        assert engine.stats.drafted == 0


def test_plain_decoding_needs_no_roll_back() -> None:
    language = RandomLanguage(1)
    engine = build(language, Mode.PLAIN, can_rewind=False, mask=None)
    tokens = tokens_of(engine, max_tokens=10)
    assert tokens == expected_text(language, PROMPT, 10)
    tokens_of(engine, [*PROMPT, *tokens], max_tokens=1)
    assert engine.stats.reused_tokens == 12  # growing a text needs none either


@pytest.mark.parametrize("mode", DRAFTING)
def test_a_drafting_mode_needs_a_drafter(mode: Mode) -> None:
    verifier = fake_verifier(Script(COUNT))
    with pytest.raises(ValueError, match=f"mode {mode.value} needs a drafter"):
        Engine(verifier, None, Policy(mode))


@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.TIERED])
@pytest.mark.parametrize("mask", [None, "none"])
def test_a_mode_with_a_slim_tier_needs_a_mask(mode: Mode, mask: str | None) -> None:
    language = Script(COUNT)
    verifier, drafter = fake_verifier(language, mask=mask), fakes.oracle(language)
    with pytest.raises(ValueError, match=f"mode {mode.value} needs a mask"):
        Engine(verifier, drafter, Policy(mode))


@pytest.mark.parametrize(
    ("prompt", "options", "complaint"),
    [
        ([], {}, "the prompt is empty"),
        ([0] * 9, {}, r"the prompt has 9 tokens; the context holds 8 \(n_ctx\)"),
        ([1, 12], {}, "token 12 of the prompt is none of the model's 0 to 11"),
        ([1, -1], {}, "token -1 of the prompt"),
        ([1], {"max_tokens": -1}, "max_tokens is -1; it must be 0 or larger"),
    ],
)
@pytest.mark.parametrize("mode", Mode)
def test_generate_refuses_at_once(mode: Mode, prompt: list[int], options: dict[str, int], complaint: str) -> None:
    engine = build(Script(COUNT), mode, n_ctx=8)
    with pytest.raises(ValueError, match=complaint):
        engine.generate(prompt, **options)  # without taking a step
    assert fakes.passes(engine.verifier) == []


def test_a_refused_generation_does_not_end_the_running_one() -> None:
    engine = build(Script(COUNT), n_ctx=8)
    running = watched(engine, START, engine.generate(START))
    next(running)
    with pytest.raises(ValueError, match="the prompt is empty"):
        engine.generate([])
    assert [token for step in running for token in step.tokens] == COUNT[4:8]


#
# what is counted
#


@any_drafter
@pytest.mark.parametrize("mode", Mode)
def test_counters_add_up(mode: Mode, drafter: str) -> None:
    for seed in range(5):
        language = RandomLanguage(seed, confidences=[0.3, 0.9, 0.9])
        drafting = DRAFTERS[drafter](language) if mode is not Mode.PLAIN else None
        engine = build(language, mode, drafting, audit_every=1000)
        steps = list(watched(engine, PROMPT, engine.generate(PROMPT, max_tokens=30)))
        tiers = [tier for step in steps for tier in step.tiers]
        stats = engine.stats
        assert stats.mode == mode.value
        assert stats.completion_tokens == len(tiers) == 30
        assert stats.blocks == len(steps) - 1
        assert stats.acceptance_length == 29 / stats.blocks
        if isinstance(drafting, FakeDrafter):
            assert sum(drafting.observed) == stats.accepted
        if mode is Mode.SD:
            assert stats.accepted == 29 - stats.blocks  # one token a block is the verifier's own
        if mode is Mode.TIERED:
            assert tiers.count(Tier.DRAFT) == stats.regions["A"]
            assert tiers.count(Tier.SLIM) == stats.regions["B"] + stats.regions["bonus"]
            assert stats.regions["A"] <= stats.accepted
        else:
            assert tiers.count(Tier.FULL) == 30
        if mode in (Mode.PLAIN, Mode.SD):
            assert stats.regions == regions()
        for kind in ("slim", "full", "resume"):
            sizes = [size for name, _, size in fakes.passes(engine.verifier)[1:] if name == kind]
            assert (stats.passes[kind].calls, stats.passes[kind].tokens) == (len(sizes), sum(sizes))


def test_a_generation_has_its_own_counters() -> None:
    engine = build(Script(COUNT))
    generate(engine, START, max_tokens=20)
    first = engine.stats
    generate(engine, START, max_tokens=2)
    assert first.completion_tokens == 20
    assert engine.stats.completion_tokens == 2
    assert first.passes["full"].calls == 5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(generation_module, "time", clock)
    monkeypatch.setattr(tiers_module, "time", clock)
    monkeypatch.setattr(FakeContext, "clock", clock)
    return clock


def test_the_clock_stands_still_while_the_consumer_works(clock: Clock) -> None:
    language = Script(COUNT)
    drafter = FakeDrafter(lambda text: len(text) % POISON)
    drafter_seconds = 0.5
    propose = drafter.propose

    def slow(text: Sequence[int], limit: int, sampler: Sampler, wants_more: WantsMore) -> Draft:
        clock.now += drafter_seconds
        drafter.recorder("draft", limit, drafter_seconds)
        return propose(text, limit, sampler, wants_more)

    drafter.propose = slow  # type: ignore[method-assign]
    engine = build(language, Mode.TIERED, drafter)
    clock.now = 1000.0
    for _ in engine.generate(START, max_tokens=10):
        clock.now += 100
    stats = engine.stats
    # prefill of 3 tokens, then slim passes over 4, 4 and 1: 3 | 4 5 6 7 | 8 9 10 0 | 1
    assert stats.blocks == 3
    assert stats.prefill_seconds == stats.first_token_seconds == 3
    assert stats.passes["slim"].seconds == 8
    assert stats.passes["draft"].seconds == 1.0
    assert stats.passes["full"].seconds + stats.passes["resume"].seconds == 9  # 8 pending, and one of its own
    assert stats.seconds == 3 + 8 + 9 + 1
    assert stats.overhead_seconds == 0
    assert stats.tokens_per_second == 9 / 18


def test_an_abandoned_generation_has_counted_its_time(clock: Clock) -> None:
    engine = build(Script(COUNT), Mode.PLAIN)
    running = engine.generate(START)
    next(running)
    next(running)
    clock.now += 100
    running.close()  # type: ignore[attr-defined]
    assert engine.stats.seconds == 4
