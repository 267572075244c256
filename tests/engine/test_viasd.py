"""The paper's method and its parts by name: the rule's regions in a block, the routers, and audits."""

from __future__ import annotations

from typing import Any

import fakes
import pytest
from generations import COUNT, START, D, F, S, build, generate, regions, tokens_of

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import PAPER_RULE, PaperRule
from via_sd_local.engine.policy import NEVER, Mode, Policy, Router

RULE = PaperRule(0.3, 0.7)


def viasd(slim_says: dict[int, tuple[int, float]], draft: dict[int, int], **policy: Any) -> Engine:
    """The full tier counts; the slim tier and the drafter do so, too, except where said."""
    verifier = fakes.fake_verifier(fakes.Script(COUNT, slim_says))
    drafter = fakes.scripted({**dict(enumerate(COUNT)), **draft})
    return Engine(verifier, drafter, Policy.viasd(**({"draft_tokens": 3, "rule": RULE} | policy)))


def test_the_preset_is_the_papers() -> None:
    policy = Policy.viasd()
    assert (policy.mode, policy.draft_tokens, policy.rule) == (Mode.VIASD, 5, PAPER_RULE)
    assert (policy.router, policy.max_deviation) == (Router.SLIM_FIRST, None)
    assert not policy.mode.is_lenient
    assert policy.mode.is_lossy


def test_what_the_slim_tier_agrees_with_is_kept_without_the_full_one() -> None:
    one = viasd({}, {})
    tokens, tiers, _ = generate(one, START, max_tokens=9)
    assert tokens == COUNT[3:12]
    assert tiers == [F, D, D, D, S, D, D, D, S]
    assert one.stats.regions == regions(a=6, bonus=2)
    assert one.stats.passes["full"].calls == 0


def test_a_token_that_the_slim_tier_rules_out_is_decided_by_the_full_one() -> None:
    """At probability 0.9 of its own choice, r of any other token is 0.011: region C, where joint would rewrite."""
    one = viasd({5: (9, 0.9)}, {})
    tokens, tiers, _ = generate(one, START, max_tokens=5)
    assert tokens == COUNT[3:8]
    assert tiers[:4] == [F, D, F, F]
    assert one.stats.regions["C"] == 1
    assert one.stats.regions["B"] == 0


def test_a_token_that_the_slim_tier_doubts_is_rewritten() -> None:
    """At probability 0.2 of its own choice, r of any other token is 0.44: region B of paper:0.3,0.7."""
    one = viasd({5: (9, 0.2)}, {})
    tokens, tiers, _ = generate(one, START, max_tokens=4)
    assert tokens[:3] == [3, 4, 9]
    assert tiers[:3] == [F, D, S]
    assert one.stats.regions["B"] == 1


def test_there_is_no_lenience_even_with_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("via_sd_local.engine.budget._WORST", 0.001)
    says = {n: ((COUNT[n] + 5) % 10, 0.9) for n in range(4, 64)}
    wrong = {n: (COUNT[n] + 1) % 10 for n in range(5, 64, 3)}
    one = viasd(says, wrong, max_deviation=0.5)
    assert tokens_of(one, START, max_tokens=50) == COUNT[3:53]
    assert one.stats.lenient == 0


@pytest.mark.parametrize("draft_tokens", [3, None])
@pytest.mark.parametrize("router", [Router.SLIM_FIRST, Router.FULL_FIRST])
def test_a_fixed_router_always_asks_the_same_tier_first(router: Router, draft_tokens: int | None) -> None:
    language = fakes.RandomLanguage(3)
    one = Engine(
        fakes.fake_verifier(language), fakes.oracle(language), Policy(Mode.TIERED, draft_tokens, router=router)
    )
    tokens_of(one, max_tokens=40)
    slim = one.stats.passes["slim"].calls
    assert (slim == 0) if router is Router.FULL_FIRST else (slim >= one.stats.draft_lengths.total() > 0)
    assert one.why_no_slim is None


def test_without_audits_the_full_tier_sees_only_what_escalates() -> None:
    language = fakes.Script(COUNT)
    audited, never = (build(language, Mode.TIERED, audit_every=every) for every in (8, NEVER))
    for one in (audited, never):
        assert tokens_of(one, START, max_tokens=50) == COUNT[3:53]
    assert audited.stats.audits > 0
    assert (never.stats.audits, never.stats.passes["full"].calls) == (0, 1)  # the last token leaves no room for a draft


def test_a_budget_without_audits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_deviation is 0\.1, but audit_every is never"):
        Policy(Mode.TIERED, audit_every=NEVER, max_deviation=0.1)
