"""One block on a language without weights: which tier decides which token, and in which passes."""

from __future__ import annotations

import fakes
import pytest
from fakes import Script
from generations import COUNT, START, D, F, S, build, regions, watched

from via_sd_local.engine.policy import Mode
from via_sd_local.engine.race import Race
from via_sd_local.engine.steps import Step, Tier


@pytest.mark.parametrize(
    ("draft", "slim_says", "tokens", "tiers", "counted", "accepted"),
    [
        # all A, the slim verifier sure of a bonus
        ([4, 5, 6], {}, (4, 5, 6, 7), (D, D, D, S), regions(a=3, bonus=1), 3),
        ([4, 5, 6], {7: (9, 0.9)}, (4, 5, 6, 9), (D, D, D, S), regions(a=3, bonus=1), 3),
        # all A, and no bonus
        ([4, 5, 6], {7: (7, 0.4)}, (4, 5, 6), (D, D, D), regions(a=3), 3),
        # A although the full verifier would say otherwise: the mode is lossy
        ([4, 9, 6], {5: (9, 0.9)}, (4, 9, 6, 7), (D, D, D, S), regions(a=3, bonus=1), 3),
        # B rewrites the token and ends the block
        ([4, 9, 6], {}, (4, 5), (D, S), regions(a=1, b=1), 1),
        ([4, 5, 6], {5: (9, 0.9)}, (4, 9), (D, S), regions(a=1, b=1), 1),
        ([9, 5, 6], {}, (4,), (S,), regions(b=1), 0),
        ([4, 5, 9], {}, (4, 5, 6), (D, D, S), regions(a=2, b=1), 2),
        # C: the full verifier decides from there on, as in ordinary speculative decoding
        ([4, 5, 6], {5: (5, 0.4)}, (4, 5, 6, 7), (D, F, F, F), regions(a=1, c=1), 3),
        ([4, 9, 6], {5: (5, 0.4)}, (4, 5), (D, F), regions(a=1, c=1), 1),
        ([4, 5, 9], {5: (9, 0.4)}, (4, 5, 6), (D, F, F), regions(a=1, c=1), 2),
        ([4, 5, 6], {4: (0, 0.4)}, (4, 5, 6, 7), (F, F, F, F), regions(c=1), 3),
        ([9, 5, 6], {4: (4, 0.4)}, (4,), (F,), regions(c=1), 0),
        ([4, 5, 6], {6: (6, 0.4)}, (4, 5, 6, 7), (D, D, F, F), regions(a=2, c=1), 3),
        # a B after a C does not count: the slim verifier has no say any more
        ([4, 5, 6], {5: (5, 0.4), 6: (9, 0.9)}, (4, 5, 6, 7), (D, F, F, F), regions(a=1, c=1), 3),
        # nothing drafted: the full verifier, as in plain decoding
        ([], {}, (4,), (F,), regions(), 0),
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_tiered_block(
    draft: list[int],
    slim_says: dict[int, tuple[int, float]],
    tokens: tuple[int, ...],
    tiers: tuple[Tier, ...],
    counted: dict[str, int],
    accepted: int,
    resume: bool,
) -> None:
    drafter = fakes.scripted(dict(enumerate(draft, start=4)))
    engine = build(Script(COUNT, slim_says), Mode.TIERED, drafter, resume=resume)
    steps = watched(engine, START, engine.generate(START))
    assert next(steps) == Step((3,), (F,))
    assert next(steps) == Step(tokens, tiers)
    assert engine.stats.regions == counted
    assert (engine.stats.drafted, engine.stats.accepted, engine.stats.blocks) == (len(draft), accepted, 1)
    assert drafter.observed == ([accepted] if draft else [])
    expected = [("full", 0, 3)]
    if draft:
        expected.append(("slim", 3, 4))
    else:
        expected.append(("full", 3, 1))
    if counted["C"]:
        expected.append(("resume" if resume else "full", 3, 4))
    assert fakes.passes(engine.verifier) == expected


def test_tiered_pending_cells_wait_for_the_next_full_pass() -> None:
    # block 1: 4 5 6 7 by the slim tier; block 2 escalates at 9: the full tier computes 3 … 9 again
    engine = build(Script(COUNT, {9: (9, 0.4)}), Mode.TIERED)
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(3)] == [(F,), (D, D, D, S), (D, F, F, F)]
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("slim", 7, 4), ("resume", 3, 8)]
    assert engine.verifier.n_full == engine.verifier.n_kv == 11


def test_a_plain_round_computes_pending_cells_too() -> None:
    # the drafter falls silent after the first block
    engine = build(Script(COUNT), Mode.TIERED, fakes.scripted({4: 4, 5: 5, 6: 6}))
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(3)] == [(F,), (D, D, D, S), (F,)]
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("full", 3, 5)]


