"""`Session.stream` and `Session.complete`: a text in, the answer's text out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import commands
import pytest
from commands import PROMPT, TEMPLATE, greedy

from via_sd_local.engine.steps import Step, Tier
from via_sd_local.errors import ModelError
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.session.text_steps import Piece, TextStep, text_steps

files = commands.files


@pytest.fixture
def session(files: Path, keep: Callable[[Any], Any]) -> Callable[..., Session]:
    """`session("template.gguf", drafter="lookup")` opens one with that model."""

    def make(name: str = "llama.gguf", **options: Any) -> Session:
        opened: Session = keep(Session(Settings(str(files / name), n_ctx=256, threads=1, **options)))
        return opened

    return make


@pytest.mark.parametrize("options", [{}, {"drafter": "lookup", "draft_tokens": 3}])
def test_the_stream_is_the_models_own_continuation(
    options: dict[str, Any], session: Callable[..., Session], files: Path
) -> None:
    _, text, n_prompt = greedy(files / "llama.gguf", PROMPT, 12)
    opened = session(**options)
    parts = list(opened.stream(PROMPT, max_tokens=12))
    assert "".join(parts) == text
    assert len(parts) > 1
    assert all(parts)  # no empty strings
    assert opened.finish_reason == "length"
    stats = opened.engine.stats
    assert (stats.prompt_tokens, stats.completion_tokens) == (n_prompt, 12)
    assert opened.complete(PROMPT, max_tokens=12) == text


def test_the_prompt_is_put_into_the_models_template_or_into_a_given_one_or_into_none(
    session: Callable[..., Session],
) -> None:
    opened, plain = session("template.gguf"), session()
    rendered = f"user: {PROMPT}\nassistant:"
    answer = opened.complete(PROMPT, max_tokens=8)
    assert opened.complete(rendered, max_tokens=8, raw=True) == answer
    assert plain.complete(PROMPT, max_tokens=8, chat_template=TEMPLATE) == answer
    assert opened.prompt_tokens(PROMPT, raw=True) == plain.prompt_tokens(PROMPT)
    assert plain.prompt_tokens("", raw=True) == [plain.model.bos]
    with pytest.raises(ModelError, match="cannot be parsed"):
        plain.stream(PROMPT, chat_template="{% for")


def test_a_stream_that_is_closed_early_leaves_the_session_usable(session: Callable[..., Session]) -> None:
    opened = session(drafter="lookup", draft_tokens=3)
    whole = opened.complete(PROMPT, max_tokens=12)
    stream = opened.stream(PROMPT, max_tokens=12)
    with closing(stream):
        first = next(stream)
    assert opened.finish_reason is None
    assert whole.startswith(first)
    assert opened.complete(PROMPT, max_tokens=12) == whole
    abandoned = opened.stream(PROMPT, max_tokens=12)
    next(abandoned)
    assert opened.complete(PROMPT, max_tokens=12) == whole
    assert list(abandoned) == []  # the other call has ended it
    assert opened.finish_reason == "length"


def test_the_answer_ends_before_the_first_stop_string(session: Callable[..., Session]) -> None:
    opened = session()
    whole = opened.complete(PROMPT, max_tokens=24)
    for stop in (whole[5:8], whole[-2:]):
        assert opened.complete(PROMPT, max_tokens=24, stop=["\0absent", stop]) == whole[: whole.index(stop)]
        assert opened.finish_reason == "stop"
    assert opened.complete(PROMPT, max_tokens=24, stop=[whole[-1] + "\0"]) == whole  # held back, and then no stop
    assert opened.finish_reason == "length"


def test_what_cannot_be_answered_is_refused_at_the_call(session: Callable[..., Session], files: Path) -> None:
    _, _, n = greedy(files / "llama.gguf", PROMPT, 1)
    opened = session()
    with pytest.raises(ValueError, match=r"tokens; the context holds 256 \(n_ctx\), at least one of them for the"):
        opened.stream(PROMPT * 100)
    with pytest.raises(ValueError, match="max_tokens is -3"):
        opened.stream(PROMPT, max_tokens=-3)
    with pytest.raises(ValueError, match="the grammar does not parse"):
        opened.stream(PROMPT, sampling=SamplingParams(grammar="root ::= ("))
    assert opened.complete(PROMPT, max_tokens=0) == ""
    assert opened.engine.stats.prompt_tokens == n


def test_tokens_become_pieces_of_whole_characters() -> None:
    data = [bytes([byte]) for byte in "é😀".encode()[:-1]]

    def steps() -> Any:
        yield Step((0, 1, 2), (Tier.DRAFT, Tier.SLIM, Tier.FULL), None, drafted=1)
        yield Step((3, 4), (Tier.DRAFT, Tier.DRAFT), None)
        yield Step((), (), "stop")

    assert list(text_steps(steps(), data.__getitem__)) == [
        TextStep((Piece("", Tier.DRAFT, drafted=True), Piece("é", Tier.SLIM), Piece("", Tier.FULL)), None),
        TextStep((Piece("", Tier.DRAFT), Piece("", Tier.DRAFT)), None),
        TextStep((), "stop"),
        TextStep((Piece("\ufffd", Tier.DRAFT),), "stop"),
    ]
