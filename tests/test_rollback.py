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

from via_sd_local.drafter_adapter import LlamaDraftModelDrafter
from via_sd_local.drafters import Draft, Drafter, ModelDrafter, PromptLookup
from via_sd_local.engine import Engine
from via_sd_local.errors import NativeError
from via_sd_local.mask import LayerMask
from via_sd_local.model import Model
from via_sd_local.policy import Mode, Policy
from via_sd_local.self_drafter import SelfDrafter
from via_sd_local.tiers import Verifier


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("nth", range(4))
def test_a_removal_that_fails_is_an_error_and_the_next_answer_is_right(mode: Mode, nth: int) -> None:
    language = RandomLanguage(8, agreement=0.9, confidences=[0.3, 0.9, 0.9])
    drafter = fakes.always_wrong(language)
    engine = build(language, mode, drafter if mode is not Mode.PLAIN else None)
    expected = tokens_of(build(language, mode, drafter if mode is not Mode.PLAIN else None), max_tokens=30)
    context = engine.verifier.context
    assert isinstance(context, fakes.FakeContext)
    remove, calls = context.remove, 0

    def fail_once(start: int) -> bool:
        nonlocal calls
        calls += 1
        return remove(start) if calls != nth + 1 else False

    context.remove = fail_once  # type: ignore[method-assign]
    if mode is Mode.PLAIN:  # nothing is taken back
        assert tokens_of(engine, max_tokens=30) == expected
        assert calls == 0
        return
    with pytest.raises(NativeError, match=r"the KV cache cannot forget position \d+ and what follows"):
        tokens_of(engine, max_tokens=30)
    assert tokens_of(engine, max_tokens=30) == expected


def test_a_self_draft_that_cannot_be_taken_back_ends_the_answer() -> None:
    """The drafter's error alone would cost only its drafts, but the cache is not the text's any more."""
    language = RandomLanguage(8)
    tiers = fakes.fake_verifier(language)
    engine = Engine(tiers, SelfDrafter(tiers, LayerMask.parse("1-3", 4)), Policy(Mode.SD, 3))
    context = tiers.context
    assert isinstance(context, fakes.FakeContext)
    remove = context.remove
    answers = iter([False])
    context.remove = lambda start: next(answers, None) is None and remove(start)  # type: ignore[method-assign]
    with (
        pytest.warns(RuntimeWarning, match="the drafter failed"),
        pytest.raises(NativeError, match="the KV cache is unknown after a pass that failed"),
    ):
        tokens_of(engine, max_tokens=30)
    assert tokens_of(engine, max_tokens=30) == expected_text(language, PROMPT, 30)


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
