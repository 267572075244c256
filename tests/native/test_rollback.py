"""What happens to caches and drafters when a text is taken back, replaced, or cannot be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
import tiny
from fakes import RandomLanguage, expected_text
from generations import DRAFTING, PROMPT, build, tokens_of

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.errors import NativeError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.cache import TokenCache
from via_sd_local.tiers.drafter import Draft, Drafter
from via_sd_local.tiers.llama_cpp_drafter import LlamaDraftModelDrafter
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup
from via_sd_local.tiers.self_drafter import SelfDrafter
from via_sd_local.tiers.verifier import Verifier


def failing(tracked: TokenCache, monkeypatch: pytest.MonkeyPatch, nth: int | None) -> list[int]:
    """Let the nth removal from its memory fail (None: all); returns a list that counts the failures."""
    remove, failed, calls = tracked.context.remove, [], 0

    def fail(start: int) -> bool:
        nonlocal calls
        calls += 1
        if nth is not None and calls != nth + 1:
            return remove(start)
        failed.append(start)
        return False

    monkeypatch.setattr(tracked.context, "remove", fail)
    return failed


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("nth", [0, 1, 2, 3, None])
@pytest.mark.parametrize("resume", [True, False])
def test_a_memory_that_cannot_forget_is_filled_again(
    resume: bool, nth: int | None, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake's cells know their tier, so each must be what it was; all answers are a fresh engine's."""
    language = RandomLanguage(8, agreement=0.9, confidences=[0.3, 0.9, 0.9])

    def fresh() -> Engine:
        return build(language, mode, fakes.sometimes_right(language), resume=resume)

    engine, others = fresh(), (PROMPT, [1, 2, 5, 6], PROMPT)
    failed = failing(engine.verifier, monkeypatch, nth)
    for prompt in others:
        assert tokens_of(engine, prompt, max_tokens=30) == tokens_of(fresh(), prompt, max_tokens=30)
    assert len(failed) == 1 if nth is not None else len(failed) > 10


