"""What full passes say of the slim tier's tokens, and what a spent budget changes. Fakes: the full tier counts."""

from __future__ import annotations

from typing import Any

import fakes
import pytest

from via_sd_local.engine.budget import DeviationBudget
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule, JointRule, RatioRule
from via_sd_local.engine.pace import Pace
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.stats import Stats
from via_sd_local.engine.steps import Step, Tier
from via_sd_local.sampling.params import SamplingParams

COUNT = [n % 10 for n in range(64)]
START = COUNT[:3]
D, S, F = Tier.DRAFT, Tier.SLIM, Tier.FULL


def engine(slim_says: dict[int, tuple[int, float]], draft: dict[int, int] | None = None, **policy: Any) -> Engine:
    drafter = fakes.scripted({**{n: COUNT[n] for n in range(64)}, **(draft or {})})
    verifier = fakes.fake_verifier(fakes.Script(COUNT, slim_says))
    return Engine(verifier, drafter, Policy(Mode.TIERED, 3, JointRule(0.5, 0.5), **policy))


def steps(one: Engine, n: int, **options: Any) -> list[Step]:
    iterator = one.generate(START, **options)
    return [next(iterator) for _ in range(n)]


def test_a_full_pass_audits_every_token_since_the_last_one() -> None:
    """Blocks 4 5 6 7 (bonus), 8 9 0 1 (bonus), then the slim tier is unsure of the first of 2 3 4."""
    one = engine({12: (2, 0.4)})
    assert [step.tiers for step in steps(one, 4)] == [(F,), (D, D, D, S), (D, D, D, S), (F, F, F, F)]
    assert one.stats.audited == {"A": 6, "B": 2, "C": 4}
    assert one.stats.deviations == {"A": 0, "B": 0}


def test_deviations_are_counted_by_region() -> None:
    """The slim tier lets 9 through in place of 5 (A), rewrites 9 to 0 (B), and is then unsure of 10."""
    one = engine({5: (9, 0.9), 9: (0, 0.9), 10: (0, 0.4)}, {5: 9})
    tokens = [step.tokens for step in steps(one, 4)]
    assert tokens == [(3,), (4, 9, 6, 7), (8, 0), (0, 1, 2, 3)]
    assert one.stats.audited == {"A": 4, "B": 2, "C": 4}
    assert one.stats.deviations == {"A": 1, "B": 1}
    assert one.stats.deviation == pytest.approx(2 / 6 * 6 / 11)


def test_overshoot_is_the_probability_beyond_the_full_models() -> None:
    """The full tier gives its choice 0.9 and the other tokens 0.01 each; the drafter has no confidences: 1."""
    one = engine({5: (9, 0.8), 7: (7, 0.7), 8: (8, 0.4)}, {5: 9})
    steps(one, 3)
    assert one.stats.overshoot["A"] == pytest.approx([1 - 0.9, 1 - 0.01, 1 - 0.9], abs=1e-6)
    assert one.stats.overshoot["B"] == pytest.approx([0.7 - 0.9], abs=1e-6)
    summary = one.stats.to_json()["overshoot"]
    assert summary["A"] == pytest.approx({"mean": (0.1 + 0.99 + 0.1) / 3, "p95": 0.99, "max": 0.99}, abs=1e-6)


def test_a_spent_budget_takes_back_what_was_not_handed_out() -> None:
    """With no deviation permitted, the 9 in the escalating block goes, and the full tier's 5 stands in its place."""
    lax = engine({5: (9, 0.9), 6: (6, 0.4)}, {5: 9})
    assert steps(lax, 2)[1] == Step((4, 9, 6, 7), (D, D, F, F))
    strict = engine({5: (9, 0.9), 6: (6, 0.4)}, {5: 9}, max_deviation=0.01)
    strict.budget.spend(1)
    assert steps(strict, 2)[1] == Step((4, 5), (D, F))
    assert strict.stats.tightened == 1
    assert strict.stats.accepted == 1
    assert strict.stats.deviation == 0, "what nobody has seen is no deviation of the text"
    assert strict.stats.audited == {"A": 1, "B": 0, "C": 1}
    assert strict.stats.regions["A"] == 1


def test_a_block_that_is_taken_back_is_not_charged_but_remembered() -> None:
    one = engine({4: (9, 0.9), 5: (9, 0.9), 6: (6, 0.4)}, {4: 9, 5: 9}, max_deviation=0.01)
    assert steps(one, 2)[1] == Step((4,), (F,))
    assert one.budget.credit == pytest.approx(0.01)  # of the full tier's token
    assert one.trust.rate > 0.5, "both decisions deviated"
    assert one.stats.audited == {"A": 0, "B": 0, "C": 1}


