"""What is counted, and the rates that follow from the counts."""

from __future__ import annotations

import json

from via_sd_local.engine.stats import PassCount, Stats


def test_a_pass_counts_its_calls_tokens_and_seconds_under_its_kind() -> None:
    stats = Stats("tiered")
    stats.record("slim", 4, 0.5)
    stats.record("slim", 3, 0.25)
    stats.record("full", 7, 2.0)
    assert stats.passes == {
        "draft": PassCount(),
        "slim": PassCount(2, 7, 0.75),
        "full": PassCount(1, 7, 2.0),
        "resume": PassCount(),
    }
    assert stats.prefill_seconds == 0


def test_prefill_is_kept_apart_from_the_passes() -> None:
    stats = Stats("sd")
    stats.record("prefill", 100, 1.5)
    stats.record("prefill", 20, 0.5)
    assert stats.prefill_seconds == 2.0
    assert all(count == PassCount() for count in stats.passes.values())


def test_rates_before_anything_happened_are_none() -> None:
    stats = Stats("sd", seconds=1.0)
    assert stats.rejection_rate is None
    assert stats.acceptance_length is None
    assert stats.tokens_per_second is None
    assert stats.overhead_seconds == 1.0


def test_one_token_alone_has_no_speed_of_decoding() -> None:
    stats = Stats("sd", completion_tokens=1, seconds=2.0, first_token_seconds=1.9)
    assert stats.tokens_per_second is None
    assert stats.acceptance_length is None


def counted() -> Stats:
    stats = Stats(
        "sd",
        prompt_tokens=5,
        reused_tokens=2,
        completion_tokens=13,
        drafted=16,
        accepted=12,
        blocks=4,
        first_token_seconds=1.0,
        seconds=6.75,
    )
    stats.record("prefill", 3, 0.75)
    stats.record("full", 20, 4.0)
    stats.record("draft", 16, 1.25)
    return stats


def test_rates_are_derived_from_the_counts() -> None:
    stats = counted()
    assert stats.rejection_rate == 0.25
    assert stats.acceptance_length == 3.0  # the first token belongs to the prefill
    assert stats.tokens_per_second == 2.0
    assert stats.overhead_seconds == 0.75


def test_a_clock_that_did_not_move_gives_no_speed() -> None:
    stats = Stats("sd", completion_tokens=5, blocks=2, seconds=1.0, prefill_seconds=1.0)
    assert stats.tokens_per_second is None


def test_json_holds_counters_and_rates() -> None:
    data = counted().to_json()
    assert json.loads(json.dumps(data)) == data
    expected = {"mode": "sd", "prompt_tokens": 5, "reused_tokens": 2, "completion_tokens": 13, "drafted": 16}
    expected |= {"accepted": 12, "rejection_rate": 0.25, "acceptance_length": 3.0, "tokens_per_second": 2.0}
    expected |= {"prefill_seconds": 0.75, "first_token_seconds": 1.0, "seconds": 6.75, "overhead_seconds": 0.75}
    assert {name: data[name] for name in expected} == expected
    assert data["passes"]["full"] == {"calls": 1, "tokens": 20, "seconds": 4.0}
    assert data["regions"] == {"A": 0, "B": 0, "C": 0, "bonus": 0}


def test_two_generations_share_no_counters() -> None:
    first, second = Stats("sd"), Stats("sd")
    first.record("full", 1, 1.0)
    first.regions["A"] += 1
    assert second.passes["full"] == PassCount()
    assert second.regions["A"] == 0


def test_one_histogram_of_drafts_gives_lengths_and_acceptance_by_position() -> None:
    stats = Stats("sd")
    assert stats.acceptance_by_position == []
    for drafter, drafted, accepted in (("model", 3, 3), ("model", 3, 1), ("model", 1, 1), ("lookup", 3, 0)):
        stats.judged(drafter, drafted, accepted)
    assert stats.accepted == 5
    assert stats.draft_lengths == {1: 1, 3: 3}
    assert stats.accepted_lengths == {0: 1, 1: 2, 3: 1}
    assert stats.acceptance_by_position == [3 / 4, 1 / 3, 1 / 3]
    data = json.loads(json.dumps(stats.to_json()))
    assert data["draft_lengths"] == {"1": 1, "3": 3}
    assert list(data["accepted_lengths"].items()) == [("0", 1), ("1", 2), ("3", 1)]
    assert data["acceptance_by_position"] == stats.acceptance_by_position
    assert data["drafters"] == {
        "model": {"drafts": 3, "drafted": 7, "accepted": 5},
        "lookup": {"drafts": 1, "drafted": 3, "accepted": 0},
    }


def test_deviations_of_the_slim_tier_and_by_lenience_are_counted_apart() -> None:
    stats = Stats("tiered", completion_tokens=50, lenient=4)
    assert (stats.slim_deviation, stats.lenient_deviation, stats.deviation) == (None, None, None)
    stats.audited["C"] = 20
    assert (stats.slim_deviation, stats.lenient_deviation, stats.deviation) == (None, 0.08, 0.08)
    stats.audited["A"], stats.deviations["A"] = 30, 1
    assert (stats.slim_deviation, stats.lenient_deviation) == (0.02, 0.08)
    data = stats.to_json()
    assert (data["lenient"], data["deviations"]) == (4, {"A": 1, "B": 0})
    assert (data["slim_deviation"], data["lenient_deviation"]) == (0.02, 0.08)
    assert data["deviation"] == 0.02 + 0.08


def test_tokens_are_in_flight_until_the_full_model_has_seen_them() -> None:
    stats = Stats("tiered")
    for tokens, confirmed in ((1, True), (4, False), (3, False), (2, True), (5, False)):
        stats.emitted(tokens, confirmed=confirmed)
    assert stats.completion_tokens == 15
    assert (stats.in_flight, stats.max_in_flight) == (5, 7)
    assert stats.to_json()["max_in_flight"] == 7
