"""The tiny models load in llama.cpp and compute something; the broken files do not load."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from tiny_vocab import Vocab, vocabulary

from via_sd_local.binding import llama as lc

PROMPT = [1, *range(260, 300)]


@contextmanager
def loaded(path: Path, *, vocab_only: bool = False) -> Iterator[ctypes.c_void_p]:
    params = lc.llama_model_default_params()
    params.n_gpu_layers = 0
    params.vocab_only = vocab_only
    model = lc.llama_model_load_from_file(str(path).encode(), params)
    try:
        yield model
    finally:
        if model:
            lc.llama_model_free(model)


def logits(path: Path, tokens: list[int]) -> np.ndarray:
    """[len(tokens), n_vocab] of one decode."""
    with loaded(path) as model:
        assert model, f"{path.name} does not load"
        params = lc.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 64
        params.n_threads = params.n_threads_batch = 1
        ctx = lc.llama_init_from_model(model, params)
        batch = lc.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        try:
            assert lc.llama_decode(ctx, batch) == 0
            n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
            return np.ctypeslib.as_array(lc.llama_get_logits(ctx), (len(tokens), n_vocab)).copy()
        finally:
            lc.llama_batch_free(batch)
            lc.llama_free(ctx)


def tokenized(path: Path, text: str) -> list[int]:
    with loaded(path, vocab_only=True) as model:
        out = (lc.llama_token * 64)()
        raw = text.encode()
        n = lc.llama_tokenize(lc.llama_model_get_vocab(model), raw, len(raw), out, len(out), True, False)
        return list(out[:n])


@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("name", tiny.SPECS)
def test_every_architecture_loads_and_its_logits_depend_on_the_prompt(name: str, dtype: str, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", tiny.spec(name, dtype=dtype))
    full = logits(path, PROMPT)
    other = logits(path, [1, 261, *PROMPT[2:]])
    assert np.isfinite(full).all()
    assert 0.5 < full.std() < 20
    assert np.abs(full - other)[-1].max() > 1e-2  # the second token still shows 39 positions later
    assert len(np.unique(full.argmax(axis=1))) > 5


@pytest.mark.parametrize("name", [name for name in tiny.SPECS if name not in ("mamba", "jamba")])
@pytest.mark.parametrize("part", ["attn", "ffn"])
def test_every_sublayer_matters(name: str, part: str, tmp_path: Path) -> None:
    spec = tiny.spec(name)
    tensors = tiny.random_tensors(spec)
    full = logits(tiny.write(tmp_path / "m.gguf", spec, tensors), PROMPT)
    for il in range(spec.n_layer):
        without = tiny.write(tmp_path / "w.gguf", spec, tiny.without_sublayer(tensors, spec, il, part))
        assert np.abs(full - logits(without, PROMPT)).max() > 0.1, f"layer {il}"


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_a_removed_layer_leaves_the_others_their_kinds(name: str, tmp_path: Path) -> None:
    spec = tiny.spec(name)
    assert spec.layers("swa")
    assert spec.layers("full")
    tensors = tiny.random_tensors(spec)
    explicit = tiny.spec(name, kinds=spec.layer_kinds)
    implied = logits(tiny.write(tmp_path / "m.gguf", spec, tensors), PROMPT)
    assert np.array_equal(implied, logits(tiny.write(tmp_path / "e.gguf", explicit, tensors), PROMPT))

    rest, fewer = tiny.without_layers(tensors, spec, [1, 4])
    assert fewer.layer_kinds == tuple(kind for il, kind in enumerate(spec.layer_kinds) if il not in (1, 4))
    shifted = tiny.spec(name, n_layer=fewer.n_layer)
    kept = logits(tiny.write(tmp_path / "k.gguf", fewer, rest), PROMPT)
    wrong = logits(tiny.write(tmp_path / "s.gguf", shifted, rest), PROMPT)
    assert np.abs(kept - wrong).max() > 1e-2


def test_removing_layers_renumbers_the_rest() -> None:
    spec = tiny.spec("llama", n_layer=3)
    tensors = tiny.random_tensors(spec)
    rest, fewer = tiny.without_layers(tensors, spec, [1])
    assert fewer.n_layer == 2
    assert rest["blk.1.attn_q.weight"] is tensors["blk.2.attn_q.weight"]
    assert rest.keys() == tiny.random_tensors(fewer).keys()


def test_seeds_and_longer_vocabularies_share_what_they_should() -> None:
    one, same, other, longer = (
        tiny.random_tensors(tiny.spec("llama", **changes)) for changes in ({}, {}, {"seed": 1}, {"n_vocab": 330})
    )
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not any(np.array_equal(one[name], other[name]) for name in one)
    assert np.array_equal(longer["token_embd.weight"][:320], one["token_embd.weight"])


def test_the_vocabulary_tokenizes_pieces_and_falls_back_to_bytes(tmp_path: Path) -> None:
    vocab = vocabulary(320)
    path = tiny.write(tmp_path / "v.gguf", tiny.spec("llama"), {})
    texts = [vocab.tokens[token] for token in tokenized(path, "the end é")]
    assert texts == ["<s>", "▁the", "▁", "en", "d", "▁", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize(
    ("vocab", "bos", "eog"),
    [
        (vocabulary(320), 1, {2}),
        (vocabulary(310).padded(320), 1, {2}),
        (vocabulary(320).with_eot(319), 1, {2, 319}),
        (vocabulary(320).with_token(300, "<|im_end|>"), 1, {2, 300}),
        (replace(vocabulary(320), bos=300), 300, {2}),
    ],
    ids=["plain", "padded", "eot", "im_end", "bos"],
)
def test_vocabulary_options_reach_llama_cpp(vocab: Vocab, bos: int, eog: set[int], tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "v.gguf", tiny.spec("llama"), {}, vocab=vocab)
    with loaded(path, vocab_only=True) as model:
        native = lc.llama_model_get_vocab(model)
        assert lc.llama_vocab_n_tokens(native) == 320
        assert lc.llama_vocab_bos(native) == bos
        assert {token for token in range(320) if lc.llama_vocab_is_eog(native, token)} == eog


def test_a_vocabulary_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"vocab has 330 tokens, spec\.n_vocab is 320"):
        tiny.write(tmp_path / "v.gguf", tiny.spec("llama"), vocab=vocabulary(330))


def test_overrides_set_and_remove_keys(tmp_path: Path) -> None:
    spec = tiny.spec("llama")
    overrides = {"llama.context_length": 77, "tokenizer.chat_template": "{{ x }}"}
    with loaded(tiny.write(tmp_path / "o.gguf", spec, overrides=overrides)) as model:
        assert lc.llama_model_n_ctx_train(model) == 77
        assert lc.llama_model_chat_template(model, None) == b"{{ x }}"
    with loaded(tiny.write(tmp_path / "r.gguf", spec, overrides={"llama.block_count": None})) as model:
        assert not model


@pytest.mark.parametrize(
    "broken",
    [
        lambda path: tiny.write_truncated(path, tiny.spec("llama")),
        lambda path: tiny.write_unknown_arch(path, tiny.spec("llama")),
        lambda path: tiny.write(path, tiny.spec("llama"), {}),
        tiny.write_text,
        tiny.write_empty,
    ],
    ids=["truncated", "unknown architecture", "no tensors", "text", "empty"],
)
def test_broken_files_do_not_load(broken: Callable[[Path], Path], tmp_path: Path) -> None:
    with loaded(broken(tmp_path / "broken.gguf")) as model:
        assert not model
