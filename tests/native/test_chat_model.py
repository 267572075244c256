"""`/model`: the conversation goes on with another model."""

from __future__ import annotations

from pathlib import Path

import conversations
import pytest
import tiny
from conversations import LLAMA, TEMPLATE, Talking, ask, converse

from via_sd_local.sampling.recommended import ChosenSampling

talking, tiny_path = conversations.talking, conversations.tiny_path


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model, with sampling settings of its own."""
    overrides = {"tokenizer.chat_template": TEMPLATE, "general.sampling.temp": 0.5}
    return tiny.write(tmp_path_factory.mktemp("other") / "other.gguf", tiny.spec("llama", seed=7), overrides=overrides)


def test_the_conversation_goes_on_with_the_other_model(talking: Talking, other_path: Path, tiny_path: Path) -> None:
    dialogue = talking("be short")
    dialogue.sampling = ChosenSampling({"top_k": 40})
    _, display = converse(dialogue, "one", f"/model {other_path}", "/model")
    assert dialogue.session.model.path == other_path
    assert display.of("note")[-1] == "(other.gguf, mode plain, temperature 0.5, top-k 40)"
    assert [turn["content"] for turn in dialogue.conversation.turns[::2]] == ["one"]
    converse(dialogue, "/set temperature 0", "two", f"/model {tiny_path}", "/continue")
    assert len(dialogue.conversation.turns) == 4
    assert len(dialogue.conversation.last[1]) > 0
    fresh = talking("be short")
    fresh.conversation.turns = dialogue.conversation.turns[:2]
    converse(dialogue, "/undo", "three")
    assert ask(fresh, "three") == dialogue.conversation.last[1]


def test_a_model_that_cannot_be_loaded_leaves_the_present_one(talking: Talking, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF nonsense")
    strange = tiny.write(tmp_path / "strange.gguf", LLAMA, overrides={"tokenizer.chat_template": "{% if %}"})
    dialogue = talking(max_tokens=4)
    _, display = converse(
        dialogue, "one", "/model absent.gguf", "/model nonesuch", f"/model {broken}", f"/model {strange}", "two"
    )
    errors = display.of("error")
    assert len(errors) == 4
    expected = ("does not exist", "no model is called", "cannot load this file", "chat template cannot be parsed")
    for error, words in zip(errors, expected, strict=True):
        assert words in error
    assert len(display.of("answer")) == 2
    assert len(dialogue.conversation.turns) == 4


def test_drafts_stay_and_what_depends_on_layers_goes(talking: Talking, other_path: Path, tiny_path: Path) -> None:
    dialogue = talking(drafter="lookup", mode="tiered", mask="2", max_tokens=4)
    _, display = converse(dialogue, f"/model {other_path}", f"/draft {tiny_path}", f"/model {tiny_path}", "one")
    assert display.of("error") == []
    notes = [note for note in display.of("note") if ".gguf, mode" in note]
    assert [note.split(", temperature")[0] for note in notes] == [
        "(other.gguf, mode sd, drafts from lookup",
        f"(tiny.gguf, mode sd, drafts from {tiny_path}",
    ]
