"""The verifier drafts for itself: what it decodes for that leaves no trace in its cache or in the text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import fakes
import numpy as np
import pytest
import tiny
from fakes import RandomLanguage, Script, expected_text, fake_verifier
from generations import COUNT, DRAFTING, LOSSLESS, PROMPT, START, generate, tokens_of

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import JointRule
from via_sd_local.engine.measure import measure
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.drafter import Hints
from via_sd_local.tiers.self_drafter import SelfDrafter
from via_sd_local.tiers.verifier import Verifier

DEEP = LayerMask.parse("1-3", 4)


def drafting_for_itself(language: fakes.Language, mode: Mode, draft_tokens: int | None = 3, **verifier: Any) -> Engine:
    """The masked tier of a fake language drafts, whatever the mask."""
    tiers = fake_verifier(language, **verifier)
    return Engine(tiers, SelfDrafter(tiers, DEEP), Policy(mode, draft_tokens, JointRule(0.5, 0.5)))


def test_it_proposes_what_the_masked_model_says_and_leaves_the_cache_as_it_was() -> None:
    language = Script(COUNT, {5: (9, 0.8)})
    verifier = fake_verifier(language)
    verifier.full(START, 1)
    counted: list[tuple[str, int]] = []
    hints = Hints(recorder=lambda kind, tokens, _seconds: counted.append((kind, tokens)))
    draft = SelfDrafter(verifier, DEEP).propose([*START, 3], 3, hints)
    assert draft.tokens == [4, 9, 6]
    assert draft.confidences == pytest.approx([0.9, 0.8, 0.9], abs=1e-6)
    assert verifier.cells == START
    assert (verifier.n_full, verifier.n_kv) == (3, 3)
    assert verifier.reuse(START, 3) == 3
    assert counted == [("draft", 1)] * 3
    assert fakes.passes(verifier)[1:] == [("slim", 3, 1), ("slim", 4, 1), ("slim", 5, 1)]


@pytest.mark.parametrize("mode", LOSSLESS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_lossless_modes_emit_the_plain_text(mode: Mode, temperature: float) -> None:
    for seed, resume in product(range(5), (True, False)):
        language = RandomLanguage(seed, confidences=[0.3, 0.9])
        sampling = SamplingParams(temperature=temperature, seed=seed)
        engine = drafting_for_itself(language, mode, None, resume=resume)  # the target's own draws are compared
        assert tokens_of(engine, max_tokens=40, sampling=sampling) == expected_text(
            language, PROMPT, 40, sampling=sampling
        )
        assert engine.stats.drafted > 0


def test_in_tiered_it_drafts_over_cells_that_wait_for_the_full_model() -> None:
    language = RandomLanguage(3, agreement=0.9, confidences=[0.9])
    engine = drafting_for_itself(language, Mode.TIERED)
    generate(engine, max_tokens=40)  # checked by the fakes
    assert engine.stats.regions["A"] > 10


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_draft_that_is_cut_short_leaves_the_engine_usable(mode: Mode, error: type[BaseException], nth: int) -> None:
    """An error costs this answer its drafts, an interrupt ends it; the cache stays right in both cases."""
    language = RandomLanguage(8, confidences=[0.3])
    engine = drafting_for_itself(language, mode)
    context = engine.verifier.context
    assert isinstance(context, fakes.FakeContext)

    def fail() -> None:
        drafting = context.mask == DEEP.to_bytes()
        if drafting and sum(kind == "slim" for kind, _, _ in context.passes) >= nth:
            context.fail = lambda: None
            raise error("in the middle of a pass")

    context.fail = fail
    expected = expected_text(language, PROMPT, 30)
    if error is RuntimeError:
        with pytest.warns(RuntimeWarning, match="the drafter failed"):
            assert tokens_of(engine, max_tokens=30) == expected
    else:
        with pytest.raises(KeyboardInterrupt):
            tokens_of(engine, max_tokens=30)
    assert tokens_of(engine, max_tokens=30) == expected


def test_a_draft_stays_within_the_context() -> None:
    verifier = fake_verifier(Script(COUNT), n_ctx=6)
    verifier.full(COUNT[:4], 1)
    assert SelfDrafter(verifier, DEEP).propose(COUNT[:5], 9).tokens == [5, 6]  # no pass needs to see the last one


def test_a_text_that_is_not_the_verifiers_is_refused() -> None:
    verifier = fake_verifier(Script(COUNT))
    verifier.full(START, 1)
    with pytest.raises(ValueError, match="the text has 3 tokens, and the verifier's cache 3, not one less"):
        SelfDrafter(verifier, DEEP).propose(START, 3)


def test_a_mask_that_skips_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="skips nothing"):
        SelfDrafter(fake_verifier(Script(COUNT)), LayerMask.of(4))


def test_a_verifier_that_cannot_roll_back_cannot_draft_for_itself(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    with pytest.raises(ValueError, match=r"cannot draft for itself: its state cannot be rolled back"):
        SelfDrafter(verifier(tiny_model(tiny.spec("mamba"))), LayerMask.parse("1", 4))


def test_a_mask_that_llama_cpp_refuses_is_refused_with_its_reason(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    model = tiny_model(tiny.spec("llama"))
    every = LayerMask.of(model.n_layer, attn=range(model.n_layer))
    with pytest.raises(ValueError, match=r"llama\.cpp refuses this mask"):
        SelfDrafter(verifier(model), every)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("mask", ["", "3", "2-3"])
def test_full_and_slim_logits_are_the_same_bit_for_bit_with_drafts_in_between(
    name: str, mask: str, tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    """Passes of the same shapes, with and without drafts before each of them; resumed ones, too."""
    model = tiny_model(tiny.spec(name))
    with_drafts, without = verifier(model, mask), verifier(model, mask)
    drafter = SelfDrafter(with_drafts, LayerMask.parse("1-3", model.n_layer))
    random = np.random.default_rng(0)
    text = [2, *random.integers(260, 300, 20).tolist()]
    for tiers in (with_drafts, without):
        tiers.full(text[:-1], 1)
    for round_ in range(12):
        draft = drafter.propose(text, 4).tokens
        assert with_drafts.cells == text[:-1]
        if mask and round_ % 3:
            rows = [tiers.slim([text[-1], *draft]).copy() for tiers in (with_drafts, without)]
            np.testing.assert_array_equal(*rows)
            if round_ % 3 == 2:
                rows = [tiers.full([], len(draft) + 1).copy() for tiers in (with_drafts, without)]
        else:
            rows = [tiers.full([text[-1], *draft], len(draft) + 1).copy() for tiers in (with_drafts, without)]
        np.testing.assert_array_equal(*rows)
        kept = round_ % 4
        text += [*draft[:kept], int(rows[0][kept].argmax())]
        for tiers in (with_drafts, without):
            tiers.rewind(len(text) - 1)


def test_measuring_it_knows_that_its_first_pass_has_one_token(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    model = tiny_model(tiny.spec("llama"))
    tiers = verifier(model)
    costs = measure(tiers, [SelfDrafter(tiers, LayerMask.parse("1-3", model.n_layer))])
    assert costs.of("draft", 1) == costs.of("draft", 2) > 0
    assert tiers.n_kv == 0
