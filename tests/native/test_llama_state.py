"""What the drop-in shows of its context, and what can be done to it from outside, stays true."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dropin
import numpy as np
import pytest
import tiny
from dropin import PROMPT, Make, ids, says, text_of

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp
from via_sd_local.binding import llama as native
from via_sd_local.errors import NativeError

make = dropin.make
tiny_path = dropin.tiny_path

GREEDY: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
TOKENS = [1, 270, 280, 290, 300]


def greedy_text(make: Make, prompt: Any = PROMPT, **options: Any) -> str:
    return text_of(make(**options)(prompt, **GREEDY))


def test_evaluating_and_sampling_by_hand_gives_the_text_of_a_completion(make: Make) -> None:
    llm = make()
    expected = [*llm.tokenize(PROMPT.encode()), *list_tokens(llm, PROMPT)]
    llm.reset()
    llm.eval(llm.tokenize(PROMPT.encode()))
    while len(ids(llm)) < len(expected):
        llm.eval([llm.sample(temp=0.0)])
    assert ids(llm) == expected


def list_tokens(llm: Llama, prompt: str, n: int = 12) -> list[int]:
    """The first tokens of the greedy answer."""
    tokens: list[int] = []
    for token in llm.generate(llm.tokenize(prompt.encode()), temp=0.0):
        tokens.append(token)
        if len(tokens) == n:
            break
    return tokens


def test_completions_go_on_rightly_after_evaluations_and_the_other_way_round(make: Make) -> None:
    llm, expected = make(drafter="lookup", draft_tokens=3), greedy_text(make)
    llm.eval(llm.tokenize(b"something else"))
    assert text_of(llm(PROMPT, **GREEDY)) == expected
    n = llm.n_tokens
    llm.eval([5, 6])
    assert llm.n_tokens == n + 2
    assert text_of(llm(PROMPT, **GREEDY)) == expected
    llm.n_tokens = 3  # the original's way to rewind
    llm.eval([7])
    assert len(ids(llm)) == 4
    assert text_of(llm(PROMPT, **GREEDY)) == expected


def test_a_completion_of_no_tokens_does_not_relabel_the_cells_of_another_text(make: Make) -> None:
    """What the cache holds and the published tokens go together, also where nothing was decoded for a prompt."""
    llm, other = make(), [1, *range(300, 320)]
    llm(other, max_tokens=5, temperature=0)
    llm(TOKENS, max_tokens=0)
    assert text_of(llm(TOKENS, **GREEDY)) == greedy_text(make, TOKENS)


def test_positions_that_others_decoded_beyond_n_tokens_are_removed(make: Make) -> None:
    llm = make()
    llm(TOKENS, max_tokens=3, temperature=0)
    held = ids(llm)
    foreign = native.llama_batch_get_one((native.llama_token * 1)(270), 1)
    assert native.llama_decode(llm.ctx, foreign) == 0
    assert text_of(llm([*held, 310], **GREEDY)) == greedy_text(make, [*held, 310])


def test_what_others_decode_into_the_context_is_used_as_it_is(make: Make) -> None:
    llm = make()
    llm.reset()
    llm.eval(TOKENS[:2])
    batch = native.llama_batch_init(8, 0, 1)
    for i, token in enumerate(TOKENS[2:]):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, 2 + i, 1, 0
        batch.seq_id[i][0] = 0
    batch.n_tokens = 3
    assert native.llama_decode(llm.ctx, batch) == 0
    native.llama_batch_free(batch)
    llm.n_tokens = 5
    shown = llm.input_ids[:5].tolist()  # of those three it holds something else
    expected = greedy_text(make, [*TOKENS, 310])
    assert text_of(llm([*shown, 310], **GREEDY)) == expected
    assert llm.last_stats["reused_tokens"] == 5


def test_the_context_is_reused_across_calls_and_the_statistics_show_it(make: Make, tiny_path: Path) -> None:
    llm = make(draft_model_path=str(tiny_path), draft_tokens=3)
    first = llm.tokenize(b"the first turn of a chat that goes on and on")
    llm(first, **GREEDY)
    stats = llm.last_stats
    assert (stats["reused_tokens"], stats["prompt_tokens"]) == (0, len(first))
    assert stats["draft_prefill_tokens"] >= len(first)
    answer = llm.input_ids[: len(first) + stats["completion_tokens"]].tolist()
    second = [*answer, *llm.tokenize(b"the second", add_bos=False)]
    usage = llm(second, **GREEDY)["usage"]
    assert usage["via_sd"]["reused_tokens"] >= len(answer) - 1
    assert usage["via_sd"]["draft_prefill_tokens"] <= len(second) - len(answer) + 5


@pytest.mark.parametrize("mode", ["plain", "sd", "exact", "tiered"])
def test_a_saved_state_is_the_context_that_was(make: Make, mode: str) -> None:
    options: dict[str, Any] = (
        {"mode": mode} if mode == "plain" else {"mode": mode, "drafter": "lookup", "draft_tokens": 4}
    )
    if mode in ("exact", "tiered"):
        options["mask"] = "2-3"
    llm = make(**options)
    prompt = "the sea and the sea and the sea and the"
    expected = text_of(make()(prompt + " land", **GREEDY)) if mode != "tiered" else None
    llm(prompt, **GREEDY)
    state = llm.save_state()
    held = ids(llm)
    llm("something quite different", **GREEDY)
    llm.load_state(state)
    assert ids(llm) == held[: llm.n_tokens]
    text = text_of(llm(prompt + " land", **GREEDY))
    assert llm.last_stats["reused_tokens"] >= len(llm.tokenize(prompt.encode())) - 1
    assert expected is None or text == expected
    other = make(**options)
    other.load_state(state)
    assert ids(other) == ids(other)[: len(held)]
    assert text_of(other(prompt + " land", **GREEDY)) == text or mode == "tiered"


def test_a_state_may_be_cut_before_it_is_loaded(make: Make) -> None:
    llm = make()
    llm(PROMPT, **GREEDY)
    state, held = llm.save_state(), ids(llm)
    state.n_tokens = 4
    llm.load_state(state)
    assert ids(llm) == held[:4]
    llm.eval([310])
    assert llm.sample(temp=0.0) == next(make().generate([*held[:4], 310], temp=0.0))


def test_what_a_loaded_state_holds_too_much_and_cannot_forget_is_cleared_away(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make()
    llm(PROMPT, **GREEDY)
    state, held = llm.save_state(), ids(llm)
    state.n_tokens = 4
    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(llm._active_runner.engine.verifier.context, "remove", calls.append)
        llm.load_state(state)
    assert calls == [4]
    llm.eval([310])  # at position 4, which the state's own token would still hold
    assert ids(llm) == [*held[:4], 310]
    expected = make(logits_all=True)
    expected.eval([*held[:4], 310])
    assert np.abs(llm.scores[-1] - expected.scores[4]).max() < 1e-2


def test_logits_of_what_was_there_before_do_not_outlive_a_loaded_state(make: Make) -> None:
    other, llm = make(), make(logits_all=True)
    other.eval(TOKENS)
    llm.eval([271, 281, 291, 301, 311])
    llm.load_state(other.save_state())
    llm([*TOKENS, 310], **GREEDY)
    reference = make(logits_all=True)
    reference.eval([*TOKENS, 310])
    assert np.abs(llm.scores[:6] - reference.scores[:6]).max() < 1e-2


def test_a_state_of_another_size_is_refused_and_nothing_of_it_stays(make: Make) -> None:
    large, small = make(n_ctx=1024), make(n_ctx=256)
    large([270] * 400, max_tokens=1)
    state = large.save_state()
    with pytest.raises(RuntimeError, match="does not fit"):
        small.load_state(state)
    assert small.n_tokens == 0
    assert text_of(small(PROMPT, **GREEDY)) == greedy_text(make)


def test_a_cache_brings_back_prompts_that_the_context_has_lost(make: Make) -> None:
    llm = make()
    llm.set_cache(import_llama_cpp("llama_cache").LlamaRAMCache())
    prompt = "a long prompt that is worth keeping, since it takes its time"
    first = text_of(llm(prompt, **GREEDY))
    llm("something quite different", **GREEDY)
    assert text_of(llm(prompt, **GREEDY)) == first
    assert llm.last_stats["reused_tokens"] == llm.last_stats["prompt_tokens"] - 1
    assert len(llm.cache.cache_state) == 2
    list(llm("a third one", **GREEDY, stream=True))
    assert len(llm.cache.cache_state) == 3


def test_all_logits_are_kept_where_they_are_asked_for(make: Make) -> None:
    llm, one_by_one = make(logits_all=True), make()
    llm.eval(TOKENS)
    for i, token in enumerate(TOKENS):
        one_by_one.eval([token])
        assert np.abs(llm.scores[i] - one_by_one.scores[-1]).max() < 1e-2
    assert llm._scores.shape == (5, 320)
    assert len(llm.eval_logits) == 5
    assert len(one_by_one.eval_logits) == 1
    assert list(llm.eval_tokens) == TOKENS


def test_all_logits_are_kept_of_completions_too(make: Make) -> None:
    llm = make(logits_all=True, drafter="lookup", draft_tokens=3)
    llm(PROMPT, **GREEDY)
    held = ids(llm)
    reference = make(logits_all=True)
    reference.eval(held)
    assert np.abs(llm.scores[: len(held) - 1] - reference.scores[: len(held) - 1]).max() < 1e-2
    llm(PROMPT + " again", **GREEDY)
    again = ids(llm)
    reference.reset()
    reference.eval(again)
    assert np.abs(llm.scores[: len(again) - 1] - reference.scores[: len(again) - 1]).max() < 1e-2


def test_generate_gives_end_tokens_and_goes_on_with_what_is_sent(make: Make) -> None:
    llm = make()
    processor = says(llm, "ab")["logits_processor"]
    tokens = llm.tokenize(PROMPT.encode())
    generation = llm.generate(tokens, temp=0.0, logits_processor=processor)
    assert [next(generation) for _ in range(4)] == [*dropin.tokens_of("ab"), 2, 2]
    generation.close()
    plain = llm.generate(tokens, temp=0.0)
    first = next(plain)
    sent = [271, 272]
    then = plain.send(sent)
    expected = next(make().generate([*tokens, first, *sent], temp=0.0))
    assert then == expected
    plain.close()
    assert len(list(llm.generate(tokens, temp=0.0))) == llm.n_ctx() - len(tokens)


@pytest.mark.parametrize("options", [{}, {"drafter": "self", "draft_mask": "3", "draft_tokens": 4}], ids=str)
def test_wherever_generate_is_left_the_context_holds_all_but_the_last_token(
    make: Make, options: dict[str, Any]
) -> None:
    """With drafts, it is left at the beginning, in the midst and at the end of a block."""
    llm = make(**options)
    tokens = llm.tokenize(PROMPT.encode())
    expected: list[int] = []
    for n in range(1, 9):
        generation = llm.generate(tokens, temp=0.0)
        text = [*tokens, *(next(generation) for _ in range(n))]
        assert ids(llm) == text[:-1]  # held
        generation.close()
        assert ids(llm) == text[:-1]
        assert text[: len(expected)] == expected
        expected = text
    if options:
        assert llm.last_stats["drafted"] > 0
    assert next(llm.generate([expected[-1]], temp=0.0, reset=False)) == next(make().generate(expected, temp=0.0))


def test_generate_goes_on_from_the_context_without_reset(make: Make) -> None:
    llm = make()
    llm.eval(TOKENS)
    assert next(llm.generate([310], temp=0.0, reset=False)) == next(make().generate([*TOKENS, 310], temp=0.0))


def test_generate_stops_by_criteria_before_the_token(make: Make) -> None:
    llm = make()
    criteria = [lambda held, _logits: len(held) >= 8]
    assert len(list(llm.generate(TOKENS, temp=0.0, stopping_criteria=criteria))) == 3


def test_embeddings_and_texts_come_from_one_object(make: Make) -> None:
    llm = make(embedding=True, pooling_type=native.LLAMA_POOLING_TYPE_MEAN)
    text = text_of(llm(PROMPT, **GREEDY))
    assert text == greedy_text(make)
    one = llm.embed("the sea")
    assert llm.n_tokens == 0
    assert text_of(llm(PROMPT, **GREEDY)) == text
    response = llm.create_embedding(["the sea", "the land"])
    assert np.allclose(response["data"][0]["embedding"], one, atol=1e-4)
    assert len(response["data"]) == 2
    with pytest.raises(RuntimeError, match="embedding=True"):
        make().embed("the sea")


def test_a_pickled_object_is_loaded_again_with_all_its_arguments(make: Make, tiny_path: Path) -> None:
    llm = make(
        drafter="lookup",
        mode="exact",
        mask="2-3",
        draft_tokens=3,
        seed=5,
        logits_all=True,
        n_batch=64,
        last_n_tokens_size=9,
    )
    twin = pickle.loads(pickle.dumps(llm))
    try:
        assert twin.__getstate__() == llm.__getstate__()
        assert text_of(twin(PROMPT, max_tokens=12, temperature=1.0)) == text_of(
            llm(PROMPT, max_tokens=12, temperature=1.0)
        )
        assert twin.last_stats["mode"] == "exact"
    finally:
        twin.close()


def test_a_closed_object_says_so(make: Make) -> None:
    llm = make()
    stream = llm(PROMPT, **GREEDY, stream=True)
    next(stream)
    stream.close()
    llm.close()
    llm.close()
    with pytest.raises(ValueError, match="has been closed"):
        llm(PROMPT, **GREEDY)
    with pytest.raises(ValueError, match="has been closed"):
        llm.eval([1])


def test_tokens_that_do_not_fit_or_exist_are_refused_by_eval(make: Make) -> None:
    llm = make(n_ctx=256)
    with pytest.raises(ValueError, match="exceed the context of 256"):
        llm.eval([5] * 257)
    with pytest.raises(ValueError, match="token 320 is not in the vocabulary"):
        llm.eval([320])
    llm.eval([])
    assert llm.n_tokens == 0


@pytest.mark.parametrize("error", [NativeError, KeyboardInterrupt])
def test_a_pass_that_fails_or_is_interrupted_leaves_a_context_that_is_known(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    llm = make()
    expected = text_of(llm(PROMPT, **GREEDY))
    context = llm._active_runner.engine.verifier.context
    decode = context.decode
    calls = 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error
        return decode(*args)

    monkeypatch.setattr(context, "decode", failing)
    prompt = "something else"
    with pytest.raises(error):
        llm(prompt, **GREEDY)
    monkeypatch.undo()
    # the prompt and the first token were decoded; after a failure of llama.cpp nothing of it is relied upon
    assert llm.n_tokens == (0 if error is NativeError else len(llm.tokenize(prompt.encode())) + 1)
    assert text_of(llm(PROMPT, **GREEDY)) == expected
    assert text_of(llm(prompt, **GREEDY)) == greedy_text(make, prompt)


def test_a_tokenizer_that_the_user_brings_makes_the_texts(make: Make) -> None:
    tokenizer_class = import_llama_cpp("llama_tokenizer").BaseLlamaTokenizer

    class Shouting(tokenizer_class):  # type: ignore[misc,valid-type]
        def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
            return dropin.tokens_of(text)

        def detokenize(self, tokens: Any, prev_tokens: Any = None, special: bool = False) -> bytes:
            # as the wrapper of the transformers library: decoded texts, with U+FFFD for parts of characters
            def text_of(some: list[int]) -> str:
                return bytes(token - 3 for token in some if 3 <= token < 259).decode("utf-8", "replace").upper()

            before = text_of(list(prev_tokens or []))
            return text_of([*(prev_tokens or []), *tokens])[len(before) :].encode()

    llm = make(tokenizer=Shouting())
    answer = "stop, 日本 and 🙂 too"
    arguments = {**says(llm, answer), "logits_processor": [dropin.Says(len(PROMPT) + 1, dropin.tokens_of(answer))]}
    assert text_of(llm(**arguments)) == answer.upper()
    assert dropin.joined(llm(**arguments, stream=True)) == answer.upper()


def test_a_sliding_window_cache_without_room_to_go_back_is_never_cut(make: Make, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "swa.gguf", tiny.spec("gemma3", sliding_window=16))
    long, llm = (
        [1, *[270 + i % 40 for i in range(400)]],
        make(path, swa_full=False, n_ctx=1024, n_batch=32, n_ubatch=32),
    )
    llm(long, **GREEDY)
    fork = [*long[:100], 300, 301]
    expected = text_of(make(path, n_ctx=1024, n_batch=32, n_ubatch=32)(fork, **GREEDY))
    assert text_of(llm(fork, **GREEDY)) == expected
    with pytest.raises(ValueError, match="swa_full is False"):
        make(path, swa_full=False, drafter="lookup")