def test_the_state_of_the_sampler_goes_back_with_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a token was taken back, its penalty is gone: what follows is as if it had never been."""
    accepted: list[list[int]] = []

    class Remembering:
        def __init__(self, text: list[int]) -> None:
            self.text = text
            accepted.append(text)

        greedy = is_distribution = True
        calls_processors = False
        random = None

        def processed(self, logits: Any) -> Any:
            return logits

        def choose(self, logits: Any) -> int:
            return int(logits.argmax())

        def accept(self, token: int) -> None:
            self.text.append(token)

        def fork(self, *, fresh: bool = False) -> Remembering:
            return Remembering(list(self.text))

        def close(self) -> None: ...

    strict = engine({5: (9, 0.9), 6: (6, 0.4)}, {5: 9}, max_deviation=0.01)
    strict.budget.spend(1)
    monkeypatch.setattr(strict.verifier, "make_sampler", lambda *_args: Remembering([]))
    done = steps(strict, 3)
    emitted = [token for step in done for token in step.tokens]
    assert emitted[:3] == [3, 4, 5]
    assert emitted in accepted
    assert [3, 4, 9, 5] not in [text[:4] for text in accepted]


def test_a_budget_that_stays_spent_ends_in_plain_speculative_decoding() -> None:
    wrong = {n: ((COUNT[n] + 1) % 10, 0.999) for n in range(4, 60)}
    one = engine(wrong, {n: token for n, (token, _) in wrong.items()}, max_deviation=0.001, audit_every=2)
    tokens = [token for step in one.generate(START, max_tokens=50) for token in step.tokens]
    assert one.stats.tightened == 4
    assert tokens[-40:] == COUNT[13:53]  # the full model's own
    assert one.stats.passes["slim"].calls <= 5
    list(one.generate(START, max_tokens=50))
    assert one.stats.passes["slim"].calls <= 3, "it is remembered from answer to answer"


def test_one_deviation_is_no_evidence_against_a_budget() -> None:
    one = engine({5: (9, 0.9), 6: (6, 0.4)}, {5: 9}, max_deviation=0.05)
    assert steps(one, 2)[1].tokens == (4, 9, 6, 7)
    assert one.stats.tightened == 0


@pytest.mark.parametrize("rule", [JointRule(0.5, 0.4), ConfidenceRule(0.7, 0.3), RatioRule(0.7, 0.3)], ids=str)
def test_a_tighter_rule_asks_for_more(rule: Any) -> None:
    tighter = rule.tighter()
    for ratio in (0.1, 0.2, 0.5, 0.8, 1.0):
        for top in (0.2, 0.35, 0.45, 0.6, 0.9):
            assert rule.keeps(ratio, top) or not tighter.keeps(ratio, top)
            assert rule.rewrites(ratio, top) or not tighter.rewrites(ratio, top)
    assert tighter != rule


def test_a_forced_audit_is_no_escalation() -> None:
    one = engine({}, audit_every=4)
    steps(one, 4)
    assert one.stats.audits > 0
    assert one.stats.regions["C"] == 0
    assert one.stats.regions["A"] + one.stats.regions["bonus"] >= sum(one.stats.audited.values())


@pytest.mark.parametrize(
    ("truncation", "distance"),
    [({}, 0.89), pytest.param({"top_k": 1}, 1.0, marks=pytest.mark.native)],
    ids=["all tokens", "top-k 1"],
)
def test_a_sampled_token_deviates_by_the_distance_of_the_distributions(
    truncation: dict[str, Any], distance: float
) -> None:
    """The slim tier gives 9 the probability 0.9 where the full one gives it to 5; at 6 it is unsure, and escalates.

    Their total variation distance is 0.9 - 0.01, what the other ten tokens share being the same; with top-k 1 it is 1.
    """
    one = engine({5: (9, 0.9), 6: (6, 0.4)}, {5: 9})
    sampling = SamplingParams(temperature=1.0, seed=1, **truncation)
    steps(one, 2, sampling=sampling)
    assert sum(one.stats.audited[region] for region in "AB") == 2
    assert one.stats.deviations["A"] + one.stats.deviations["B"] == pytest.approx(distance, abs=1e-6)


def test_there_is_no_deviation_before_an_audit() -> None:
    assert Stats("tiered").deviation is None


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_budget_is_a_share(value: float) -> None:
    with pytest.raises(ValueError, match=f"max_deviation is {value}; it must be a share from 0 to 1"):
        Policy(Mode.TIERED, max_deviation=value)


def test_a_block_that_goes_to_the_full_tier_at_once_audits_the_waiting_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks by turns: slim first (4 5 6 7), then the full tier at once: it decides 8 9 0 1 and audits 4 5 6 7."""
    one = engine({5: (9, 0.9)}, {5: 9})
    one.policy = Policy(Mode.TIERED, None, JointRule(0.5, 0.5))
    one.paces = [Pace(Costs(), routes=("slim", "full"), free=True)]
    monkeypatch.setattr(one.pace, "next_length", lambda room, *_: min(room, 3))
    turns = iter(["slim", "full", "slim", "full"])
    monkeypatch.setattr(one.pace, "choose_route", lambda *_args: next(turns))
    done = steps(one, 3)
    assert [(step.tokens, step.tiers) for step in done[1:]] == [
        ((4, 9, 6, 7), (D, D, D, S)),
        ((8, 9, 0, 1), (F, F, F, F)),
    ]
    assert one.stats.audited == {"A": 3, "B": 1, "C": 4}
    assert one.stats.deviations == {"A": 1, "B": 0}
    assert one.stats.accepted == 6
    assert one.verifier.n_full == one.verifier.n_kv == len(START) + 8


