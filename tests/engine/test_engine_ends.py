"""The generation loop on a language without weights: where a text ends, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakes
import pytest
from fakes import POISON, FakeDrafter, RandomLanguage, Script, expected_text, fake_verifier
from generations import COUNT, DRAFTING, PROMPT, START, D, F, build, generate, tokens_of, watched

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.tiers.drafter import Draft

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
        for drafter in engine.drafters:
            assert isinstance(drafter, FakeDrafter)
            texts_and_limits = zip(drafter.texts, drafter.limits, strict=True)
            assert all(len(text) + limit < 3 + n for text, limit in texts_and_limits)  # one is the verifier's own


@pytest.mark.parametrize("mode", DRAFTING)
def test_a_drafter_that_ignores_its_limit_does_not_lengthen_the_text(mode: Mode) -> None:
    class Eager(FakeDrafter):
        def propose(self, text: Sequence[int], limit: int, *_more: Any) -> Draft:  # type: ignore[override]
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
        ([1, 12], {}, "token 12 of the prompt is not in the vocabulary \\(0 to 11\\)"),
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
