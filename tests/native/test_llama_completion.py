"""What other programs of this kind got wrong with completions, one test for each fault, and its whole kind."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import dropin
import pytest
import tiny
import tiny_vocab
from dropin import EOS, PROMPT, Make, drafting, ids, joined, says, text_of, tokens_of
from fakes import FakeDrafter

from via_sd_local.binding import import_llama_cpp
from via_sd_local.errors import ModelError

LlamaPromptLookupDecoding = import_llama_cpp("llama_speculative").LlamaPromptLookupDecoding

make = dropin.make
tiny_path = dropin.tiny_path

N_PROMPT = 5  # tokens of PROMPT, BOS included


@pytest.mark.parametrize("drafted", [0, 5])
@pytest.mark.parametrize("answer", ["🙂", "日本語のテキスト", "naïve café", "👩‍👩‍👧 family", "mixed 🙂 and 日"])
def test_characters_of_several_tokens_come_whole(make: Make, answer: str, drafted: int) -> None:
    options = {"drafter": drafting(answer, N_PROMPT), "draft_tokens": drafted} if drafted else {}
    llm = make(**options)
    assert text_of(llm(**says(llm, answer))) == answer
    chunks = [chunk["choices"][0]["text"] for chunk in llm(**says(llm, answer), stream=True)]
    assert "".join(chunks) == answer
    assert all("�" not in chunk for chunk in chunks)
    assert [chunk for chunk in chunks if chunk] == list(answer)


@pytest.mark.parametrize("answer", [b"ok \xff\xfe!", b"cut \xe6\x97", b"\x80\x80", b"\xf0\x9f\x99"])
def test_bytes_that_are_no_text_are_left_out_alike_with_and_without_a_stream(make: Make, answer: bytes) -> None:
    llm = make()
    whole = text_of(llm(**says(llm, answer)))
    assert whole == answer.decode("utf-8", "ignore")
    assert joined(llm(**says(llm, answer), stream=True)) == whole


@pytest.mark.parametrize("drafted", [0, 1, 3, 8])
@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_never_one_token_more_than_asked_for(make: Make, limit: int, drafted: int) -> None:
    options = {"drafter": drafting("abcdefghijkl", N_PROMPT), "draft_tokens": drafted} if drafted else {}
    llm = make(**options)
    arguments = {**says(llm, "abcdefghijkl"), "max_tokens": limit}
    response = llm(**arguments)
    assert text_of(response) == "abcdefghijkl"[:limit]
    assert response["usage"]["completion_tokens"] == limit
    assert response["choices"][0]["finish_reason"] == "length"
    assert joined(llm(**arguments, stream=True)) == "abcdefghijkl"[:limit]


def test_an_unfinished_character_does_not_carry_an_answer_past_its_limit(make: Make) -> None:
    llm = make()
    response = llm(**{**says(llm, "日本"), "max_tokens": 4})
    assert text_of(response) == "日"
    assert response["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("n_ctx", [100, 256, 300])
@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_an_answer_may_fill_the_context(make: Make, n_ctx: int, drafter: str) -> None:
    llm = make(n_ctx=n_ctx, drafter=drafter, **({"draft_tokens": 5} if drafter == "lookup" else {}))
    response = llm("the sea and the sea and the sea", max_tokens=None, temperature=0, logit_bias={EOS: -1000})
    assert response["choices"][0]["finish_reason"] == "length"
    assert response["usage"]["total_tokens"] == llm.n_ctx()
    again = llm("the sea and the sea and the sea", max_tokens=None, temperature=0, logit_bias={EOS: -1000})
    assert text_of(again) == text_of(response)


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(make: Make) -> None:
    llm = make(n_ctx=256)
    for stream in (False, True):
        with pytest.raises(ValueError, match=r"Requested tokens \(300\) exceed context window of 256"):
            llm([5] * 300, stream=stream)
    with pytest.raises(ValueError, match=r"Requested tokens \(256\) exceed context window of 256"):
        llm([5] * 256)
    assert llm([5] * 255, max_tokens=9)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("options", [{}, {"logits_all": True}, {"draft_model": LlamaPromptLookupDecoding(2, 3)}])
def test_scores_take_memory_for_what_is_evaluated_not_for_the_context(
    make: Make, smollm2_path: Path, options: dict[str, Any]
) -> None:
    """Fault A3: for all 8192 positions they would be 1.5 GiB."""
    llm = make(smollm2_path, n_ctx=8192, n_batch=64, **options)
    row = 4 * llm.n_vocab()
    tracemalloc.start()
    try:
        n = llm("One, two, three, four, five, six, seven,", max_tokens=8, temperature=0)["usage"]["total_tokens"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n > 20
    rows = n if "logits_all" in options else 1
    assert rows * row <= llm.scores.nbytes <= max(64, rows) * row
    if "logits_all" not in options:
        assert llm.scores.nbytes == row
    assert peak < 150 * row
    assert llm.scores[:n].any(axis=1).sum() >= rows - 1  # the last token may not be evaluated


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_a_bos(make: Make, prompt: Any) -> None:
    llm = make()
    response = llm(prompt, max_tokens=3, temperature=0)
    assert response["usage"]["prompt_tokens"] == 1
    assert response["usage"]["completion_tokens"] == 3
    assert text_of(response) == text_of(llm([1], max_tokens=3, temperature=0))


def test_an_empty_prompt_of_a_model_without_bos_is_refused(make: Make, tmp_path: Path) -> None:
    path = tiny.write(
        tmp_path / "no-bos.gguf",
        dropin.LLAMA,
        overrides={
            "tokenizer.ggml.bos_token_id": None,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.merges": ["a b"],
        },
    )
    llm = make(path)
    if llm.token_bos() >= 0:
        llm._model.token_bos = lambda: -1
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm("")


@pytest.mark.parametrize("prompt", [PROMPT, f"<s>{PROMPT}", f"<s><s>{PROMPT}"])
def test_a_prompt_begins_with_exactly_one_bos(make: Make, prompt: str) -> None:
    llm = make()
    llm(prompt, max_tokens=1, temperature=0)
    held = ids(llm)
    assert held[0] == 1
    assert 1 not in held[1:]


def test_a_chat_begins_with_exactly_one_bos_whether_its_template_writes_one_or_not(make: Make, tmp_path: Path) -> None:
    for number, template in enumerate((dropin.TEMPLATE, "{{ bos_token }}" + dropin.TEMPLATE)):
        path = tiny.write(tmp_path / f"{number}.gguf", dropin.LLAMA, overrides={"tokenizer.chat_template": template})
        llm = make(path)
        llm.create_chat_completion([{"role": "user", "content": "hi"}], max_tokens=1, temperature=0)
        assert (ids(llm)[0], ids(llm).count(1)) == (1, 1)


def test_every_end_token_ends_the_text(make: Make, tmp_path: Path) -> None:
    vocab = tiny_vocab.vocabulary(320).with_eot(300)
    path = tiny.write(tmp_path / "two-ends.gguf", dropin.LLAMA, vocab=vocab)
    llm = make(path)
    for end in (EOS, 300):
        response = llm(**says(llm, [*tokens_of("ab"), end, *tokens_of("cd")]))
        assert text_of(response) == "ab"
        assert (response["usage"]["completion_tokens"], response["choices"][0]["finish_reason"]) == (2, "stop")


def test_a_model_that_cannot_be_rolled_back_answers_again_and_again(make: Make, tmp_path: Path) -> None:
    llm = make(tiny.write(tmp_path / "mamba.gguf", tiny.spec("mamba")))
    first = text_of(llm(PROMPT, max_tokens=8, temperature=0))
    assert text_of(llm("another", max_tokens=8, temperature=0)) != first
    assert text_of(llm(PROMPT, max_tokens=8, temperature=0)) == first
    for chunk in llm(PROMPT, max_tokens=8, temperature=0, stream=True):
        assert chunk
        break
    assert text_of(llm(PROMPT, max_tokens=8, temperature=0)) == first


def test_a_stream_ends_with_its_usage_on_request(make: Make) -> None:
    llm = make()
    plain = list(llm(**says(llm, "abc"), stream=True))
    assert all("usage" not in chunk for chunk in plain)
    chunks = list(llm(**says(llm, "abc"), stream=True, stream_options={"include_usage": True}))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (N_PROMPT, 3, N_PROMPT + 3)
    assert usage["via_sd"] == llm.last_stats
    with pytest.raises(ValueError, match="only for stream=True"):
        llm(PROMPT, stream_options={"include_usage": True})
    with pytest.raises(ValueError, match="'usage'"):
        llm(PROMPT, stream=True, stream_options={"usage": True})


def test_a_chat_stream_ends_with_its_usage_on_request(make: Make) -> None:
    llm = make()
    chunks = list(
        llm.create_chat_completion(
            [{"role": "user", "content": "hi"}],
            max_tokens=4,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1]["object"] == "chat.completion.chunk"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == llm.last_stats["completion_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


GRAMMARS = ["root ::= undefined", "not a grammar", "", 'start ::= "a"']


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_does_not_parse_is_an_error_at_the_call(make: Make, grammar: str, stream: bool) -> None:
    llm = make()
    made = import_llama_cpp("llama").LlamaGrammar.from_string(grammar)
    with pytest.raises(ValueError, match="the grammar does not parse"):
        llm(PROMPT, grammar=made, stream=stream)
    assert llm.n_tokens == 0
    with pytest.raises(TypeError, match="must be a LlamaGrammar"):
        llm(PROMPT, grammar=3)


@pytest.mark.parametrize("mode", ["sd", "exact", "tiered"])
def test_drafted_tokens_obey_the_grammar(make: Make, mode: str) -> None:
    grammar = 'root ::= ("a" | "b" | "c")+ "."'
    plain = make()
    expected = text_of(plain(PROMPT, grammar=grammar, max_tokens=40, temperature=0))
    wild = FakeDrafter(lambda text: tokens_of("z")[0] if len(text) % 3 else tokens_of("a")[0])
    masks = {} if mode == "sd" else {"mask": "2-3"}
    llm = make(drafter=wild, draft_tokens=4, mode=mode, **masks)
    text = text_of(llm(PROMPT, grammar=grammar, max_tokens=40, temperature=0))
    assert llm.last_stats["drafted"] > 0
    assert set(text) <= set("abc.")
    if mode != "tiered":
        assert text == expected


def test_a_json_schema_is_enforced_in_chats(make: Make) -> None:
    llm = make(drafter="lookup", draft_tokens=3)
    schema = {"type": "object", "properties": {"n": {"enum": ["x", "y"]}}, "required": ["n"]}
    forms = [
        {"type": "json_object", "schema": schema},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    ]
    for form in forms:
        answer = llm.create_chat_completion(
            [{"role": "user", "content": "hi"}], response_format=form, temperature=0, max_tokens=100
        )
        content = answer["choices"][0]["message"]["content"]
        assert json.loads(content)["n"] in ("x", "y")
    for wrong in ({"type": "xml"}, {"type": "json_schema"}):
        with pytest.raises(ValueError, match="response_format"):
            llm.create_chat_completion([{"role": "user", "content": "hi"}], response_format=wrong)


@pytest.mark.parametrize("has_own_handler", [False, True])
def test_a_json_schema_that_a_grammar_cannot_enforce_is_refused_in_chats(make: Make, has_own_handler: bool) -> None:
    handler = (lambda **_arguments: pytest.fail("called")) if has_own_handler else None
    llm = make(chat_handler=handler)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}}
    for form in (
        {"type": "json_object", "schema": schema},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    ):
        with pytest.raises(ValueError, match=r"response_format: .*multipleOf"):
            llm.create_chat_completion([{"role": "user", "content": "hi"}], response_format=form)


def test_every_process_has_a_random_seed_of_its_own(tiny_path: Path) -> None:
    code = (
        "import sys; from via_sd_local import Llama; llm = Llama(sys.argv[1], n_ctx=64, n_threads=1, verbose=False);"
        "print(repr(llm('the', max_tokens=24, temperature=2.0, top_k=0, top_p=1.0, min_p=0.0)['choices'][0]['text']))"
    )
    command = [sys.executable, "-c", code, str(tiny_path)]
    one, other = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in "12")
    assert one != other
    assert len(one) > 10


def test_a_random_seed_is_random_and_a_seed_is_reproducible(make: Make) -> None:
    def texts(seed: int | None = None, **options: Any) -> list[str]:
        llm = make(**options)
        return [
            text_of(llm(PROMPT, max_tokens=24, temperature=2.0, top_k=0, min_p=0.0, top_p=1.0, seed=seed)) for _ in "12"
        ]

    for options in ({}, {"seed": -1}, {"seed": None}, {"seed": 0xFFFFFFFF}):
        one, other = texts(**options), texts(**options)
        assert len({*one, *other}) == 4
    one, other = texts(seed=None), texts()
    assert set(one).isdisjoint(other)
    for number in (0, 5):
        llm, twin = make(seed=number), make(seed=number)
        drawn = [
            [text_of(each(PROMPT, max_tokens=24, temperature=2.0, top_k=0, min_p=0.0)) for _ in "12"]
            for each in (llm, twin)
        ]
        assert drawn[0] == drawn[1]
        assert drawn[0][0] != drawn[0][1]
    first, second = texts(7)
    assert first == second == texts(7)[0]


def test_long_prompts_work_with_a_draft_model_of_llama_cpp_python(make: Make) -> None:
    speculative = import_llama_cpp("llama_speculative")

    class Guess(speculative.LlamaDraftModel):  # type: ignore[misc,name-defined]
        def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
            return (input_ids[-3:] + 1) % 300

    prompt = "the sea and the land " * 10
    expected = text_of(make(n_batch=32)(prompt, max_tokens=20, temperature=0))
    for drafter in (Guess(), speculative.LlamaPromptLookupDecoding(num_pred_tokens=4)):
        llm = make(draft_model=drafter, n_batch=32, draft_tokens=4)
        response = llm(prompt, max_tokens=20, temperature=0)
        assert response["usage"]["prompt_tokens"] > 32
        assert response["usage"]["via_sd"]["mode"] == "sd"
        assert text_of(response) == expected
        assert llm.draft_model is drafter
        if isinstance(drafter, Guess):
            assert response["usage"]["via_sd"]["drafted"] > 0


def test_closing_a_stream_early_leaves_a_reusable_object(make: Make) -> None:
    for options in ({}, {"drafter": "lookup", "draft_tokens": 5}):
        llm = make(**options)
        prompt = "the sea and the sea and the"
        expected = text_of(make()(prompt, max_tokens=20, temperature=0))
        for stop_after in (1, 2, 5):
            for number, _ in enumerate(llm(prompt, max_tokens=20, temperature=0, stream=True), 1):
                if number == stop_after:
                    break
            assert text_of(llm(prompt, max_tokens=20, temperature=0)) == expected
        stream = llm("something else", max_tokens=20, temperature=0, stream=True)
        next(stream)
        stream.close()
        assert text_of(llm(prompt, max_tokens=20, temperature=0)) == expected


def test_an_answer_is_echoed_after_its_prompt_in_streams_too(make: Make) -> None:
    llm = make()
    assert text_of(llm(**says(llm, "abc"), echo=True)) == PROMPT + "abc"
    assert joined(llm(**says(llm, "abc"), echo=True, stream=True)) == PROMPT + "abc"
    tokens = llm.tokenize(PROMPT.encode())
    echoed = text_of(llm(**{**says(llm, "abc"), "prompt": tokens}, echo=True))
    assert echoed == llm.detokenize(tokens).decode() + "abc"


def test_a_suffix_is_appended_where_the_model_has_no_marks_for_infilling(make: Make) -> None:
    llm = make()
    assert text_of(llm(**says(llm, "abc"), suffix=" the end")) == "abc the end"
    assert joined(llm(**says(llm, "abc"), suffix=" the end", stream=True)) == "abc the end"
    with pytest.raises(TypeError, match="suffix"):
        llm(PROMPT, suffix=3)


@pytest.mark.parametrize("spm", [False, True])
def test_a_suffix_goes_into_the_prompt_where_the_model_has_marks_for_it(make: Make, tmp_path: Path, spm: bool) -> None:
    ids_of = {"fim_pre_token_id": 310, "fim_suf_token_id": 311, "fim_mid_token_id": 312}
    overrides: dict[str, Any] = {f"tokenizer.ggml.{name}": token for name, token in ids_of.items()}
    llm = make(tiny.write(tmp_path / "infill.gguf", dropin.LLAMA, overrides=overrides), spm_infill=spm)
    llm("ab", suffix="cd", max_tokens=0)
    llm("ab", suffix="cd", max_tokens=1, temperature=0)
    before = [310, *llm.tokenize(b"ab", add_bos=False)]
    behind = [311, *llm.tokenize("☺cd".encode(), add_bos=False)[2:]]
    order = [*behind, *before] if spm else [*before, *behind]
    assert ids(llm)[: len(order) + 2] == [1, *order, 312]


def test_arguments_that_nothing_comes_of_are_said_to_be_so(make: Make) -> None:
    llm = make()
    with pytest.warns(RuntimeWarning, match="tfs_z has no effect"):
        llm(PROMPT, max_tokens=1, tfs_z=0.9)


def test_a_model_without_text_says_so(make: Make) -> None:
    llm = make()
    llm._runner = None
    with pytest.raises(ModelError, match="does not generate text"):
        llm(PROMPT)


def test_a_bias_and_a_processor_hold_together(make: Make) -> None:
    llm = make()
    arguments = says(llm, "abc")
    best = tokens_of("a")[0]
    other = tokens_of("z")[0]
    response = llm(**{**arguments, "max_tokens": 1}, logit_bias={best: -2e9, other: 2e9})
    assert text_of(response) == "z"


def test_stopping_criteria_see_the_text_so_far_and_the_logits_of_the_next_token(make: Make) -> None:
    llm = make(drafter=drafting("abcdef", N_PROMPT), draft_tokens=3)
    seen: list[tuple[list[int], int]] = []

    def criterion(held: Any, logits: Any) -> bool:
        seen.append((held.tolist(), len(logits)))
        return len(held) == N_PROMPT + 4

    response = llm(**says(llm, "abcdef"), stopping_criteria=[criterion])
    assert text_of(response) == "abcd"
    assert response["choices"][0]["finish_reason"] == "stop"
    prompt = llm.tokenize(PROMPT.encode())
    assert [held for held, _ in seen] == [prompt + tokens_of("abcd"[:n]) for n in range(5)]
    assert {n for _, n in seen} == {320}
