"""A conversation with a model: what its cache keeps, and what survives an interruption."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conversations
import pytest
from conversations import GREEDY, Talking, ask

from via_sd_local.chat.baseline import PlainSpeed
from via_sd_local.chat.conversation import Conversation
from via_sd_local.chat.dialogue import Dialogue
from via_sd_local.chat.opening import OpenModel
from via_sd_local.chat.status import status_line
from via_sd_local.engine.stats import Stats
from via_sd_local.engine.steps import Tier
from via_sd_local.errors import ModelError
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.sampling.recommended import ChosenSampling
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.tiers import cache
from via_sd_local.tiers.verifier import Verifier

talking, tiny_path = conversations.talking, conversations.tiny_path


def silent(_text: str) -> None:
    """The note of someone who reads none."""


def test_question_and_answer_become_turns(talking: Talking) -> None:
    dialogue = talking("be short")
    first = ask(dialogue, "one")
    second = ask(dialogue, "two")
    assert first
    assert [turn["content"] for turn in dialogue.conversation.turns] == ["one", first, "two", second]
    assert [m["content"] for m in dialogue.form.messages] == ["be short", "one", first, "two"]  # type: ignore[attr-defined]


def test_the_second_turn_reuses_the_kv_cache_of_the_first(talking: Talking) -> None:
    dialogue = talking("be short")
    ask(dialogue, "the sea")
    prompt = list(dialogue.form.prompt)  # type: ignore[attr-defined]
    assert dialogue.session.engine.stats.reused_tokens == 0
    ask(dialogue, "and then")
    stats = dialogue.session.engine.stats
    assert len(prompt) <= stats.reused_tokens < stats.prompt_tokens


def test_a_real_model_reuses_its_own_answer_too(smollm2_path: Any) -> None:
    with closing(Session(Settings(str(smollm2_path), n_ctx=256, threads=1))) as session:
        opened = OpenModel(session, ChatFormat(session.model))
        dialogue = Dialogue(opened, Conversation(), GREEDY, 8)
        dialogue.sampling = GREEDY
        assert ask(dialogue, "Name a colour.")
        first = session.engine.stats
        ask(dialogue, "Another one.")
        assert session.engine.stats.reused_tokens >= first.prompt_tokens + first.completion_tokens - 1


def test_when_the_context_is_full_the_oldest_turns_go_and_the_system_message_stays(talking: Talking) -> None:
    dialogue = talking("be short", n_ctx=128)
    asked: list[str] = []
    notes: list[str] = []
    for number in range(12):
        asked.append(f"the sea in number {number}")
        ask(dialogue, asked[-1], notes)
        messages, prompt = dialogue.form.messages, dialogue.form.prompt  # type: ignore[attr-defined]
        assert messages[0] == {"role": "system", "content": "be short"}
        users = [message["content"] for message in messages if message["role"] == "user"]
        assert users == asked[-len(users) :]
        assert len(prompt) <= 128 - 32  # a quarter stays free for the answer
        unseen = [
            re.fullmatch(r"\(the context is full: the model no longer sees the (\d+) oldest .*", n) for n in notes
        ]
        assert 2 * (number + 1) - (int(unseen[-1][1]) if unseen and unseen[-1] else 0) == 2 * len(users)
        assert [turn["content"] for turn in dialogue.conversation.turns[::2]] == asked
    assert len(notes) > 2


def test_a_message_that_is_too_long_changes_nothing(talking: Talking) -> None:
    dialogue = talking("be short", n_ctx=128)
    ask(dialogue, "one")
    turns = list(dialogue.conversation.turns)
    with pytest.raises(ValueError, match=r"take \d+ tokens, \d+ more than fit"):
        ask(dialogue, "the sea " * 100)
    assert dialogue.conversation.turns == turns
    assert ask(dialogue, "two")


def test_an_abandoned_answer_becomes_a_turn_as_far_as_it_was_read(talking: Talking) -> None:
    dialogue = talking(max_tokens=None)
    answer = dialogue.answer("the sea", note=silent)
    read = "".join(piece.text for _ in range(2) for piece in next(answer))
    answer.close()  # type: ignore[attr-defined]
    assert dialogue.conversation.turns[1] == {"role": "assistant", "content": read}
    assert dialogue.finish_reason is None
    dialogue.max_tokens = 5
    continued = ask(dialogue, "and then")

    other = talking()
    other.conversation.turns = dialogue.conversation.turns[:2]
    assert ask(other, "and then") == continued  # the cache of the first is right, too
    assert other.finish_reason == "length"


@pytest.mark.parametrize("interrupted_pass", [0, 1, 4])
def test_an_interrupted_answer_is_kept_as_far_as_it_came(
    interrupted_pass: int, talking: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue = talking(max_tokens=None)
    verifier = dialogue.session.engine.verifier
    original, passes = verifier.full, 0

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == interrupted_pass + 1:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(verifier, "full", interrupted)
    read: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        read.extend("".join(piece.text for piece in pieces) for pieces in dialogue.answer("the sea", note=silent))
    assert len(read) == interrupted_pass
    assert [turn["content"] for turn in dialogue.conversation.turns] == (["the sea", "".join(read)] if read else [])
    monkeypatch.undo()
    dialogue.max_tokens = 5
    turns = list(dialogue.conversation.turns)
    continued = ask(dialogue, "and then")
    other = talking()
    other.conversation.turns = turns
    assert ask(other, "and then") == continued


def test_an_answer_that_could_not_begin_is_no_turn(talking: Talking) -> None:
    dialogue = talking()
    with pytest.raises(ModelError):
        ask(dialogue, "forbidden")
    dialogue.sampling = ChosenSampling({"grammar": "root ::= ("})
    with pytest.raises(ValueError, match="the grammar does not parse"):
        ask(dialogue, "one")
    assert dialogue.conversation.turns == []


def test_the_parts_of_an_answer_are_whole_characters(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    dialogue = talking()
    pieces = iter([bytes([byte]) for byte in "é😀".encode()[:-1]])
    monkeypatch.setattr(type(dialogue.session.model), "piece", lambda _self, _token: next(pieces))
    parts = [piece.text for pieces in dialogue.answer("the sea", note=silent) for piece in pieces]
    assert parts == ["", "é", "", "", "", "\ufffd"]
    assert dialogue.conversation.turns[1]["content"] == "é\ufffd"
    assert len(dialogue.pieces) == 6


def test_a_long_message_is_announced_and_what_is_in_the_cache_is_not_counted(talking: Talking) -> None:
    said: list[str] = []
    opened = talking(n_ctx=512)
    dialogue = Dialogue(OpenModel(opened.session, opened.form), Conversation(), GREEDY, 5, said.append)
    ask(dialogue, "the sea " * 30)
    first = len(opened.form.prompt)  # type: ignore[attr-defined]
    assert said == [f"reading {first} tokens; Ctrl-C stops it"]
    assert first > 64
    ask(dialogue, "and")
    assert len(said) == 1


def test_the_shares_count_each_token_for_the_tier_that_decided_it(talking: Talking, tiny_path: Path) -> None:
    dialogue = talking(draft=str(tiny_path), mode="tiered", mask="2", thresholds="joint:0.001,0.001", max_tokens=40)
    assert dialogue.shares() == {}
    ask(dialogue, "the sea the sea the sea")
    stats, shares = dialogue.session.engine.stats, dialogue.shares()
    assert len(dialogue.pieces) == stats.completion_tokens == 40
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[Tier.DRAFT] == stats.regions["A"] / 40 > 0
    assert shares[Tier.SLIM] > 0


#
# the status line
#


def test_the_status_line_says_what_the_stats_say(talking: Talking) -> None:
    dialogue = talking(drafter="lookup", mode="tiered", mask="2", max_tokens=30)
    ask(dialogue, "the sea the sea the sea")
    stats, shares = dialogue.session.engine.stats, dialogue.shares()
    line = status_line(stats, shares, 256, plain=10.0)
    speed = stats.tokens_per_second
    assert speed is not None
    expected = (
        f"[30 tokens, {speed:.1f} tokens/s, {speed / 10:.2f} × plain (10.0), "  # noqa: RUF001
        f"draft {shares[Tier.DRAFT]:.0%} slim {shares[Tier.SLIM]:.0%} full {shares[Tier.FULL]:.0%}, lossy: "
    )
    assert line.startswith(expected)
    assert line.endswith(f", context {stats.prompt_tokens + 30}/256]")


def stats_of(mode: str, tokens: int, **counters: Any) -> Stats:
    return Stats(mode, prompt_tokens=10, completion_tokens=tokens, blocks=tokens, seconds=2.0, **counters)


@pytest.mark.parametrize(
    ("stats", "plain", "expected"),
    [
        (Stats("plain", prompt_tokens=10, completion_tokens=1), None, "[1 token, context 11/99]"),
        (stats_of("plain", 41), 10.0, "[41 tokens, 20.0 tokens/s, context 51/99]"),
        (stats_of("sd", 41), None, "[41 tokens, 20.0 tokens/s, context 51/99]"),
        (
            stats_of("sd", 41, drafted=40, accepted=10),
            8.0,
            "[41 tokens, 20.0 tokens/s, 2.50 × plain (8.0), 25% of 40 drafted tokens accepted, context 51/99]",  # noqa: RUF001
        ),
        (stats_of("sd", 15), 10.0, "[15 tokens, 7.0 tokens/s, context 25/99]"),  # too short to compare
        (
            stats_of("tiered", 41, regions={"A": 30, "B": 0, "C": 0, "bonus": 0}, audited={"A": 20, "B": 0, "C": 0}),
            None,
            "[41 tokens, 20.0 tokens/s, draft 70% slim 5% full 25%, lossy: about 0.0% of tokens are not the full "
            "model's choice (0.0% by the slim tier, as audits estimate), context 51/99]",
        ),
        (
            stats_of("lenient", 41, drafted=40, accepted=30, audited={"A": 0, "B": 0, "C": 41}, lenient=2),
            None,
            "[41 tokens, 20.0 tokens/s, 75% of 40 drafted tokens accepted, lossy: about 4.9% of tokens are not the "
            "full model's choice (4.9% by lenience), context 51/99]",
        ),
        (
            stats_of("tiered", 41),
            None,
            "[41 tokens, 20.0 tokens/s, draft 70% slim 5% full 25%, lossy: not audited yet, context 51/99]",
        ),
    ],
)
def test_the_status_line_by_mode(stats: Stats, plain: float | None, expected: str) -> None:
    shares = {Tier.DRAFT: 0.7, Tier.SLIM: 0.05, Tier.FULL: 0.25}
    assert status_line(stats, shares, 99, plain) == expected


def test_the_status_line_says_why_nothing_is_drafted() -> None:
    line = status_line(stats_of("sd", 41), {}, 99, None, "drafting would be slower")
    assert "no drafts: drafting would be slower" in line


def test_plain_speed_is_that_of_full_passes_of_one_token_now(
    talking: Talking, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue = talking(draft=str(tiny_path), mode="tiered", mask="2", thresholds="joint:0.001,0.001", n_ctx=512)
    ask(dialogue, "the sea the sea the sea")
    verifier = dialogue.session.engine.verifier
    assert verifier.n_full < verifier.n_kv
    cells = list(verifier.cells)
    passes = record_passes(verifier, monkeypatch)
    clock = iter([0.0, 9.0, 0.0, 9.0, 0.0, 0.5, 0.0, 0.25, 0.0, 7.0])
    monkeypatch.setattr(cache, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    speed = PlainSpeed()
    assert speed.tokens_per_second(verifier) == 2.0  # the median of all but the first
    assert passes[1:] == [1, 1, 1, 1]  # before, what the slim tier had decided
    assert speed.tokens_per_second(verifier) == 2.0
    assert len(passes) == 5  # known
    monkeypatch.undo()
    assert (verifier.cells, verifier.n_full) == (cells, len(cells))
    verifier.full([1] * 300, 1)
    assert speed.tokens_per_second(verifier) != 2.0


def record_passes(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the passes from now on."""
    passes: list[int] = []
    for name in ("decode", "decode_embeddings"):
        original = getattr(verifier.context, name)

        def recorded(inputs: Any, start: int, rows: int, original: Any = original) -> Any:
            passes.append(len(inputs))
            return original(inputs, start, rows)

        monkeypatch.setattr(verifier.context, name, recorded)
    return passes


def test_an_empty_cache_has_no_plain_speed(talking: Talking) -> None:
    assert PlainSpeed().tokens_per_second(talking().session.engine.verifier) is None
