"""Several drafters: the first one that has a proposal drafts, each is judged by its own record."""

from __future__ import annotations

from collections.abc import Sequence

import fakes
import pytest
from fakes import FakeDrafter, RandomLanguage, Script, expected_text
from generations import COUNT, DRAFTING, PROMPT, START, build, tokens_of

from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.pace import Pace
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.tiers.drafter import Drafter
from via_sd_local.tiers.prompt_lookup import PromptLookup

FLAT = {kind: {1: seconds, 32: 1.3 * seconds} for kind, seconds in (("full", 0.1), ("draft", 0.01))}


class FixedCosts(Costs):
    """What passes really take here changes nothing."""

    def __init__(self) -> None:
        self.observe = super().observe  # type: ignore[method-assign]
        super().__init__(FLAT)
        self.observe = lambda *_pass: None  # type: ignore[method-assign]


def named(name: str, drafter: FakeDrafter, *, is_free: bool = True) -> FakeDrafter:
    drafter.name, drafter.is_free = name, is_free
    return drafter


def test_the_second_is_asked_only_where_the_first_finds_nothing() -> None:
    first = named("first", fakes.scripted({4: 4, 5: 5, 11: 9}))
    second = named("second", fakes.oracle(Script(COUNT)))
    engine = build(Script(COUNT), Mode.SD, [first, second])
    assert tokens_of(engine, START, max_tokens=13) == COUNT[3:16]
    # 4 5 by the first, then 7 8 9 by the second; at 11 the first is right about nothing
    assert [len(text) for text in first.texts] == [4, 7, 11, 12]
    assert [len(text) for text in second.texts] == [7, 12]
    assert (first.observed, second.observed) == ([2, 0], [3, 3])
    assert {name: row["drafts"] for name, row in engine.stats.to_json()["drafters"].items()} == {
        "first": 2,
        "second": 2,
    }


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("failing", [0, 1])
def test_one_that_fails_is_dropped_alone(mode: Mode, failing: int) -> None:
    class Failing(FakeDrafter):
        def propose(self, text: Sequence[int], *_more: object) -> fakes.Draft:  # type: ignore[override]
            raise OSError("the disk is gone")

    language = RandomLanguage(2, confidences=[0.3])
    by_turns = FakeDrafter(lambda text: int(language.full(text).argmax()) if len(text) % 4 else None)
    drafters: list[FakeDrafter] = [by_turns, by_turns]
    drafters[failing] = Failing(lambda _text: None)
    engine = build(language, mode, [*drafters])
    with pytest.warns(RuntimeWarning, match=r"the disk is gone\); going on without it") as warned:
        assert tokens_of(engine, max_tokens=30) == expected_text(language, PROMPT, 30)
    assert len(warned) == 1
    assert engine.stats.accepted > 0


def test_all_that_fail_leave_an_answer_without_drafts() -> None:
    class Failing(FakeDrafter):
        def propose(self, text: Sequence[int], *_more: object) -> fakes.Draft:  # type: ignore[override]
            raise OSError("the disk is gone")

    engine = build(Script(COUNT), Mode.SD, [Failing(lambda _text: None), Failing(lambda _text: None)])
    with pytest.warns(RuntimeWarning, match="going on without") as warned:
        assert tokens_of(engine, START, max_tokens=9) == COUNT[3:12]
    assert [str(w.message).rsplit(" ", 1)[1] for w in warned] == ["it", "drafts"]


def test_each_has_an_acceptance_of_its_own() -> None:
    """One that is always wrong costs the other nothing: it is passed over, and the other goes on drafting."""
    language = Script(COUNT * 12)
    wrong, right = named("wrong", fakes.always_wrong(language)), named("right", fakes.oracle(language), is_free=False)
    engine = Engine(fakes.fake_verifier(language, n_ctx=700), [wrong, right], Policy(Mode.SD), FixedCosts())
    assert tokens_of(engine, START, max_tokens=600) == (COUNT * 12)[3:603]
    assert engine.paces[0].acceptance["full"].mean < 0.4
    assert engine.paces[1].acceptance["full"].mean > 0.9
    drafts = engine.stats.to_json()["drafters"]
    assert drafts["wrong"]["accepted"] == 0
    assert drafts["right"]["accepted"] > 400
    assert drafts["wrong"]["drafts"] < 30
    assert engine.stats.pace["off"] > drafts["wrong"]["drafts"]
    assert engine.stats.pace["probes"] > 0  # it is tried now and then


def test_a_good_free_one_is_preferred_to_a_good_one_that_costs() -> None:
    language = Script(COUNT * 12)
    free, dear = named("free", fakes.oracle(language)), named("dear", fakes.oracle(language), is_free=False)
    engine = Engine(fakes.fake_verifier(language, n_ctx=700), [free, dear], Policy(Mode.SD), FixedCosts())
    tokens_of(engine, START, max_tokens=600)
    assert engine.stats.to_json()["drafters"].keys() == {"free"}


def test_what_another_promises_is_what_a_draft_must_beat() -> None:
    pace = Pace(Costs(FLAT), free=True)
    best = pace.promised(100)
    assert pace.next_length(100, 0.9 * best) > 0
    assert pace.next_length(100, 1.1 * best) == 0
    assert Pace(Costs()).promised(100) == pace.promised(0) == 0


def test_no_drafts_is_news_where_one_of_them_costs_something() -> None:
    language = RandomLanguage(0)

    def engine(*drafters: Drafter) -> Engine:
        made = Engine(fakes.fake_verifier(language), drafters, Policy(Mode.SD, 3))
        tokens_of(made, max_tokens=12)
        return made

    silent = named("silent", fakes.silent(language), is_free=False)
    assert engine(PromptLookup(min_ngram=4), silent).why_no_drafts == "the drafter found nothing to propose"
    assert engine(PromptLookup(min_ngram=4), PromptLookup(min_ngram=4)).why_no_drafts is None
