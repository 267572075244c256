"""The patch: a masked model computes exactly what the GGUF without those sublayers computes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
import tiny

from via_sd_local.binding import get_layer_skip
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model

PROMPT = [1, *range(260, 283)]
ATTENTION = [name for name in tiny.SPECS if name not in ("mamba", "jamba")]
Make = Callable[..., Model]
Open = Callable[..., Context]


def logits(context: Context, mask: LayerMask | None = None) -> np.ndarray:
    """The logits of PROMPT in one pass, [len(PROMPT), n_vocab]."""
    context.clear()
    context.set_mask(mask.to_bytes() if mask else b"")
    return context.decode(PROMPT, 0, len(PROMPT)).copy()


@pytest.mark.parametrize("name", ATTENTION)
def test_a_mask_of_a_whole_layer_equals_the_gguf_without_it(name: str, tiny_model: Make, context: Open) -> None:
    spec = tiny.spec(name)
    tensors = tiny.random_tensors(spec)
    masked = context(tiny_model(spec, tensors))
    for layers in ([0], [2], [spec.n_layer - 1], [1, 2, 4]):
        rest, fewer = tiny.without_layers(tensors, spec, layers)
        removed = context(tiny_model(fewer, rest))
        mask = LayerMask.of(spec.n_layer, attn=layers, ffn=layers)
        assert np.array_equal(logits(masked, mask), logits(removed)), layers


@pytest.mark.parametrize("part", ["attn", "ffn"])
@pytest.mark.parametrize("name", ATTENTION)
def test_a_sublayer_mask_equals_the_gguf_with_that_output_zeroed(
    name: str, part: str, tiny_model: Make, context: Open
) -> None:
    spec = tiny.spec(name)
    tensors = tiny.random_tensors(spec)
    masked = context(tiny_model(spec, tensors))
    full = logits(masked)
    for layer in range(spec.n_layer):
        zeroed = context(tiny_model(spec, tiny.without_sublayer(tensors, spec, layer, part)))  # type: ignore[arg-type]
        slim = logits(masked, LayerMask.of(spec.n_layer, **{part: [layer]}))
        assert np.array_equal(slim, logits(zeroed)), layer
        assert np.abs(slim - full).max() > 0.5, layer


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_lifted_mask_leaves_nothing_behind(name: str, tiny_model: Make, context: Open) -> None:
    model = tiny_model(tiny.spec(name))
    ctx = context(model)
    untouched = logits(context(model))
    for text in ("3", "a1,f2", "f0-3"):
        assert not np.array_equal(logits(ctx, LayerMask.parse(text, model.n_layer)), untouched)
        assert np.array_equal(logits(ctx), untouched)


@pytest.mark.parametrize("which", ["smollm2", "gemma"])
def test_an_empty_mask_equals_a_library_whose_mask_was_never_set(
    which: str, context: Open, request: pytest.FixtureRequest
) -> None:
    model: Model = request.getfixturevalue(which)
    tokens = model.tokenize_prompt("The sea was calm, and the boats lay still; nobody in the village")
    never, emptied = context(model), context(model)
    reference = never.decode(tokens, 0, len(tokens)).copy()
    emptied.set_mask(b"")
    assert np.array_equal(emptied.decode(tokens, 0, len(tokens)), reference)

    emptied.set_mask(LayerMask.parse("4-6", model.n_layer).to_bytes())
    emptied.clear()
    assert np.abs(emptied.decode(tokens, 0, len(tokens)) - reference).max() > 0.1
    emptied.set_mask(b"")
    emptied.clear()
    assert np.array_equal(emptied.decode(tokens, 0, len(tokens)), reference)


def test_keeping_layer_inputs_leaves_the_logits_as_they_are(tiny_model: Make, context: Open) -> None:
    model = tiny_model(tiny.spec("llama"))
    plain, keeping = context(model), context(model)
    keeping.keep_layer_input(3)
    assert np.array_equal(logits(plain), logits(keeping))


@pytest.mark.parametrize("name", ATTENTION)
def test_layer_inputs_are_those_of_the_architecture(name: str, tiny_model: Make, context: Open) -> None:
    """The input of layer 2 does not depend on layers from 2 on, and does on those below."""
    spec = tiny.spec(name)
    ctx = context(tiny_model(spec))
    ctx.keep_layer_input(2)

    def inputs(mask: str) -> np.ndarray:
        logits(ctx, LayerMask.parse(mask, spec.n_layer))
        rows = ctx.layer_input(len(PROMPT))
        assert rows is not None
        assert rows.shape == (len(PROMPT), spec.n_embd)
        return rows

    full = inputs("")
    assert np.array_equal(inputs("3"), full)
    assert np.array_equal(inputs("f2"), full)
    assert not np.array_equal(inputs("f1"), full)


REFUSALS = [
    ("llama", b"\0\0\1", "length is not the model's number of layers"),
    ("llama", bytes(7), "length is not the model's number of layers"),
    ("llama", b"\0\10\0\0\0\0", "none of 1 .attention., 2 .FFN., 4 .write"),
    ("llama", b"\3" * 6, "attention of every layer"),
    ("gemma2", bytes([1, 0, 1, 0, 1, 0]), "every sliding-window layer"),
    ("gemma2", bytes([0, 1, 0, 1, 0, 1]), "every global"),
    ("mamba", b"\0\1\0\0\0\0", "not recurrent, hybrid or encoder"),
    ("jamba", b"\0\2\0\0\0\0", "not recurrent, hybrid or encoder"),
]


@pytest.mark.parametrize(("name", "mask", "reason"), REFUSALS)
def test_a_mask_that_cannot_work_is_refused_with_a_reason(
    name: str, mask: bytes, reason: str, tiny_model: Make, context: Open
) -> None:
    ctx = context(tiny_model(tiny.spec(name)))
    before = logits(ctx)
    with pytest.raises(ValueError, match=reason):
        ctx.set_mask(mask)
    ctx.clear()
    assert np.array_equal(ctx.decode(PROMPT, 0, len(PROMPT)), before)


def test_a_refused_mask_leaves_the_one_in_force(tiny_model: Make, context: Open) -> None:
    ctx = context(tiny_model(tiny.spec("llama")))
    ctx.set_mask(b"\0\1\2\3\0\0")
    with pytest.raises(ValueError, match="every layer"):
        ctx.set_mask(b"\1" * 6)
    buffer = (ctypes.c_uint8 * 6)()
    assert get_layer_skip(ctx.handle, buffer, 6) == 6
    assert bytes(buffer) == b"\0\1\2\3\0\0"
    ctx.set_mask(b"")
    assert get_layer_skip(ctx.handle, buffer, 6) == 0


def test_inside_masked_the_slim_model_computes_and_after_it_the_full_one(tiny_model: Make, context: Open) -> None:
    model = tiny_model(tiny.spec("llama"))
    mask = LayerMask.parse("a1,f2", model.n_layer)
    ctx, slim, full = context(model), logits(context(model), mask), logits(context(model))
    with ctx.masked(mask.to_bytes()):
        assert np.array_equal(ctx.decode(PROMPT, 0, len(PROMPT)), slim)
    ctx.clear()
    assert np.array_equal(ctx.decode(PROMPT, 0, len(PROMPT)), full)


def test_masked_ends_without_a_mask_also_when_a_pass_fails_or_the_mask_is_refused(
    tiny_model: Make, context: Open
) -> None:
    ctx = context(tiny_model(tiny.spec("llama")))
    mask, no_attention = b"\0\1\2\3\0\0", b"\1" * 6

    def interrupted_pass() -> None:
        with ctx.masked(mask):
            assert get_layer_skip(ctx.handle, None, 0) == 6
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_pass()
    assert get_layer_skip(ctx.handle, None, 0) == 0
    ctx.set_mask(mask)
    with pytest.raises(ValueError, match="every layer"), ctx.masked(no_attention):
        pytest.fail("the block of a refused mask is entered")
    assert get_layer_skip(ctx.handle, None, 0) == 0


def test_checking_a_mask_leaves_none_in_force(tiny_model: Make, context: Open) -> None:
    ctx = context(tiny_model(tiny.spec("llama")))
    ctx.check_mask(b"\0\1\2\3\0\0")
    assert get_layer_skip(ctx.handle, None, 0) == 0
    with pytest.raises(ValueError, match="every layer"):
        ctx.check_mask(b"\1" * 6)


def test_one_kept_attention_sublayer_is_enough(tiny_model: Make, context: Open) -> None:
    spec = tiny.spec("gemma3")
    ctx = context(tiny_model(spec))
    mask = LayerMask.of(spec.n_layer, attn=set(range(spec.n_layer)) - {0, 5}, ffn=range(spec.n_layer))
    assert np.isfinite(logits(ctx, mask)).all()
