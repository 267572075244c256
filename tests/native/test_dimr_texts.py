"""The calibration text: shipped prompts, files, the split, and the verifier's own answers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import tiny
from tiny_vocab import vocabulary

from via_sd_local.calibration.dimr.answers import answers, from_json, to_json
from via_sd_local.calibration.dimr.texts import KINDS, OWN, CalibrationPrompt, load_texts, split
from via_sd_local.runtime.context import Context

BENCH = Path(__file__).parents[2] / "bench" / "tasks.json"


def test_the_shipped_prompts_are_of_five_kinds_and_none_is_a_benchmark_task():
    prompts = load_texts()
    counts = Counter(prompt.kind for prompt in prompts)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 4
    texts = {prompt.text for prompt in prompts}
    assert len(texts) == len(prompts)
    assert not texts & {task["prompt"] for task in json.loads(BENCH.read_text(encoding="utf-8"))}


def test_the_split_holds_out_prompts_of_every_kind_and_is_always_the_same():
    prompts = load_texts()
    search, held_out = split(prompts)
    assert {prompt.kind for prompt in search} == {prompt.kind for prompt in held_out} == set(KINDS)
    assert not set(search) & set(held_out)
    assert set(search) | set(held_out) == set(prompts)
    assert len(held_out) < len(search) < 2 * len(held_out)
    assert split(prompts) == (search, held_out)


def test_a_kind_with_one_prompt_is_searched_only():
    one, two, three = CalibrationPrompt("a", "x"), CalibrationPrompt("b", "x"), CalibrationPrompt("c", "y")
    assert split([one, two, three]) == ([one, three], [two])


def test_too_few_prompts_to_hold_one_out_are_refused():
    with pytest.raises(ValueError, match=r"2 prompt\(s\) cannot be split"):
        split([CalibrationPrompt("a", "x"), CalibrationPrompt("b", "y")])


def test_a_text_file_holds_prompts_between_blank_lines(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("\ufefffirst,\nstill first\n \n\n\nsecond: é\n", encoding="utf-8")
    assert load_texts(path) == [CalibrationPrompt("first,\nstill first", OWN), CalibrationPrompt("second: é", OWN)]


def test_a_json_file_holds_texts_or_objects(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(["plain", {"prompt": "with kind", "kind": "poems"}, {"prompt": "without"}]))
    assert load_texts(path) == [
        CalibrationPrompt("plain", OWN),
        CalibrationPrompt("with kind", "poems"),
        CalibrationPrompt("without", OWN),
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.txt", b" \n\n ", "there is no text"),
        ("latin.txt", "é".encode("latin-1"), "not in UTF-8"),
        ("broken.json", b"[", "this is no JSON"),
        ("object.json", b"{}", "holds a list, not dict"),
        ("empty.json", b"[]", "there is no text"),
        ("number.json", b'["a", 3]', "item 1 is neither"),
        ("blank.json", b'[{"prompt": " "}]', "item 0 is neither"),
        ("kind.json", b'[{"prompt": "a", "kind": 3}]', "item 0 is neither"),
    ],
)
def test_unusable_files_are_refused_by_name(name, content, says, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: .*{says}"):
        load_texts(tmp_path / name)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"none\.txt: the text cannot be read: No such file"):
        load_texts(tmp_path / "none.txt")


#
# answers
#


def test_answers_are_the_full_models_greedy_choices(tiny_model, verifier, context):
    model = tiny_model(tiny.spec("llama"))
    seen = []
    made = answers(
        verifier(model),
        [CalibrationPrompt("the", "x"), CalibrationPrompt("the end", "y")],
        8,
        lambda *numbers: seen.append(numbers),
    )
    assert [answer.kind for answer in made] == ["x", "y"]
    assert seen == [(1, 2), (2, 2)]
    reference: Context = context(model)
    for text, answer in zip(("the", "the end"), made, strict=True):
        assert list(answer.prompt_tokens) == model.tokenize_prompt(text)
        assert 1 <= len(answer.tokens) <= 8
        reference.clear()
        logits = reference.decode([*answer.prompt_tokens, *answer.tokens[:-1]], 0, len(answer.tokens))
        assert logits.argmax(axis=1).tolist() == list(answer.tokens)


def test_an_answer_ends_with_its_end_token(tiny_model, verifier):
    model = tiny_model(tiny.spec("llama"))
    (free,) = answers(verifier(model), [CalibrationPrompt("the", "x")], 6)
    ending = vocabulary(320).with_eot(free.tokens[2])
    (cut,) = answers(verifier(tiny_model(tiny.spec("llama"), vocab=ending)), [CalibrationPrompt("the", "x")], 6)
    assert cut.tokens == free.tokens[:3]


def test_prompts_go_through_the_chat_template(tiny_model, verifier):
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    model = tiny_model(tiny.spec("llama"), overrides={"tokenizer.chat_template": template})
    (answer,) = answers(verifier(model), [CalibrationPrompt("the", "x")], 1)
    assert model.detokenize(answer.prompt_tokens).strip() == "<user>the"


def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers(tiny_model, verifier):
    model = tiny_model(tiny.spec("llama"))
    with pytest.raises(ValueError, match=r"the prompt 'the the .* has \d\d tokens and the context 16"):
        answers(verifier(model, n_ctx=16), [CalibrationPrompt("the " * 20, "x")], 4)
    with pytest.raises(ValueError, match="max_tokens is 0"):
        answers(verifier(model), [CalibrationPrompt("the", "x")], 0)


def test_answers_survive_their_json(tiny_model, verifier):
    made = answers(verifier(tiny_model(tiny.spec("llama"))), [CalibrationPrompt("the", "x")], 3)
    assert from_json(json.loads(json.dumps(to_json(made)))) == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "answers is None, not a list"),
        (3, "answers is 3, not a list"),
        ([3], r"answers\[0\] is 3, not an object"),
        ([{"kind": "x"}], r"answers\[0\]\.prompt is missing"),
        ([{"kind": "x", "prompt": ["a"], "answer": [1]}], r"answers\[0\]\.prompt\[0\] is 'a', not an integer"),
        ([{"kind": "x", "prompt": [], "answer": [1]}], r"answers\[0\]\.prompt is \[\], not one with entries"),
    ],
)
def test_other_json_is_no_answers(data, message):
    with pytest.raises(ValueError, match=message):
        from_json(data)