@pytest.mark.parametrize(
    ("audit_every", "tiers"),
    [
        (3, [(D, D, D, F)] * 4),  # a block has 4 cells
        (4, [(D, D, D, S), (D, D, D, F)] * 2),
        (8, [(D, D, D, S), (D, D, D, S), (D, D, D, F), (D, D, D, S)]),
        (100, [(D, D, D, S)] * 4),
    ],
)
def test_audit_every_forces_a_full_pass(audit_every: int, tiers: list[tuple[Tier, ...]]) -> None:
    engine = build(Script(COUNT), Mode.TIERED, audit_every=audit_every)
    steps = watched(engine, START, engine.generate(START))
    assert [next(steps).tiers for _ in range(5)] == [(F,), *tiers]
    full = [kind for kind, _, _ in fakes.passes(engine.verifier)].count("resume")
    assert full == sum(F in block for block in tiers)


def test_an_audit_overrules_the_rewrite_of_its_block() -> None:
    engine = build(Script(COUNT, {5: (9, 0.9)}), Mode.TIERED, audit_every=1)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps) == Step((4, 5, 6, 7), (D, F, F, F))
    assert engine.stats.regions["B"] == 0


def test_exact_lets_the_slim_tier_mend_drafts_before_one_full_pass() -> None:
    # 4 5 | 9 mended to 6, 7 8 | 9 a bonus, then 10 unsure: one full pass over 3 … 9
    drafter = fakes.scripted({4: 4, 5: 5, 6: 9, 7: 7, 8: 8, 9: 9, 10: 10})
    engine = build(Script(COUNT, {10: (10, 0.4)}), Mode.EXACT, drafter)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps) == Step((4, 5, 6, 7, 8, 9, 10), (F,) * 7)
    assert fakes.passes(engine.verifier)[1:] == [("slim", 3, 4), ("slim", 6, 4), ("resume", 3, 7)]
    assert (engine.stats.drafted, engine.stats.accepted) == (6, 5)
    assert engine.stats.regions == regions(a=5, b=1)
    assert drafter.observed == [2, 3]


@pytest.mark.parametrize(
    ("audit_every", "tokens", "expected_passes"),
    [
        # blocks of 3 and a bonus; no pass has seen the last bonus, so the full one gives that token
        (4, (4, 5, 6, 7), [("slim", 3, 4), ("resume", 3, 4)]),
        (5, (4, 5, 6, 7, 8, 9, 10, 0), [("slim", 3, 4), ("slim", 7, 4), ("resume", 3, 8)]),
    ],
)
def test_exact_confirms_after_audit_every_candidates(
    audit_every: int, tokens: tuple[int, ...], expected_passes: list[tuple[str, int, int]]
) -> None:
    engine = build(Script(COUNT), Mode.EXACT, audit_every=audit_every)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    assert next(steps).tokens == tokens
    assert fakes.passes(engine.verifier)[1:] == expected_passes


@pytest.mark.parametrize(("best", "slim_passes"), [("full", 1), ("slim", 4)])
def test_a_try_of_the_slim_tier_in_exact_is_one_pass(
    best: str, slim_passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from draft to draft only where it is known to yield more."""
    monkeypatch.setattr(Race, "next_choice", lambda self: "slim")
    monkeypatch.setattr(Race, "best", best)
    engine = build(Script(COUNT), Mode.EXACT, draft_tokens=None, audit_every=16)
    steps = watched(engine, START, engine.generate(START))
    next(steps), next(steps)
    kinds = [kind for kind, _, _ in fakes.passes(engine.verifier)[1:]]
    assert kinds == ["slim"] * slim_passes + ["resume"]


@pytest.mark.parametrize(
    ("draft", "slim_says"),
    [
        ([4, 5, 6], {5: (9, 0.9), 6: (6, 0.4)}),  # it rewrote a good draft
        ([4, 9, 6], {5: (9, 0.9), 7: (7, 0.4)}),  # it kept a bad one
    ],
)
def test_exact_turns_down_what_the_slim_tier_was_wrong_about(
    draft: list[int], slim_says: dict[int, tuple[int, float]]
) -> None:
    drafter = fakes.scripted(dict(enumerate(draft, start=4)))
    engine = build(Script(COUNT, slim_says), Mode.EXACT, drafter)
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    step = next(steps)
    assert step == Step((4, 5), (F, F))
    assert engine.stats.accepted == step.drafted == 1


@pytest.mark.parametrize("wrong_at", [4, 5, 6, None])
def test_sd_keeps_the_agreeing_part_of_a_draft_and_adds_one_token(wrong_at: int | None) -> None:
    draft = {n: 0 if n == wrong_at else n for n in (4, 5, 6)}
    engine = build(Script(COUNT), Mode.SD, fakes.scripted(draft))
    steps = watched(engine, START, engine.generate(START))
    next(steps)
    expected = tuple(range(4, (wrong_at or 7) + 1))
    step = next(steps)
    assert step == Step(expected, (F,) * len(expected))
    assert (engine.stats.drafted, engine.stats.accepted, step.drafted) == (3, *[len(expected) - 1] * 2)
    assert fakes.passes(engine.verifier) == [("full", 0, 3), ("full", 3, 4)]
