"""What `/stats` says of an answer."""

from __future__ import annotations

from collections import Counter

from via_sd_local.chat.report import report
from via_sd_local.engine.stats import PassCount, Stats
from via_sd_local.engine.steps import Tier


def test_a_plain_answer_is_told_in_four_lines() -> None:
    stats = Stats("plain", prompt_tokens=60, reused_tokens=20, completion_tokens=41, blocks=40)
    stats.seconds, stats.prefill_seconds = 2.5, 0.5
    stats.passes["full"] = PassCount(40, 40, 1.8)
    assert report(stats, {Tier.FULL: 1.0}, 4096) == [
        "answer       41 tokens in 2.0 s, 20.0 tokens/s, mode plain",
        "prompt       60 tokens, 20 of them known from earlier turns; 40 read in 0.5 s (80 tokens/s)",
        "context      101 of 4096 tokens",
        "full passes  40, 45.0 ms and 1.0 tokens each",
    ]


def test_drafts_are_told_in_rates_and_by_drafter() -> None:
    stats = Stats("sd", prompt_tokens=9, completion_tokens=41, blocks=16, drafted=40, accepted=24)
    stats.seconds = 2.0
    stats.drafts = {"lookup": Counter({(5, 4): 2}), "model": Counter({(3, 2): 8, (6, 0): 1})}
    stats.passes["draft"] = PassCount(20, 40, 0.1)
    lines = report(stats, {}, 512)
    assert lines[3:] == [
        "drafts        11, 3.6 tokens each; 60% of 40 tokens accepted; 2.5 tokens a block",
        "  lookup      80% of 10 tokens accepted",
        "  model       53% of 30 tokens accepted",
        "draft passes  20, 5.0 ms and 2.0 tokens each",
    ]


def test_an_answer_without_drafts_says_why() -> None:
    stats = Stats("sd", prompt_tokens=9, completion_tokens=1)
    lines = report(stats, {}, 512, "drafting would be slower")
    assert lines[0] == "answer   1 token in 0.0 s"
    assert lines[3] == "drafts   none: drafting would be slower"


def test_a_lossy_answer_tells_tiers_and_audits() -> None:
    stats = Stats("tiered", prompt_tokens=9, completion_tokens=40, regions={"A": 30, "B": 0, "C": 10, "bonus": 0})
    shares = {Tier.DRAFT: 0.75, Tier.SLIM: 0.0, Tier.FULL: 0.25}
    rows = dict(line.split(maxsplit=1) for line in report(stats, shares, 512, width=200))
    assert rows["tiers"] == "draft 75%, slim 0%, full 25%"
    assert rows["audits"] == "none yet"
    stats.audited["A"], stats.deviations["A"] = 20, 2
    rows = dict(line.split(maxsplit=1) for line in report(stats, shares, 512, width=200))
    assert rows["audits"] == "20 tokens of the slim tier seen by the full model; 2 of them are not its choice"
    assert rows["lossy"].endswith(
        "of tokens are not the full model's choice (5.0% by the slim tier, as audits estimate)"
    )
