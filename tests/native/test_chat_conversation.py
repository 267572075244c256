"""What was said: which turns a prompt holds, what is taken back, and what a file keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from via_sd_local.chat.conversation import Conversation
from via_sd_local.runtime.chat_format import Message


def words(messages: Sequence[Message]) -> list[int]:
    """A token for each word and each role."""
    return [len(word) for message in messages for word in [message["role"], *message["content"].split()]]


def talked(exchanges: int, system: str | None = None) -> Conversation:
    conversation = Conversation(system)
    for number in range(exchanges):
        conversation.add(f"question {number}", f"answer {number}")
    return conversation


def test_a_prompt_is_the_system_message_the_turns_and_the_new_message() -> None:
    seen: list[list[Message]] = []

    def tokens_of(messages: Sequence[Message]) -> list[int]:
        seen.append(list(messages))
        return words(messages)

    conversation = talked(1, "be short")
    prompt = conversation.prompt_for("two", tokens_of, 256)
    assert seen == [
        [
            {"role": "system", "content": "be short"},
            {"role": "user", "content": "question 0"},
            {"role": "assistant", "content": "answer 0"},
            {"role": "user", "content": "two"},
        ]
    ]
    assert (prompt.tokens, prompt.dropped) == (words(seen[0]), 0)
    assert len(conversation.turns) == 2  # asking for a prompt changes nothing


@pytest.mark.parametrize("system", [None, ""])
def test_without_a_system_text_there_is_no_system_message(system: str | None) -> None:
    assert Conversation(system).prompt_for("one two", words, 256).tokens == words(
        [{"role": "user", "content": "one two"}]
    )


@pytest.mark.parametrize("system", [None, "be short"])
@pytest.mark.parametrize("exchanges", range(12))
def test_as_few_of_the_oldest_turns_go_as_must(exchanges: int, system: str | None) -> None:
    """A quarter of 32 stays free; an exchange has 6 tokens, the system message 3, the new message 2."""
    conversation = talked(exchanges, system)
    prompt = conversation.prompt_for("new", words, 32)
    fits = min(exchanges, (24 - 2 - (3 if system else 0)) // 6)
    assert prompt.dropped == 2 * (exchanges - fits)
    assert len(prompt.tokens) == 6 * fits + 2 + (3 if system else 0)
    assert prompt.tokens[:3] == ([6, 2, 5] if system else prompt.tokens[:3])
    assert len(conversation.turns) == 2 * exchanges  # none is lost
    assert all(one["role"] != other["role"] for one, other in pairwise(conversation.turns))


@pytest.mark.parametrize(("n_ctx", "kept"), [(512, 64), (4096, 64), (128, 32)])
@pytest.mark.parametrize("system", [None, "be short"])
def test_a_message_that_is_too_long_is_refused_with_the_numbers(system: str | None, n_ctx: int, kept: int) -> None:
    conversation = talked(3, system)
    before = list(conversation.turns)
    with pytest.raises(ValueError, match=r"^this message") as caught:
        conversation.prompt_for("sea " * n_ctx, words, n_ctx)
    needed = n_ctx + (4 if system else 1)
    assert [int(number) for number in re.findall(r"\d+", str(caught.value))] == [
        needed,
        needed - n_ctx + kept,
        n_ctx,
        kept,
    ]
    assert "\n" not in str(caught.value)
    assert ("system message" in str(caught.value)) == bool(system)
    assert conversation.turns == before


def test_the_last_exchange_can_be_taken_back_until_there_is_none() -> None:
    conversation = talked(2)
    assert conversation.take_back() == ("question 1", "answer 1")
    assert conversation.turns == talked(1).turns
    assert conversation.take_back() == ("question 0", "answer 0")
    with pytest.raises(ValueError, match="there is no message yet"):
        conversation.take_back()


@pytest.mark.parametrize("system", [None, "sei kurz \u2028 😀"])
def test_a_file_keeps_the_whole_conversation(system: str | None) -> None:
    conversation = Conversation(system)
    conversation.add('a "quoted"\n\tline', "é😀\x00")
    conversation.add("", "")
    assert Conversation.from_json(conversation.to_json()) == conversation


GOOD = json.loads(talked(1, "s").to_json())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a saved conversation"),
        ("[1, 2]", "lacks"),
        ('{"a": 1}', "lacks"),
        (GOOD | {"format": "via_sd_local chat 2"}, "lacks"),
        (GOOD | {"system": 3}, "system message is 3"),
        (GOOD | {"messages": None}, "a list of user messages"),
        (GOOD | {"messages": GOOD["messages"][:1]}, "each with its answer"),
        (GOOD | {"messages": GOOD["messages"][::-1]}, "message 0 must have the role user"),
        (
            GOOD | {"messages": [GOOD["messages"][0], {"role": "system", "content": "x"}]},
            "message 1 must have the role assistant",
        ),
        (GOOD | {"messages": [GOOD["messages"][0], {"role": "assistant", "content": None}]}, "message 1"),
        (GOOD | {"messages": [GOOD["messages"][0], "hello"]}, "message 1"),
    ],
)
def test_a_file_that_holds_no_conversation_is_refused_with_a_reason(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conversation.from_json(text if isinstance(text, str) else json.dumps(text))


def test_the_turns_that_fit_are_found_in_few_renderings() -> None:
    calls = 0

    def tokens_of(messages: Sequence[Message]) -> list[int]:
        nonlocal calls
        calls += 1
        return words(messages)

    assert talked(1000).prompt_for("new", tokens_of, 32).dropped == 2 * (1000 - 3)
    assert calls <= 12


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000])
def test_a_deeply_nested_file_is_refused_like_any_other(text: str) -> None:
    with pytest.raises(ValueError, match="not a saved conversation: the JSON is nested too deeply"):
        Conversation.from_json(text)


def test_what_utf_8_cannot_hold_is_replaced_on_loading() -> None:
    text = json.dumps({**GOOD, "system": "a\ud800"})
    assert Conversation.from_json(text).system == "a?"


def test_a_last_message_without_an_answer_is_taken_out() -> None:
    conversation = talked(1)
    assert conversation.take_unanswered() is None
    conversation.add("waiting", "")
    assert conversation.take_unanswered() == "waiting"
    assert conversation == talked(1)