@pytest.mark.parametrize("seed", range(4))
def test_tiered_that_asks_the_full_tier_every_time_is_lossless(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    language = fakes.RandomLanguage(seed)
    one = Engine(fakes.fake_verifier(language), fakes.sometimes_right(language), Policy(Mode.TIERED))
    monkeypatch.setattr(Pace, "choose_route", lambda *_args: "full")  # a seed has paces of its own
    for temperature in (0.0, 0.9):
        params = SamplingParams(temperature=temperature, seed=seed)
        expected = fakes.expected_text(language, [1, 2, 3], 30, sampling=params)
        got = [token for step in one.generate([1, 2, 3], max_tokens=30, sampling=params) for token in step.tokens]
        assert got == expected
        assert one.stats.passes["slim"].calls == 0


def test_a_small_model_audits_the_block_at_hand_and_keeps_its_memory() -> None:
    """The logits of all waiting tokens would take more than 0.25 % of the model: as many rows as `sd` has must do.

    So the draft's last token goes unchecked, for the sake of the token before the block.
    """
    one = engine({9: (9, 0.4)}, {})
    one.verifier.model.n_bytes = 0  # type: ignore[misc]
    assert [step.tiers for step in steps(one, 3)] == [(F,), (D, D, D, S), (D, F, F)]
    assert one.stats.audited == {"A": 1, "B": 1, "C": 2}  # 8 and the bonus 7; before them 4 5 6 went unseen
    assert one.stats.deviations == {"A": 0, "B": 0}
    (drafts,) = one.stats.drafts.values()
    assert one.stats.drafted == sum(drafted * n for (drafted, _), n in drafts.items()) == 5


def test_tokens_that_are_not_audited_are_charged_at_the_upper_bound_of_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five waiting tokens two are looked at, and one of them deviates: for the other three, the bound counts."""
    spent: list[float] = []
    monkeypatch.setattr(DeviationBudget, "spend", lambda self, deviations: spent.append(deviations))
    monkeypatch.setattr(DeviationBudget, "covers", lambda *_: True)
    one = engine({7: (0, 0.9), 9: (9, 0.4)}, {}, max_deviation=0.5)
    one.verifier.model.n_bytes = 0  # type: ignore[misc]
    steps(one, 3)
    assert one.stats.deviations == {"A": 0, "B": 1}
    assert one.stats.audited == {"A": 1, "B": 1, "C": 2}
    assert 0.5 < one.trust.rate < 1
    assert spent[0] == pytest.approx(1 + 3 * one.trust.rate)
    assert (one.stats.unaudited, one.stats.assumed_deviations) == (3, pytest.approx(3 * one.trust.rate))
    assert one.stats.deviation == pytest.approx((1 + 3 * one.trust.rate) / one.stats.completion_tokens)


def test_a_block_that_ends_the_text_is_audited_first_if_it_is_not_covered() -> None:
    """The slim tier says the end token 9 in place of 6; nothing is known of it yet, so the full tier has a look."""
    say = {6: (9, 0.9)}
    lax, strict = engine(say, {6: 9}), engine(say, {6: 9}, max_deviation=0.01)
    strict.budget.spend(1)
    for one, expected in ((lax, COUNT[3:6]), (strict, COUNT[3:9])):
        one.verifier.model.eog = frozenset({9})  # type: ignore[attr-defined]
        assert [token for step in one.generate(START) for token in step.tokens] == expected
    assert strict.stats.deviation == 0


def test_an_end_token_that_the_full_tier_would_choose_ends_the_text_after_its_audit() -> None:
    one = engine({}, max_deviation=0.01)
    one.verifier.model.eog = frozenset({6})  # type: ignore[attr-defined]
    assert [token for step in one.generate(START) for token in step.tokens] == COUNT[3:6]
    assert one.stats.audited == {"A": 3, "B": 0, "C": 0}
    assert (one.stats.deviation, one.stats.in_flight) == (0, 0)


def test_long_automatic_drafts_still_leave_a_row_to_audit_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model, blocks by turns: slim first (4 5 6 7), then the full tier at once with a draft of 8 tokens."""
    one = engine({7: (0, 0.9)}, {})
    one.verifier.model.n_bytes = 0  # type: ignore[misc]
    one.policy = Policy(Mode.TIERED, None, JointRule(0.5, 0.5))
    one.paces = [Pace(Costs(), routes=("slim", "full"), free=True)]
    lengths, turns = iter([3, 8]), iter(["slim", "full"])
    monkeypatch.setattr(one.pace, "next_length", lambda *_: next(lengths))
    monkeypatch.setattr(one.pace, "choose_route", lambda *_: next(turns))
    steps(one, 3)
    assert (one.stats.audited["A"] + one.stats.audited["B"], one.stats.unaudited) == (1, 3)
    assert one.stats.deviations == {"A": 0, "B": 1}