@pytest.mark.parametrize("nth", [0, 1, 2, None])
def test_a_draft_models_memory_that_cannot_forget_is_filled_again(
    nth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    language, other = RandomLanguage(8), RandomLanguage(9)
    drafter, fresh = fakes.fake_model_drafter(other), fakes.fake_model_drafter(other)
    failed = failing(drafter.cache, monkeypatch, nth)
    for prompt in (PROMPT, [1, 2, 5, 6], PROMPT):
        engine = build(language, Mode.SD, drafter)
        assert tokens_of(engine, prompt, max_tokens=30) == expected_text(language, prompt, 30)
        again = build(language, Mode.SD, fresh)
        tokens_of(again, prompt, max_tokens=30)
        assert engine.stats.accepted_lengths == again.stats.accepted_lengths
    assert failed


@pytest.mark.parametrize("nth", [0, 1, None])
def test_a_self_draft_that_cannot_be_taken_back_is_cleared_away(
    nth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    language = RandomLanguage(8)
    tiers = fakes.fake_verifier(language)
    engine = Engine(tiers, SelfDrafter(tiers, LayerMask.parse("1-3", 4)), Policy(Mode.SD, 3))
    failed = failing(tiers, monkeypatch, nth)
    for prompt in (PROMPT, [1, 2, 5, 6]):
        assert tokens_of(engine, prompt, max_tokens=30) == expected_text(language, prompt, 30)
    assert failed


def test_a_memory_that_can_neither_forget_nor_be_filled_again_ends_the_answer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    language = RandomLanguage(8)
    engine = build(language, Mode.SD, fakes.always_wrong(language))
    context = engine.verifier.context
    assert isinstance(context, fakes.FakeContext)

    def broken() -> None:
        raise NativeError("no memory")

    def fail(start: int) -> bool:
        monkeypatch.undo()
        context.fail = broken
        return False

    monkeypatch.setattr(context, "remove", fail)
    with pytest.raises(NativeError, match="no memory"):
        tokens_of(engine, max_tokens=30)
    context.fail = lambda: None
    assert tokens_of(engine, max_tokens=30) == expected_text(language, PROMPT, 30)


@pytest.mark.parametrize("mode", ["full", "slim"])
def test_a_cache_that_was_filled_again_is_the_one_before(
    mode: str, tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On llama.cpp: longer than a batch, with slim positions behind; the logits after it are those of a fresh run."""
    model = tiny_model(tiny.spec("llama", n_ctx_train=1024))
    text = [1, *np.random.default_rng(0).integers(260, 300, 700).tolist()]
    logits = []
    for fails in (True, False):
        tiers = verifier(model, "3", 1024)
        tiers.full(text[:600], 1)
        tiers.slim(text[600:604])
        tiers.slim(text[604:606])
        failed = failing(tiers, monkeypatch, 0) if fails else []
        tiers.rewind(605 if mode == "slim" else 590)
        n = tiers.n_kv
        assert tiers.n_full == min(n, 600)
        kinds: list[str] = []

        def record(kind: str, _tokens: int, _seconds: float, kinds: list[str] = kinds) -> None:
            kinds.append(kind)

        slim = tiers.slim(text[n : n + 3], recorder=record).copy()
        logits.append([slim, tiers.full([], n + 3 - tiers.n_full, recorder=record).copy()])
        assert kinds == ["slim", "resume"]
        assert tiers.cells == text[: n + 3]
        assert len(failed) == fails
    np.testing.assert_allclose(logits[0][0], logits[1][0], atol=0.02)
    np.testing.assert_allclose(logits[0][1], logits[1][1], atol=0.02)


class Noting:
    """A drafter that notes what it proposed."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.drafts: list[Draft] = []

    def propose(self, *arguments: Any) -> Draft:
        self.drafts.append(self.drafter.propose(*arguments))
        return self.drafts[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drafter, name)


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("kind", ["lookup", "model", "self", "llama_cpp"])
@pytest.mark.parametrize("reset", [False, True], ids=["other text", "reset"])
def test_a_drafter_keeps_nothing_of_a_text_that_is_gone(
    reset: bool,
    kind: str,
    mode: Mode,
    tiny_model: Callable[..., Model],
    verifier: Callable[..., Verifier],
    keep: Callable[[Any], Any],
) -> None:
    """Texts that replace, shorten, extend and interrupt each other: a fresh engine drafts and says the same."""
    model = tiny_model(tiny.spec("llama"))

    def fresh() -> tuple[Engine, Noting]:
        tiers = verifier(model, "3" if mode in (Mode.EXACT, Mode.TIERED) else "")
        parts: dict[str, Callable[[], Drafter]] = {
            "lookup": lambda: PromptLookup(min_ngram=1),
            "model": lambda: keep(ModelDrafter(model, model, n_ctx=256, n_threads=1)),
            "self": lambda: SelfDrafter(tiers, LayerMask.parse("2-4", model.n_layer)),
            "llama_cpp": lambda: LlamaDraftModelDrafter(lambda ids: ids[:3]),
        }
        drafter = Noting(parts[kind]())
        return Engine(tiers, drafter, Policy(mode, 3)), drafter  # type: ignore[arg-type]

    text = [1, *range(260, 290), *range(260, 275)]
    used, noted = fresh()
    for prompt in (text, text[:20], [1, 300, *text[2:]], text, [*text, 301, 260, 261], [5, 6]):
        running = used.generate(text, max_tokens=20)
        next(running)
        next(running)  # and broken off
        if reset:
            used.verifier.reset()
        noted.drafts.clear()
        tokens = [token for step in used.generate(prompt, max_tokens=20) for token in step.tokens]
        other, afresh = fresh()
        assert tokens == [token for step in other.generate(prompt, max_tokens=20) for token in step.tokens]
        assert [draft.tokens for draft in noted.drafts] == [draft.tokens for draft in afresh.drafts]


@pytest.mark.parametrize("mode", DRAFTING)
def test_a_draft_that_is_longer_than_a_batch_is_checked_in_pieces(
    mode: Mode, tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    """Any length works, also beyond the 512 tokens of a batch; the tokens are the model's own choice."""
    model = tiny_model(tiny.spec("llama", n_ctx_train=2048))
    prompt = [1, *np.random.default_rng(0).integers(260, 300, 650).tolist()]
    drafter = LlamaDraftModelDrafter(lambda ids: ids[:640])
    engine = Engine(verifier(model, "3" if mode is not Mode.SD else "", 2048), drafter, Policy(mode, 640))
    steps = engine.generate(prompt, max_tokens=700)
    emitted = [token for _ in range(4) for token in next(steps).tokens]
    assert max(engine.stats.draft_lengths) == 640
    reference = verifier(model, "", 2048).context
    logits = reference.decode([*prompt, *emitted[:-1]], 0, len(emitted))
    if mode is not Mode.TIERED:
        gaps = logits.max(axis=1) - logits[np.arange(len(emitted)), emitted]
        assert gaps.max() < 0.05  # logits of ±2: nothing but a near-tie
