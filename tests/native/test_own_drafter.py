"""A drafter of somebody's own: two methods, in the engine and in `Llama`, as docs/drafters.md describes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dropin
import fakes
import pytest
from dropin import PROMPT as TEXT
from dropin import Make, text_of
from fakes import RandomLanguage, expected_text
from generations import DRAFTING, LOSSLESS, PROMPT, build, tokens_of

from via_sd_local.engine import drafting
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.stats import PassCount
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.drafter import Draft, Drafter, Hints

make = dropin.make
tiny_path = dropin.tiny_path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "drafters.md"


class Own(Drafter):
    """Nothing but the two methods."""

    def __init__(self, next_token: Callable[[list[int]], int]) -> None:
        self.next_token = next_token
        self.observed: list[int] = []

    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        tokens: list[int] = []
        while len(tokens) < limit:
            tokens.append(self.next_token([*text, *tokens]))
        return Draft(tokens)

    def observe(self, accepted: int) -> None:
        self.observed.append(accepted)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("draft_tokens", [3, None])
@pytest.mark.parametrize("mode", LOSSLESS)
def test_two_methods_draft_in_the_engine(mode: Mode, draft_tokens: int | None, temperature: float) -> None:
    language = RandomLanguage(3)
    sampling = SamplingParams(temperature=temperature, seed=5)
    own = Own(lambda text: int(language.full(text).argmax()))
    engine = build(language, mode, own, draft_tokens=draft_tokens)
    assert tokens_of(engine, max_tokens=30, sampling=sampling) == expected_text(language, PROMPT, 30, sampling=sampling)
    assert sum(own.observed) == engine.stats.accepted > 0
    assert list(engine.stats.drafts) == ["drafter"]
    engine.reset()
    engine.close()


def test_a_learner_is_told_what_became_of_each_of_its_drafts() -> None:
    language = RandomLanguage(3)
    own = Own(lambda text: (int(language.full(text).argmax()) + (len(text) == 6)) % fakes.POISON)
    engine = build(language, Mode.SD, own)
    tokens_of(engine, max_tokens=8)  # the prefill's, then 4 5 | 6, then 7 8 9 | 10: after 6 tokens the draft is wrong
    assert own.observed == [2, 3]


@pytest.mark.parametrize("mode", ["sd", "exact", "tiered"])
def test_two_methods_draft_in_the_drop_in(make: Make, mode: str) -> None:
    expected = text_of(make()(TEXT, max_tokens=20, temperature=0))
    knows = make()
    answer = [*knows.tokenize(TEXT.encode())]
    for token in knows.generate(answer[:], temp=0.0):
        answer.append(token)
        if len(answer) > 60:
            break
    own = Own(lambda text: answer[len(text)])
    options: dict[str, Any] = {} if mode == "sd" else {"mask": "2-3", "thresholds": "joint:1,1"}
    llm = make(drafter=own, mode=mode, draft_tokens=4, **options)
    assert text_of(llm(TEXT, max_tokens=20, temperature=0)) == expected
    assert llm.last_stats["drafted"] > 0
    assert llm.last_stats["accepted"] == sum(own.observed) > 0


def test_the_example_of_the_documentation_drafts() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(code[: code.index("llm = ")], names)
    language = RandomLanguage(1)
    engine = build(language, Mode.SD, names["Echo"](), draft_tokens=4)
    assert tokens_of(engine, max_tokens=40) == expected_text(language, PROMPT, 40)
    assert 0 < engine.stats.accepted < engine.stats.drafted
    assert list(engine.stats.drafts) == ["echo"]


def test_something_else_in_its_place_is_refused(make: Make) -> None:
    with pytest.raises(TypeError, match=r"it must be a name or an instance of a via_sd_local\.drafters\.Drafter"):
        make(drafter=[1, 2])


NO_DRAFTS: dict[str, tuple[Any, str]] = {
    "a list": ([1, 2], r"it proposed \[1, 2\]; it must return a Draft"),
    "nothing": (None, "it proposed None; it must return a Draft"),
    "a fraction": (Draft([1.5]), "'float' object cannot be interpreted as an integer"),  # type: ignore[list-item]
    "an unknown token": (Draft([99]), "it proposed token 99; the model has tokens 0 to 11"),
    "too few confidences": (Draft([1, 2], [0.5]), "it proposed 2 tokens with 1 confidences; give all or none"),
}


@pytest.mark.parametrize("kind", NO_DRAFTS)
@pytest.mark.parametrize("mode", DRAFTING)
def test_what_is_no_draft_costs_its_drafter_the_rest_of_the_answer(mode: Mode, kind: str) -> None:
    proposal, message = NO_DRAFTS[kind]

    class Wrong(Drafter):
        calls = 0

        def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
            Wrong.calls += 1
            return proposal  # type: ignore[no-any-return]

    language = RandomLanguage(2)
    with pytest.warns(RuntimeWarning, match=rf"the drafter failed \({message}") as warned:
        assert tokens_of(build(language, mode, Wrong()), max_tokens=20) == expected_text(language, PROMPT, 20)
    assert (len(warned), Wrong.calls) == (1, 1)


def test_tokens_of_numpy_are_tokens() -> None:
    language = RandomLanguage(2)
    own = Own(lambda text: language.full(text).argmax())  # type: ignore[arg-type, return-value]
    engine = build(language, Mode.SD, own)
    assert tokens_of(engine, max_tokens=20) == expected_text(language, PROMPT, 20)
    assert engine.stats.accepted > 0


@pytest.mark.parametrize("is_free", [False, True])
def test_the_time_of_its_calls_is_known_unless_it_is_free(is_free: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fakes.Clock()
    monkeypatch.setattr(drafting, "time", clock)

    def slow(text: list[int]) -> int:
        clock.now += 2.0
        return 1

    own = Own(slow)
    own.is_free = is_free
    engine = Engine(fakes.fake_verifier(RandomLanguage(1)), own, Policy(Mode.SD, 3))
    steps = engine.generate(PROMPT)
    next(steps)
    next(steps)
    assert engine.stats.passes["draft"] == (PassCount() if is_free else PassCount(3, 3, 6.0))


class Vandal(Drafter):
    """Writes into the text that it is shown."""

    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        assert isinstance(text, list)
        text.append(5)
        del text[:2]
        return Draft([1])


@pytest.mark.parametrize("draft_tokens", [3, None])
@pytest.mark.parametrize("mode", LOSSLESS)
def test_a_drafter_that_edits_the_text_it_is_shown_changes_nothing(mode: Mode, draft_tokens: int | None) -> None:
    language = RandomLanguage(5)
    engine = build(language, mode, Vandal(), draft_tokens=draft_tokens)
    assert tokens_of(engine, max_tokens=20) == expected_text(language, PROMPT, 20)
    assert engine.stats.drafted > 0


class Boastful(Drafter):
    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        return Draft([1], [float("nan")])


def test_confidences_that_are_none_end_a_drafter() -> None:
    language = RandomLanguage(5)
    engine = build(language, Mode.SD, Boastful())
    with pytest.warns(RuntimeWarning, match="must be from 0 to 1"):
        assert tokens_of(engine, max_tokens=9) == expected_text(language, PROMPT, 9)
