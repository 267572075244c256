"""The generation loop on a language without weights: what a generation leaves behind, and what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakes
import pytest
from fakes import POISON, Clock, FakeContext, FakeDrafter, RandomLanguage, Script, expected_text
from generations import (
    COUNT,
    DRAFTERS,
    DRAFTING,
    PROMPT,
    START,
    any_drafter,
    build,
    generate,
    regions,
    tokens_of,
    watched,
)

from via_sd_local.engine import generation as generation_module
from via_sd_local.engine.policy import Mode
from via_sd_local.engine.steps import Tier
from via_sd_local.tiers import cache as cache_module
from via_sd_local.tiers.drafter import NO_HINTS, Draft, Hints

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
        def propose(self, text: Sequence[int], limit: int, *_more: Any) -> Draft:  # type: ignore[override]
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
        for lengths, total in ((stats.draft_lengths, stats.drafted), (stats.accepted_lengths, stats.accepted)):
            assert sum(length * n for length, n in lengths.items()) == total
        if isinstance(drafting, FakeDrafter):
            assert sum(drafting.observed) == stats.accepted
        if mode is Mode.SD:
            assert stats.accepted == 29 - stats.blocks  # one token a block is the verifier's own
        if mode.trusts_slim_tier:
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


@pytest.mark.parametrize("audit_every", [1, 4, 9])
@pytest.mark.parametrize("draft_tokens", [1, 3, 8])
def test_so_many_tokens_are_in_flight_and_at_the_end_of_an_answer_a_block_more(
    draft_tokens: int, audit_every: int
) -> None:
    for seed in range(20):
        language = RandomLanguage(seed, agreement=0.9, confidences=[0.9])
        engine = build(
            language,
            Mode.TIERED,
            fakes.slim_like(language),
            draft_tokens=draft_tokens,
            audit_every=audit_every,
            eog=(seed % 10,),
        )
        for step in engine.generate(PROMPT, max_tokens=40):
            last = step.finish_reason == "stop"
            assert engine.stats.in_flight <= audit_every + draft_tokens * last


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("audit_every", [4, 9])
def test_tokens_in_flight_are_those_that_only_the_slim_tier_has_seen(mode: Mode, audit_every: int) -> None:
    found = set()
    for seed in range(5):
        language = RandomLanguage(seed, agreement=0.9, confidences=[0.3, 0.9, 0.9])
        engine = build(
            language, mode, fakes.slim_like(language) if mode is not Mode.PLAIN else None, audit_every=audit_every
        )
        most = waiting = 0
        for step in watched(engine, PROMPT, engine.generate(PROMPT, max_tokens=40)):
            waiting = 0 if step.tiers[-1] is Tier.FULL else waiting + len(step.tokens)
            most = max(most, waiting)
        assert engine.stats.max_in_flight == most
        found.add(most)
    assert max(found) <= audit_every
    assert (max(found) > 0) == mode.trusts_slim_tier


def test_decisions_of_the_pace_are_counted_by_generation() -> None:
    """Costs are given: drafting loses at first (the drafter is as dear as the verifier), then pays."""
    language = RandomLanguage(0, confidences=[0.9])
    engine = build(language, Mode.TIERED, fakes.oracle(language), draft_tokens=None)
    (pace,) = engine.paces
    lengths = iter([0, 0, 2, 0, 3, *[1] * 40])
    first = iter(["slim", "full", *["slim"] * 40])
    pace.next_length = lambda room, *_: min(room, next(lengths))  # type: ignore[method-assign]
    pace.choose_route = lambda *_draft: next(first)  # type: ignore[method-assign]
    generate(engine, max_tokens=9)
    assert engine.stats.pace["off"] == 3
    assert engine.stats.pace["full_first"] == 1
    assert engine.stats.pace["slim_first"] >= 1
    pace.probes += 5
    generate(engine, max_tokens=3)
    assert engine.stats.pace["off"] == engine.stats.pace["probes"] == 0


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
    monkeypatch.setattr(cache_module, "time", clock)
    monkeypatch.setattr(FakeContext, "clock", clock)
    return clock


def test_the_clock_stands_still_while_the_consumer_works(clock: Clock) -> None:
    language = Script(COUNT)
    drafter = FakeDrafter(lambda text: len(text) % POISON)
    drafter_seconds = 0.5
    propose = drafter.propose

    def slow(text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        clock.now += drafter_seconds
        hints.recorder("draft", limit, drafter_seconds)
        return propose(text, limit, hints)

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
