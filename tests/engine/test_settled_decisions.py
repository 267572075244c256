"""Decisions of the slim tier that stay decided: no full pass computes their positions again."""

from __future__ import annotations

from typing import Any

import fakes
import pytest
from fakes import RandomLanguage
from generations import COUNT, PROMPT, START, build, generate, tokens_of

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import PaperRule
from via_sd_local.engine.passes import MOST_SETTLED
from via_sd_local.engine.policy import NEVER, Mode, Policy

LONG = [n % fakes.POISON for n in range(400)]


def viasd(slim_says: dict[int, tuple[int, float]], text: list[int] = COUNT, **policy: Any) -> Engine:
    """The full tier counts; the slim tier does so, too, except where said; the drafter is always right."""
    verifier = fakes.fake_verifier(fakes.Script(text, slim_says), n_ctx=256)
    options = {"draft_tokens": 3, "rule": PaperRule(0.3, 0.7), "write_through": True} | policy
    return Engine(verifier, fakes.scripted(dict(enumerate(text))), Policy.viasd(**options))


def full_passes(engine: Engine) -> list[tuple[int, int]]:
    """First position and tokens of each pass of the full tier, the prompt's excluded."""
    context: Any = engine.verifier.context
    return [(start, n) for kind, start, n in context.passes if kind != "slim"][1:]


def test_an_escalation_computes_its_own_block_and_no_earlier_one() -> None:
    """Two blocks of four tokens are decided by the slim tier; in the third it doubts the second token."""
    doubt = {13: (9, 0.9)}
    tokens, _, _ = generate(one := viasd(doubt), START, max_tokens=14)
    assert tokens == COUNT[3:17]
    assert full_passes(one) == [(10, 4)]  # the rest of the block, and room for one earlier decision to audit
    assert one.stats.settled == 8 + 2  # and the last block
    generate(other := viasd(doubt, write_through=False), START, max_tokens=14)
    assert full_passes(other)[0] == (3, 12)
    assert other.stats.settled == 0


def test_an_audit_computes_as_many_settled_positions_as_a_pass_of_mode_sd_has_room_for() -> None:
    for doubted, own in ((12, 0), (13, 1), (14, 2)):
        generate(engine := viasd({doubted: (9, 0.9)}), START, max_tokens=14)
        assert full_passes(engine)[0][1] == 4
        audited = engine.stats.audited["A"] + engine.stats.audited["B"]
        assert audited == own + 1
        assert engine.stats.unaudited == 8 + own - audited


def test_after_many_settled_tokens_the_next_pass_computes_all_of_them() -> None:
    start = len(START)
    doubt = {100: (9, 0.9), 112: (9, 0.9)}
    engine = viasd(doubt, LONG, audit_every=NEVER)
    assert tokens_of(engine, LONG[:3], max_tokens=120) == LONG[3:123]
    (first, n), (second, few), *_ = full_passes(engine)
    assert first == start
    assert n > MOST_SETTLED
    assert few <= 4
    assert second > first + n


def test_the_next_text_computes_settled_positions_again() -> None:
    engine = viasd({})
    tokens = tokens_of(engine, START, max_tokens=9)
    verifier = engine.verifier
    assert (verifier.n_exact, verifier.n_full) == (3, 11)
    generate(engine, [*START, *tokens], max_tokens=2)
    assert engine.stats.reused_tokens == 3


@pytest.mark.parametrize("mode", [Mode.TIERED, Mode.VIASD])
@pytest.mark.parametrize("draft_tokens", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_no_pass_is_larger_than_without(mode: Mode, draft_tokens: int, seed: int) -> None:
    """The fakes check every pass: positions without gaps, and full passes over cells that have K/V."""
    tokens = {}
    for write_through in (True, False):
        language = RandomLanguage(seed, agreement=0.9, confidences=(0.2, 0.6, 0.9))
        rule = PaperRule(0.3, 0.7) if mode is Mode.VIASD else PaperRule(0.5, 0.9)
        engine = build(language, mode, fakes.sometimes_right(language))
        engine.close()
        policy = Policy(mode, draft_tokens, rule, 16, write_through=write_through)
        engine = Engine(fakes.fake_verifier(language), fakes.sometimes_right(language), policy)
        generate(engine, PROMPT, max_tokens=60)
        full = [engine.stats.passes[kind] for kind in ("full", "resume")]
        tokens[write_through] = sum(passes.tokens for passes in full) / max(1, sum(passes.calls for passes in full))
        assert (engine.stats.settled > 0) == write_through
    assert tokens[True] < tokens[False]


def test_only_modes_that_trust_the_slim_tier_write_through() -> None:
    for mode in (Mode.PLAIN, Mode.SD, Mode.EXACT, Mode.LENIENT):
        with pytest.raises(ValueError, match=f"write_through is for the modes tiered and viasd; .*'{mode.value}'"):
            Policy(mode, write_through=True)
    with pytest.raises(ValueError, match=r"write_through has no budget; max_deviation is 0\.1"):
        Policy.viasd(max_deviation=0.1, write_through=True)
