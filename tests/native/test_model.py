"""Loading: what is turned down and how; the vocabulary; which drafts fit which verifiers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from tiny_vocab import Vocab, vocabulary

from via_sd_local.binding import llama
from via_sd_local.errors import ModelError
from via_sd_local.interrupts import interrupts_after
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.vocabulary import check_vocabulary
from via_sd_local.tiers.model_drafter import ModelDrafter

LLAMA = tiny.spec("llama")
Make = Callable[..., Model]


def cut(path: Path, size: int) -> Path:
    tiny.write(path, LLAMA)
    path.write_bytes(path.read_bytes()[:size])
    return path


BROKEN = [
    (lambda path: path, "there is no such file"),
    (lambda path: path.parent, "this is a folder; name the .gguf file in it"),
    (tiny.write_text, "not a GGUF file: it begins with b'This'"),
    (tiny.write_empty, "not a GGUF file: it is empty"),
    (lambda path: cut(path, 4), "llama.cpp cannot load this file: failed to read header"),
    (lambda path: cut(path, 3000), "llama.cpp cannot load this file: failed to read key-value pairs"),
    (lambda path: tiny.write_truncated(path, LLAMA), "not within the file bounds, model is corrupted or incomplete"),
    (lambda path: tiny.write(path, LLAMA, {}), "it holds no weights, only a vocabulary"),
    (lambda path: tiny.write_unknown_arch(path, LLAMA), "unknown model architecture: 'nonesuch'"),
]


@pytest.mark.parametrize(("make", "message"), BROKEN)
def test_a_file_that_cannot_serve_gives_its_own_one_line_message(
    make: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "m.gguf")
    with pytest.raises(ModelError) as caught:
        Model(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_said_to_be_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.write(tmp_path / "m.gguf", LLAMA)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        Model(path)


def test_a_closed_model_says_so(tmp_path: Path) -> None:
    model = Model(tiny.write(tmp_path / "m.gguf", LLAMA))
    model.close()
    model.close()
    with pytest.raises(ValueError, match="has been closed"):
        _ = model.handle


def test_tokens_and_text_convert_both_ways(smollm2: Model) -> None:
    for text in ("The sea.", " two  spaces\n\n", "naïve 😀 日本語", ""):
        tokens = smollm2.tokenize(text)
        assert smollm2.detokenize(tokens) == text
    assert len(smollm2.tokenize("a" * 5000)) > 0


def test_special_tokens_are_recognised_only_where_asked_for(smollm2: Model) -> None:
    im_start = smollm2.tokenize("<|im_start|>", parse_special=True)
    assert len(im_start) == 1
    assert smollm2.piece(im_start[0]) == b""
    assert len(smollm2.tokenize("<|im_start|>")) > 1


@pytest.mark.parametrize("text", ["the sea", "<bos>the sea", "<bos><bos>the sea"])
def test_a_prompt_begins_with_exactly_one_bos(gemma: Model, text: str) -> None:
    tokens = gemma.tokenize_prompt(text, parse_special=True)
    assert tokens[0] == gemma.bos
    assert tokens.count(gemma.bos) == 1


def test_a_model_that_wants_no_bos_gets_none(smollm2: Model) -> None:
    assert not smollm2.adds_bos
    assert smollm2.bos not in smollm2.tokenize_prompt("the sea")


def test_every_end_of_generation_token_is_known(gemma: Model, smollm2: Model) -> None:
    def texts(model: Model) -> set[bytes]:
        return {model.token_text(token) for token in model.eog}

    assert {b"<eos>", b"<end_of_turn>"} <= texts(gemma)
    assert b"<|im_end|>" in texts(smollm2)


def test_what_is_borrowed_computes_alike_and_is_left_to_its_owner(
    tiny_model: Make, context: Callable[..., Context]
) -> None:
    model = tiny_model(LLAMA)
    owner = context(model, n_ctx=256)
    tokens = [1, 270, 280]
    rows = owner.decode(tokens, 0, 3).copy()
    owner.clear()

    borrowed = Model.borrow(model.path, model.handle)
    assert (borrowed.n_layer, borrowed.tokenize("one two")) == (model.n_layer, model.tokenize("one two"))
    lent = Context.borrow(borrowed, owner.handle)
    assert (lent.n_ctx, lent.n_batch, lent.n_threads) == (256, 256, 1)
    assert np.array_equal(lent.decode(tokens, 0, 3), rows)
    with pytest.raises(ValueError, match="has 1 open contexts; close those first"):
        borrowed.close()
    lent.close()
    lent.close()
    borrowed.close()
    with pytest.raises(ValueError, match="has been closed"):
        lent.decode(tokens, 0, 3)
    with pytest.raises(ValueError, match="has been closed"):
        borrowed.tokenize("one")

    owner.clear()
    assert np.array_equal(owner.decode(tokens, 0, 3), rows)
    assert model.users == 1


SAME = [
    (vocabulary(320), 320),
    (vocabulary(320).padded(330), 330),
    (vocabulary(310), 310),
]
OTHER = [
    (vocabulary(320).with_token(300, "xyz"), "token 300 is 'xyz' in the draft and 'nd' in the verifier"),
    (replace(vocabulary(320), bos=300), "BOS is token 300 in the draft and 1 in the verifier"),
    (replace(vocabulary(320), eos=300), "EOS is token 300 in the draft and 2 in the verifier"),
    (vocabulary(320).with_eot(319, "ad"), "token 319 ('ad') ends the text in only one of them"),
]


@pytest.mark.parametrize(("vocab", "n_vocab"), SAME, ids=["same", "padded", "shorter"])
def test_vocabularies_that_differ_only_at_the_end_fit(
    vocab: Vocab, n_vocab: int, tiny_model: Make, keep: Callable[[ModelDrafter], ModelDrafter]
) -> None:
    verifier = tiny_model(LLAMA)
    draft = tiny_model(tiny.spec("llama", n_vocab=n_vocab), vocab=vocab)
    check_vocabulary(draft, verifier)
    drafter = keep(ModelDrafter(draft, verifier, n_ctx=64))
    tokens = drafter.propose([1, 270, 280], 20).tokens
    assert len(tokens) == 20
    assert max(tokens) < min(n_vocab, 320)


@pytest.mark.parametrize(("vocab", "message"), OTHER, ids=["token", "bos", "eos", "eot"])
def test_a_draft_of_another_vocabulary_is_refused_by_the_first_difference(
    vocab: Vocab, message: str, tiny_model: Make
) -> None:
    with pytest.raises(ModelError) as caught:
        check_vocabulary(tiny_model(LLAMA, vocab=vocab), tiny_model(LLAMA))
    assert message in str(caught.value)


def test_a_draft_of_another_tokenizer_is_refused(smollm2: Model, gemma: Model) -> None:
    message = "its tokenizer is SentencePiece and the verifier's byte-level BPE; take a draft of the verifier's family"
    with pytest.raises(ModelError, match=message):
        check_vocabulary(gemma, smollm2)


def test_a_recurrent_model_cannot_draft(tiny_model: Make) -> None:
    with pytest.raises(ModelError, match="cannot be rolled back"):
        ModelDrafter(tiny_model(tiny.spec("mamba")), tiny_model(LLAMA), n_ctx=64)


def test_a_model_drafter_follows_the_text_by_itself(
    tiny_model: Make, keep: Callable[[ModelDrafter], ModelDrafter]
) -> None:
    """After rejected drafts, a rewritten text and a shorter one, it proposes what a fresh drafter proposes."""
    model = tiny_model(LLAMA)
    drafter = keep(ModelDrafter(model, model, n_ctx=64))
    for text in ([1, 270, 280], [1, 270, 280, 290, 291], [1, 270, 285], [1], [1, 270, 285, 286]):
        fresh = ModelDrafter(model, model, n_ctx=64)
        expected = fresh.propose(text, 5)
        fresh.close()
        got = drafter.propose(text, 5)
        assert got.tokens == expected.tokens
        assert got.confidences == pytest.approx(expected.confidences, abs=1e-3)
        assert all(0 < confidence <= 1 for confidence in got.confidences)


def test_an_unsure_drafter_stops_early(tiny_model: Make, keep: Callable[[ModelDrafter], ModelDrafter]) -> None:
    model = tiny_model(LLAMA)
    free = keep(ModelDrafter(model, model, n_ctx=64)).propose([1, 270, 280], 10)
    limit = sorted(free.confidences)[5]
    strict = keep(ModelDrafter(model, model, n_ctx=64, min_confidence=limit)).propose([1, 270, 280], 10)
    cut_at = next(i for i, confidence in enumerate(free.confidences) if confidence < limit)
    assert strict.tokens == free.tokens[:cut_at]


def test_a_drafter_at_the_end_of_its_context_proposes_less(
    tiny_model: Make, keep: Callable[[ModelDrafter], ModelDrafter]
) -> None:
    model = tiny_model(LLAMA)
    drafter = keep(ModelDrafter(model, model, n_ctx=16))
    assert len(drafter.propose([270] * 14, 5).tokens) == 3
    assert drafter.propose([270] * 17, 5).tokens == []


def test_an_interrupt_during_a_native_call_is_raised_after_it() -> None:
    """In a log callback, which C calls, a KeyboardInterrupt would be printed and lost."""
    before = signal.getsignal(signal.SIGINT)
    done = []

    def call() -> None:
        with interrupts_after():
            signal.raise_signal(signal.SIGINT)
            done.append("the call goes on")

    with pytest.raises(KeyboardInterrupt):
        call()
    assert done
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts_after():
        pass


def test_an_interrupt_while_loading_frees_what_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.write(tmp_path / "m.gguf", LLAMA)
    freed = []
    load, free = llama.llama_model_load_from_file, llama.llama_model_free

    def interrupted(*args: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return load(*args)

    monkeypatch.setattr(llama, "llama_model_load_from_file", interrupted)
    monkeypatch.setattr(llama, "llama_model_free", lambda handle: (freed.append(handle), free(handle)))
    with pytest.raises(KeyboardInterrupt):
        Model(path)
    assert len(freed) == 1
