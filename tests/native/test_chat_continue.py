"""`/continue`: the rest of an answer that was stopped or cut short."""

from __future__ import annotations

from typing import Any

import conversations
import numpy as np
import pytest
from conversations import GREEDY, Talking, ask, converse

from via_sd_local.chat import plain_turns
from via_sd_local.chat.conversation import Conversation
from via_sd_local.chat.dialogue import Dialogue
from via_sd_local.chat.opening import OpenModel
from via_sd_local.engine.watch import Flow
from via_sd_local.sampling.recommended import ChosenSampling

talking, tiny_path = conversations.talking, conversations.tiny_path

NO_LOGITS = np.empty(0, np.float32)


def silent(_text: str) -> None:
    """The note of someone who reads none."""


def test_an_answer_cut_short_goes_on_as_if_it_had_not_been_cut(talking: Talking) -> None:
    whole = ask(talking(max_tokens=15), "the sea")
    dialogue = talking(max_tokens=5)
    _, display = converse(dialogue, "the sea", "/continue", "/continue")
    assert display.of("answer")[2] == whole[-len(display.of("answer")[2]) :]
    assert [turn["content"] for turn in dialogue.conversation.turns] == ["the sea", whole]
    assert len(dialogue.pieces) == 15
    assert dialogue.session.engine.stats.completion_tokens == 5
    assert dialogue.session.engine.stats.reused_tokens >= len(dialogue.form.prompt) + 9  # type: ignore[attr-defined]


def test_drafts_change_nothing_in_that(talking: Talking) -> None:
    whole = ask(talking(max_tokens=30), "the sea the sea the sea")
    dialogue = talking(max_tokens=10, drafter="lookup")
    converse(dialogue, "the sea the sea the sea", "/continue", "/continue")
    assert dialogue.conversation.last[1] == whole


def test_a_stopped_answer_goes_on(talking: Talking) -> None:
    whole = ask(talking(max_tokens=12), "the sea")
    dialogue = talking(max_tokens=None)
    answer = dialogue.answer("the sea", note=silent)
    for _ in range(4):
        next(answer)
    answer.close()
    dialogue.max_tokens = 8
    converse(dialogue, "/continue")
    assert dialogue.conversation.last == ("the sea", whole)


def test_an_answer_of_another_process_goes_on(talking: Talking) -> None:
    begun = talking(max_tokens=6)
    first = ask(begun, "the sea")
    dialogue = talking(max_tokens=6)
    dialogue.conversation.turns = list(begun.conversation.turns)
    _, display = converse(dialogue, "/continue")
    assert dialogue.conversation.last == ("the sea", first + display.of("answer")[0])
    assert dialogue.finish_reason == "length"


def test_a_character_that_was_cut_in_two_is_put_together(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    dialogue = talking(max_tokens=3)
    data = iter("aé😀b".encode())
    pieces: dict[int, bytes] = {}
    steps: list[bytes] = []

    def piece(_self: Any, _token: int) -> bytes:
        number = len(steps)
        steps.append(b"")
        return pieces.setdefault(number, bytes([next(data)]))

    monkeypatch.setattr(type(dialogue.session.model), "piece", piece)
    assert ask(dialogue, "the sea") == "aé"
    dialogue.max_tokens = 2
    data = iter("aé😀b".encode())
    shown = "".join(p.text for pieces_ in dialogue.go_on(note=silent) for p in pieces_)
    assert shown == "\ufffd"
    assert dialogue.conversation.last[1] == "aé\ufffd"
    data = iter("aé😀b".encode())
    dialogue.max_tokens = 3
    shown = "".join(p.text for pieces_ in dialogue.go_on(note=silent) for p in pieces_)
    assert shown == "😀b"
    assert dialogue.conversation.last[1] == "aé😀b"


def test_what_cannot_go_on_is_refused_and_stays(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert converse(talking(), "/continue")[1].of("error") == ["there is no message yet"]
    dialogue = talking()
    first = ask(dialogue, "the sea")
    dialogue.sampling = ChosenSampling({"grammar": 'root ::= "a"*'})
    _, display = converse(dialogue, "/continue")
    assert "cannot go on within a grammar" in display.of("error")[0]
    dialogue.sampling = ChosenSampling()
    monkeypatch.setattr(
        type(dialogue.session.engine.verifier), "end_tokens", property(lambda self: frozenset(range(self.n_vocab)))
    )
    ask(dialogue, "ends at once")
    _, display = converse(dialogue, "/continue")
    assert "is complete: the model ended it" in display.of("error")[0]
    assert dialogue.conversation.turns[1]["content"] == first


def test_when_the_context_is_full_the_oldest_turns_make_room(talking: Talking) -> None:
    dialogue = talking(n_ctx=128, max_tokens=8)
    for number in range(8):
        ask(dialogue, f"the sea in number {number}")
    answer = dialogue.conversation.last[1]
    for _ in range(4):
        assert list(dialogue.go_on(note=silent))
    assert dialogue.conversation.last[0] == "the sea in number 7"
    assert dialogue.conversation.last[1].startswith(answer.rstrip("\ufffd"))
    assert len(dialogue.pieces) >= 40
    assert dialogue.finish_reason == "length"


def test_a_stop_string_across_the_cut_ends_the_answer(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    dialogue = talking()
    model = dialogue.session.model
    tokens = model.tokenize("\nUser", add_special=False)
    watchers: list[Any] = []

    def generate(_prompt: list[int], *, watcher: Any, **_options: Any) -> Any:
        watchers.append(watcher)
        yield from ()

    opened = OpenModel(dialogue.session, dialogue.form, lambda: plain_turns.OneTurn(model))
    dialogue = Dialogue(opened, Conversation(), GREEDY, 5)
    dialogue.conversation.add("the sea", model.detokenize(tokens[:-1]))
    monkeypatch.setattr(dialogue.session.engine, "generate", generate)
    assert list(dialogue.go_on(note=silent)) == []
    assert plain_turns.OneTurn(model).see_token(tokens[-1], NO_LOGITS) is Flow.GO_ON
    assert watchers[0].see_token(tokens[-1], NO_LOGITS) is Flow.END_BEFORE
