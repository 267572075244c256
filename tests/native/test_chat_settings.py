"""`/set`, `/show`, `/read` and `/copy`."""

from __future__ import annotations

import re
from pathlib import Path

import conversations
import pytest
from conversations import TEMPLATE, Recording, Talking, ask, converse

from via_sd_local.chat.dialogue import Dialogue
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.recommended import ChosenSampling, Recommendation

talking, tiny_path = conversations.talking, conversations.tiny_path


def parameters(display: Recording) -> list[str]:
    return [note for note in display.of("note") if "max-tokens" in note and "--" not in note]


def test_set_changes_the_sampling_of_the_next_answer(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "/set temperature 0.7", "/set top-k 40", "/set seed 3", "/set", "the sea")
    assert dialogue.sampling.params == SamplingParams(temperature=0.7, top_k=40, seed=3)
    shown = "(temperature 0.7, top-k 40, seed 3, max-tokens 5)"
    assert parameters(display) == ["(temperature 0.7, max-tokens 5)", f"{shown[:26]}, max-tokens 5)", shown, shown]
    other = talking()
    other.sampling = ChosenSampling({"temperature": 0.7, "top_k": 40, "seed": 3})
    assert display.of("answer") == [ask(other, "the sea")]


def test_default_takes_a_value_back(talking: Talking) -> None:
    dialogue = talking()
    recommendation = Recommendation(SamplingParams(temperature=0.6, top_p=0.9), "its makers")
    dialogue.sampling = ChosenSampling({"temperature": 0.0}, recommendation)
    converse(dialogue, "/set temperature default", "/set top_p 0.5")
    assert dialogue.sampling.params == SamplingParams(temperature=0.6, top_p=0.5)
    converse(dialogue, "/set top_p default", "/set max_tokens 7", "the sea")
    assert dialogue.sampling.params == recommendation.params
    assert len(dialogue.pieces) == 7
    converse(dialogue, "/set num_predict -1")
    assert dialogue.max_tokens is None


def test_set_understands_other_programs(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "/set parameter temp 0.5", "/set mirostat 2", '/set system "be short"')
    assert display.of("error") == []
    assert dialogue.sampling.params == SamplingParams(temperature=0.5, mirostat_mode=2)
    assert dialogue.conversation.system == "be short"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("/set temperatur 1", "there is no parameter temperatur; /set knows temperature, "),
        ("/set top-p 3", "top-p is 3.0; it must be a number from 0 to 1"),
        ("/set top_k many", "top_k is 'many'; it must be a whole number, or default"),
        ("/set seed 1.5", "seed is '1.5'; it must be a whole number, or default"),
        ("/set min_p", "/set min_p needs a value: a number, or default"),
        ("/set num_ctx 8192", "num_ctx cannot change while a model is loaded; start the chat with --n-ctx N"),
        ("/set max-tokens 0", "max-tokens is 0; it must be a number of tokens, or -1"),
        ("/show weights", "/show has no part 'weights'; it has system, template"),
    ],
)
def test_what_cannot_be_set_is_refused_by_the_name_that_was_typed(command: str, message: str, talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, command)
    assert display.of("error")[0].startswith(message)
    assert (dialogue.sampling, dialogue.max_tokens) == (ChosenSampling(), 5)


def shown(dialogue: Dialogue, *messages: str) -> dict[str, str]:
    _, display = converse(dialogue, *messages, "/show")
    lines = re.sub(r"\n  +", " ", display.of("show")[-1]).splitlines()  # one line a row
    return dict(line.split(maxsplit=1) for line in lines)


def test_show_tells_what_is_in_force(talking: Talking, tiny_path: Path) -> None:
    dialogue = talking("be short")
    rows = shown(dialogue, "the sea")
    assert rows["model"].startswith("tiny.gguf (llama ")
    assert rows["file"] == str(tiny_path)
    assert (rows["mode"], rows["answers"], rows["system"], rows["messages"]) == (
        *("plain", "at most 5 tokens", "be short", "1 exchange"),
    )
    used = dialogue.session.engine.verifier.n_kv
    assert rows["context"] == f"{used} of 256 tokens; the model was trained for {dialogue.session.model.n_ctx_train}"
    assert rows["sampling"] == "temperature 0; nothing is recommended for this model"
    assert shown(dialogue, "/draft lookup")["mode"] == "sd, drafts from lookup"
    _, display = converse(dialogue, "/show system", "/show template")
    assert display.of("show") == ["be short", TEMPLATE]


def test_show_tells_whose_sampling_it_is(talking: Talking) -> None:
    dialogue = talking()
    dialogue.sampling = ChosenSampling({}, Recommendation(SamplingParams(temperature=0.6, top_p=0.9), "its makers"))
    assert shown(dialogue)["sampling"] == "temperature 0.6, top-p 0.9; as recommended by its makers"
    rows = shown(dialogue, "/set top_p 0.5")
    assert rows["sampling"] == "temperature 0.6, top-p 0.5; as recommended by its makers, but for top-p"
    rows = shown(dialogue, "/set temperature 0")
    assert rows["sampling"] == "temperature 0; greedy, so without the recommendation of its makers"


def test_a_file_goes_with_the_next_message_that_is_answered(talking: Talking, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the sea is blue")
    (tmp_path / "bad.txt").write_text("forbidden")
    dialogue = talking()
    converse(dialogue, f"/read {tmp_path / 'notes.txt'}", "forbidden", "what colour?", "and why?")
    questions = [turn["content"] for turn in dialogue.conversation.turns[::2]]
    assert questions == ["notes.txt:\n```\nthe sea is blue\n```\n\nwhat colour?", "and why?"]
    _, display = converse(dialogue, "/read", f"/read {tmp_path / 'bad.txt'}", "/read none", "the sea")
    assert display.of("error") == ["/read needs a file name: /read FILE; /read none takes files back"]
    assert "(bad.txt, " in display.of("note")[1]
    assert dialogue.conversation.turns[-2]["content"] == "the sea"


def test_copy_sends_the_last_answer_to_the_clipboard(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr(Recording, "copy", lambda _self, text: copied.append(text))
    dialogue = talking()
    _, display = converse(dialogue, "/copy", "the sea", "/copy")
    assert copied == [dialogue.conversation.turns[-1]["content"]]
    assert display.of("error") == ["there is no answer yet"]
    monkeypatch.undo()
    assert "there is no clipboard here" in converse(dialogue, "/copy")[1].of("error")[0]
