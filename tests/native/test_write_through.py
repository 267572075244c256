"""Slim passes that write the K/V of the attention sublayers that they skip, so that their positions can be settled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tiny

from via_sd_local.mask import LayerMask
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.verifier import Verifier

PROMPT = [1, *range(260, 300)]  # more than two windows of the models with sliding windows
ANSWER = [301, 302, 303, 304, 305]
NEXT = [306, 307]
ATTENTION = [name for name in tiny.SPECS if name not in ("mamba", "jamba")]
Make = Callable[..., Model]
OpenContext = Callable[..., Context]
OpenVerifier = Callable[..., Verifier]


def redundant_model(name: str, tiny_model: Make, layers: tuple[int, ...]) -> Model:
    """A model in which the attention of these layers adds nothing to the hidden states, though it has K and V."""
    spec = tiny.spec(name)
    tensors = tiny.random_tensors(spec)
    for layer in layers:
        tensors = tiny.without_sublayer(tensors, spec, layer, "attn")
    return tiny_model(spec, tensors)


def full_logits(context: Context, *batches: list[int]) -> np.ndarray:
    """The logits of the last batch, `[n, n_vocab]`, after full passes over all batches in order."""
    start = 0
    for batch in batches:
        logits = context.decode(batch, start, len(batch)).copy()
        start += len(batch)
    return logits


@pytest.mark.parametrize("name", ATTENTION)
def test_settled_positions_have_the_kv_of_the_full_model_where_the_skipped_attention_adds_nothing(
    name: str, tiny_model: Make, verifier: OpenVerifier, context: OpenContext
) -> None:
    """Bit for bit, in every layer: the next full pass equals the one after full passes alone."""
    layers = (2, 3)
    model = redundant_model(name, tiny_model, layers)
    tiers = verifier(model, "a2,a3")
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER, write_through=True)
    tiers.settle(len(PROMPT) + len(ANSWER))
    assert (tiers.n_exact, tiers.n_full) == (len(PROMPT), len(PROMPT) + len(ANSWER))
    settled = tiers.full(NEXT, len(NEXT)).copy()
    assert np.array_equal(settled, full_logits(context(model), PROMPT, ANSWER, NEXT))
    assert tiers.n_exact == len(PROMPT)  # what attends to settled positions is not exact either


def test_written_kv_are_an_approximation_and_unwritten_ones_are_none(tiny_model: Make, context: OpenContext) -> None:
    """With random layers: nearer to the full model than what the cells of skipped layers held before."""
    model = tiny_model(tiny.spec("llama"))
    mask = LayerMask.parse("a2,a3", model.n_layer)
    start = len(PROMPT) + len(ANSWER)

    def after(skip: bytes) -> np.ndarray:
        ctx = context(model)
        ctx.decode(PROMPT, 0, 1)
        with ctx.masked(skip):
            ctx.decode(ANSWER, len(PROMPT), 1)
        return ctx.decode(NEXT, start, len(NEXT)).copy()

    exact, written, unwritten = after(b""), after(mask.to_bytes(writes_kv=True)), after(mask.to_bytes())
    assert 0 < np.abs(written - exact).max() < np.abs(unwritten - exact).max()


@pytest.mark.parametrize("resume", [False, True], ids=["recompute", "resume"])
@pytest.mark.parametrize(("name", "mask"), [("llama", "2-3"), ("gemma3", "6-8"), ("llama-moe", "a2,f3,4")])
def test_reopened_positions_are_computed_by_the_full_model(
    name: str, mask: str, resume: bool, tiny_model: Make, verifier: OpenVerifier, context: OpenContext
) -> None:
    tiers = verifier(tiny_model(tiny.spec(name)), mask, resume=resume)
    exact = full_logits(context(tiers.model), PROMPT, [*ANSWER, *NEXT])
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER, write_through=True)
    tiers.settle(len(PROMPT) + len(ANSWER))
    settled = tiers.full(NEXT, 2).copy()
    assert np.abs(settled - exact[-2:]).max() > 1e-3
    tiers.reopen(0)
    assert (tiers.n_full, tiers.n_kv) == (len(PROMPT), len(PROMPT) + len(ANSWER) + len(NEXT))
    assert np.array_equal(tiers.full([], len(ANSWER) + len(NEXT)), exact)
    assert tiers.n_exact == tiers.n_full == tiers.n_kv


def test_a_pass_resumes_over_what_is_not_settled(tiny_model: Make, verifier: OpenVerifier) -> None:
    kinds: list[tuple[str, int]] = []
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER, write_through=True)
    tiers.settle(len(PROMPT) + 3)
    assert tiers.can_resume
    recomputed = verifier(tiers.model, "2-3", resume=False)
    recomputed.full(PROMPT, 1)
    recomputed.slim(ANSWER, write_through=True)
    recomputed.settle(len(PROMPT) + 3)
    resumed = tiers.full([], 2, recorder=lambda kind, n, _seconds: kinds.append((kind, n))).copy()
    assert kinds == [("resume", 2)]
    assert np.abs(resumed - recomputed.full([], 2)).max() <= 0.02


def test_another_text_reuses_only_what_the_full_model_alone_computed(tiny_model: Make, verifier: OpenVerifier) -> None:
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER, write_through=True)
    tiers.settle(len(PROMPT) + 3)
    tiers.rewind(len(PROMPT) + 3)
    text = [*PROMPT, *ANSWER[:3], *NEXT]
    assert tiers.reuse(text, len(text) - 1) == len(PROMPT)
    assert (tiers.n_exact, tiers.n_full, tiers.n_kv) == (len(PROMPT),) * 3


def test_watermarks_follow_rewinds_and_resets(tiny_model: Make, verifier: OpenVerifier) -> None:
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER, write_through=True)
    start = len(PROMPT)
    tiers.settle(start + 4)
    tiers.settle(start + 2)  # settles no more than before
    tiers.reopen(start + 3)
    assert (tiers.n_exact, tiers.n_full, tiers.n_kv) == (start, start + 3, start + 5)
    tiers.rewind(start + 1)
    assert (tiers.n_exact, tiers.n_full, tiers.n_kv) == (start, start + 1, start + 1)
    tiers.rewind(start - 2)
    assert (tiers.n_exact, tiers.n_full, tiers.n_kv) == (start - 2,) * 3
    tiers.full(NEXT, 1)
    assert tiers.n_exact == start
    tiers.reset()
    assert (tiers.n_exact, tiers.n_full, tiers.n_kv) == (0, 0, 0)


def test_positions_without_kv_in_every_layer_cannot_be_settled(tiny_model: Make, verifier: OpenVerifier) -> None:
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    start = len(PROMPT)
    tiers.full(PROMPT, 1)
    tiers.slim(ANSWER[:2], write_through=True)
    tiers.slim(ANSWER[2:3])
    tiers.slim(ANSWER[3:], write_through=True)  # behind a position without them
    with pytest.raises(ValueError, match=f"position {start + 2} cannot be settled"):
        tiers.settle(start + 3)
    tiers.settle(start + 2)
    assert (tiers.n_exact, tiers.n_full) == (start, start + 2)
    tiers.rewind(start + 2)
    tiers.slim(ANSWER[2:], write_through=True)
    tiers.settle(start + 5)
    assert tiers.n_full == start + 5


def test_kv_can_be_written_only_for_an_attention_that_is_skipped(tiny_model: Make, context: OpenContext) -> None:
    ctx = context(tiny_model(tiny.spec("llama")))
    with pytest.raises(ValueError, match="writes the K/V of an attention that it does not skip"):
        ctx.set_mask(b"\0\6\0\0\0\0")
    ctx.set_mask(b"\0\7\5\0\0\0")
