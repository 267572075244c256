"""The conversation: which turns a prompt holds, and what survives an interruption."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import conversations
import pytest
from conversations import GREEDY, Talking, ask

from via_sd_local import chat
from via_sd_local.chat_format import ChatFormat
from via_sd_local.errors import ModelError
from via_sd_local.sampling import SamplingParams
from via_sd_local.session import Session
from via_sd_local.settings import Settings

talking, tiny_path = conversations.talking, conversations.tiny_path


def test_a_prompt_is_the_system_message_the_turns_and_the_new_message(talking: Talking) -> None:
    conversation = talking("be short")
    first = ask(conversation, "one")
    second = ask(conversation, "two")
    conversation.prompt_for("three")
    assert conversation.form.messages == [  # type: ignore[attr-defined]
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": second},
        {"role": "user", "content": "three"},
    ]
    assert first
    assert len(conversation.turns) == 4  # asking for a prompt changes nothing


def test_without_a_system_text_there_is_no_system_message(talking: Talking) -> None:
    for system in (None, ""):
        conversation = talking(system)
        conversation.prompt_for("one")
        assert [message["role"] for message in conversation.form.messages] == ["user"]  # type: ignore[attr-defined]


def test_the_second_turn_reuses_the_kv_cache_of_the_first(talking: Talking) -> None:
    conversation = talking("be short")
    ask(conversation, "the sea")
    prompt = list(conversation.form.prompt)  # type: ignore[attr-defined]
    assert conversation.session.engine.stats.reused_tokens == 0
    ask(conversation, "and then")
    stats = conversation.session.engine.stats
    assert len(prompt) <= stats.reused_tokens < stats.prompt_tokens


def test_a_real_model_reuses_its_own_answer_too(smollm2_path: Path) -> None:
    with closing(Session(Settings(str(smollm2_path), n_ctx=256, threads=1))) as session:
        conversation = chat.Conversation(session, ChatFormat(session.model), None)
        assert ask(conversation, "Name a colour.", 8)
        first = session.engine.stats
        ask(conversation, "Another one.", 2)
        assert session.engine.stats.reused_tokens >= first.prompt_tokens + first.completion_tokens - 1


def test_when_the_context_is_full_the_oldest_turns_go_and_the_system_message_stays(
    talking: Talking, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talking("be short", n_ctx=128)
    asked: list[str] = []
    dropped = 0
    for number in range(12):
        asked.append(f"the sea in number {number}")
        ask(conversation, asked[-1], 4)
        messages, prompt = conversation.form.messages, conversation.form.prompt  # type: ignore[attr-defined]
        assert messages[0] == {"role": "system", "content": "be short"}
        users = [message["content"] for message in messages if message["role"] == "user"]
        assert users == asked[-len(users) :]
        assert all(one["role"] != other["role"] for one, other in pairwise(messages))
        assert messages[1]["role"] == "user"
        assert len(prompt) <= 128 - 32  # a quarter stays free for the answer
        note = capsys.readouterr().err
        if note:
            match = re.fullmatch(r"\(the context is full: the (\d+) oldest messages were dropped\)\n", note)
            assert match
            dropped += int(match[1])
        assert 2 * (number + 1) - dropped == len(conversation.turns)
    assert dropped > 4
    assert len(conversation.turns) > 2  # and no more than needed


def test_no_more_turns_are_dropped_than_must_be(talking: Talking) -> None:
    conversation = talking(n_ctx=128)
    checked = 0
    for number in range(12):
        before = list(conversation.turns)
        tokens, dropped = conversation.prompt_for(f"the sea {number}")
        if dropped:
            longer = ChatFormat(conversation.session.model).tokens(
                [*before[dropped - 2 :], {"role": "user", "content": f"the sea {number}"}]
            )
            assert len(tokens) <= 96 < len(longer)
            checked += 1
        ask(conversation, f"the sea {number}", 4)
    assert checked > 4


def test_a_large_context_keeps_64_tokens_for_the_answer(talking: Talking) -> None:
    conversation = talking(n_ctx=512)
    with pytest.raises(ValueError, match="of which 64 are kept for the answer"):
        conversation.prompt_for("the sea " * 400)


def test_a_message_that_is_too_long_is_refused_with_the_numbers_and_changes_nothing(talking: Talking) -> None:
    conversation = talking("be short", n_ctx=128)
    ask(conversation, "one")
    turns = list(conversation.turns)
    with pytest.raises(ValueError, match="this message takes") as caught:
        ask(conversation, "the sea " * 100)
    numbers = [int(number) for number in re.findall(r"\d+", str(caught.value))]
    needed = len(conversation.form.prompt)  # type: ignore[attr-defined]
    assert numbers == [needed, needed - 96, 128, 32]
    assert "\n" not in str(caught.value)
    assert conversation.turns == turns
    assert ask(conversation, "two")


def test_an_abandoned_answer_becomes_a_turn_as_far_as_it_was_read(talking: Talking) -> None:
    conversation = talking()
    answer = conversation.answer("the sea", None, GREEDY)
    read = next(answer) + next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert conversation.turns == [{"role": "user", "content": "the sea"}, {"role": "assistant", "content": read}]
    continued = ask(conversation, "and then")

    other = talking()
    other.turns = conversation.turns[:2]
    assert ask(other, "and then") == continued  # the cache of the first is right, too


def test_an_interrupted_answer_becomes_a_turn(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talking()
    verifier = conversation.session.engine.verifier
    original, passes = verifier.full, 0

    def interrupted(*args: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == 4:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(verifier, "full", interrupted)
    read: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        read.extend(conversation.answer("the sea", None, GREEDY))
    assert len(read) == 3
    assert conversation.turns[1] == {"role": "assistant", "content": "".join(read)}
    monkeypatch.undo()
    continued = ask(conversation, "and then")
    other = talking()
    other.turns = conversation.turns[:2]
    assert ask(other, "and then") == continued


def test_an_answer_that_could_not_begin_is_no_turn(talking: Talking) -> None:
    conversation = talking()
    with pytest.raises(ModelError):
        ask(conversation, "forbidden")
    assert conversation.turns == []


def test_an_answer_that_the_engine_refuses_is_no_turn(talking: Talking) -> None:
    conversation = talking()
    with pytest.raises(ValueError, match="the grammar does not parse"):
        list(conversation.answer("one", 5, SamplingParams(grammar="root ::= (")))
    assert conversation.turns == []


def test_the_parts_of_an_answer_are_whole_characters(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talking()
    pieces = iter([bytes([byte]) for byte in "é😀".encode()[:-1]])
    monkeypatch.setattr(type(conversation.session.model), "piece", lambda _self, _token: next(pieces))
    parts = list(conversation.answer("the sea", 5, GREEDY))
    assert "".join(parts) == "é\ufffd" == conversation.turns[1]["content"]


def test_clear_forgets_the_turns_and_keeps_the_system_message(
    talking: Talking, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talking("be short")
    ask(conversation, "one")
    chat.command("/clear", conversation)
    assert "forgotten" in capsys.readouterr().err
    conversation.prompt_for("two")
    assert [m["content"] for m in conversation.form.messages] == ["be short", "two"]  # type: ignore[attr-defined]


def test_the_status_line_says_what_the_stats_say(talking: Talking) -> None:
    conversation = talking(drafter="lookup", mode="tiered", mask="2")
    ask(conversation, "the sea the sea the sea", 30)
    stats, line = conversation.session.engine.stats, chat.status_line(conversation.session)
    assert stats.drafted > 0
    assert stats.rejection_rate not in (None, 0.5)
    for words in (
        "[30 tokens, ",
        f", {stats.tokens_per_second:.1f} tokens/s, ",
        f", {1 - stats.rejection_rate:.0%} of {stats.drafted} drafted tokens accepted, ",
        "lossy: ",
        f"context {stats.prompt_tokens + 30}/256]",
    ):
        assert words in line
    plain = talking()
    ask(plain, "one", 1)
    used = plain.session.engine.stats.prompt_tokens + 1
    assert chat.status_line(plain.session) == f"[1 tokens, context {used}/256]"
