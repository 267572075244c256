"""Replays against the engine that they stand for: the same passes and the same text, by another clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from via_sd_local.arrays import Floats
from via_sd_local.calibration.recording import Recording, record
from via_sd_local.calibration.replay import replay
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule, JointRule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.cache import Recorder, ignore
from via_sd_local.tiers.drafter import Draft, Drafter, Hints
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

PROMPTS = ([1, 2, 3], [4, 5, 6, 7], [8])
COSTS = Costs({"full": {1: 10, 4: 12, 16: 24}, "slim": {1: 5, 4: 6, 16: 12}, "resume": {1: 6, 16: 18}, "draft": {1: 1}})


@dataclass
class Answer:
    prompt_tokens: list[int]
    tokens: list[int]


@dataclass
class Bench:
    verifier: Verifier
    draft: Model
    drafter: ModelDrafter
    recording: Recording
    answers: list[Answer]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A tiny model, another one of the same vocabulary that drafts, and the first one's answers."""
    folder = tmp_path_factory.mktemp("replay")
    spec = tiny.spec("llama")
    tensors, random = tiny.random_tensors(spec), np.random.default_rng(0)
    tiny.write(folder / "big.gguf", spec, tensors)
    blurred = {
        name: value + random.normal(0, 0.02 * value.std(), value.shape).astype(value.dtype)
        for name, value in tensors.items()
    }
    tiny.write(folder / "small.gguf", spec, blurred)
    with (
        closing(Model(folder / "big.gguf")) as model,
        closing(Model(folder / "small.gguf")) as draft,
        closing(Verifier(model, n_ctx=128, mask=LayerMask.parse("2", model.n_layer), n_threads=1)) as verifier,
        closing(ModelDrafter(draft, model, n_ctx=128, n_threads=1)) as drafter,
    ):
        answers = []
        for prompt in PROMPTS:
            steps = Engine(verifier, None, Policy()).generate(prompt, max_tokens=40)
            answers.append(Answer(prompt, [token for step in steps for token in step.tokens]))
        yield Bench(verifier, draft, drafter, record(verifier, draft, answers), answers)


def run(bench: Bench, policy: Policy) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """The real engine's texts, and its stats."""
    engine = Engine(bench.verifier, bench.drafter if policy.mode is not Mode.PLAIN else None, policy)
    texts, stats = [], []
    for answer in bench.answers:
        bench.verifier.reset()
        steps = engine.generate(answer.prompt_tokens, max_tokens=len(answer.tokens))
        texts.append([token for step in steps for token in step.tokens])
        stats.append(engine.stats.to_json())
    return texts, stats


def test_the_recorded_rows_are_what_the_tiers_say(bench: Bench) -> None:
    assert len(bench.recording) == sum(len(answer.tokens) for answer in bench.answers)
    for recorded, answer in zip(bench.recording.answers, bench.answers, strict=True):
        assert recorded.tokens == recorded.full.best.tolist() == answer.tokens
        n = len(answer.prompt_tokens) - 1
        text = [*answer.prompt_tokens, *answer.tokens]
        bench.verifier.reset()
        if n:
            bench.verifier.full(text[:n], 1)
        slim = bench.verifier.slim(text[n : n + 4])
        assert recorded.slim is not None
        np.testing.assert_array_equal(recorded.slim.best[:4], slim.argmax(axis=1))
        assert recorded.draft is not None
        agreement = np.mean(recorded.draft.best == recorded.full.best)
        assert 0.5 < agreement < 1  # a drafter worth testing with


@pytest.mark.parametrize("draft_tokens", [1, 3, 6])
def test_a_replay_of_sd_makes_the_passes_that_the_engine_makes(bench: Bench, draft_tokens: int) -> None:
    """Lossless text never leaves the recorded one, so every pass is known.

    Only a draft may be shorter than the replayed one: where, after a wrong token, the drafter would end the text.
    """
    policy = Policy(Mode.SD, draft_tokens=draft_tokens)
    texts, stats = run(bench, policy)
    assert texts == [answer.tokens for answer in bench.answers]
    replayed = replay(bench.recording, COSTS, policy)
    for real, simulated in zip(stats, (one.to_json() for one in replayed.stats), strict=True):
        for kind in ("full", "draft"):
            counts = [{what: row["passes"][kind][what] for what in ("calls", "tokens")} for row in (real, simulated)]
            assert counts[0]["calls"] == pytest.approx(counts[1]["calls"], abs=0 if kind == "full" else 5)
            assert counts[0]["tokens"] == pytest.approx(counts[1]["tokens"], abs=0 if draft_tokens == 1 else 5)
        assert real["accepted"] == simulated["accepted"]
    assert replayed.deviations == 0
    seconds = sum(
        sum(COSTS.of(kind, size) * count for size, count in sizes.items())
        for kind, sizes in passes_of(bench, policy).items()
    )
    assert replayed.seconds == pytest.approx(seconds, rel=1e-9 if draft_tokens == 1 else 0.02)
    assert replayed.tokens_per_second == pytest.approx(replayed.tokens / replayed.seconds)
    assert replayed.tokens == len(bench.recording) - len(PROMPTS)


def passes_of(bench: Bench, policy: Policy) -> dict[str, dict[int, int]]:
    """How often the real engine made passes of each kind and size."""
    counts: dict[str, dict[int, int]] = {}

    def counted(recorder: Recorder) -> Recorder:
        def count(kind: str, tokens: int, seconds: float) -> None:
            if kind != "prefill":
                sizes = counts.setdefault(kind, {})
                sizes[tokens] = sizes.get(tokens, 0) + 1
            recorder(kind, tokens, seconds)

        return count

    class CountedVerifier(Verifier):
        """Reports to one more recorder."""

        def __init__(self) -> None:
            self.__dict__ = bench.verifier.__dict__

        def full(
            self,
            tokens: Sequence[int],
            rows: int,
            kind: str = "full",
            *,
            recorder: Recorder = ignore,
            resume: bool = True,
        ) -> Floats:
            return super().full(tokens, rows, kind, recorder=counted(recorder), resume=resume)

        def slim(self, tokens: Sequence[int], *, recorder: Recorder = ignore) -> Floats:
            return super().slim(tokens, recorder=counted(recorder))

    class Counted(Drafter):
        reports_passes = True

        def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
            return bench.drafter.propose(text, limit, replace(hints, recorder=counted(hints.recorder)))

    engine = Engine(CountedVerifier(), Counted(), policy)
    for answer in bench.answers:
        bench.verifier.reset()
        steps = engine.generate(answer.prompt_tokens, max_tokens=len(answer.tokens))
        list(steps)
    return counts


def test_plain_costs_one_pass_a_token(bench: Bench) -> None:
    replayed = replay(bench.recording, COSTS, Policy(), overhead=0.5)
    assert replayed.tokens_per_second == pytest.approx(1 / 10.5)


def test_tiered_deviates_where_the_tiers_disagree_and_that_is_counted(bench: Bench) -> None:
    lax = replay(bench.recording, COSTS, Policy(Mode.TIERED, 3, ConfidenceRule(0.0, 0.0)))
    assert lax.deviations > 0
    assert lax.deviation == lax.deviations / lax.tokens
    assert all(stats.passes["slim"].calls for stats in lax.stats)
    never = replay(bench.recording, COSTS, Policy(Mode.TIERED, 3, JointRule(1.0, 1.0)))
    assert never.deviations == 0


def test_automatic_lengths_use_the_costs_that_are_given(bench: Bench) -> None:
    """A drafter as dear as the verifier is left alone."""
    dear = Costs({"full": {1: 10, 16: 20}, "draft": {1: 10, 2: 10}})
    assert sum(one.drafted for one in replay(bench.recording, dear, Policy(Mode.SD)).stats) < 20
    assert sum(one.drafted for one in replay(bench.recording, COSTS, Policy(Mode.SD)).stats) > 80


def test_recordings_go_through_files(bench: Bench, tmp_path: Path) -> None:
    bench.recording.save(tmp_path / "text.npz")
    again = Recording.load(tmp_path / "text.npz")
    policy = Policy(Mode.TIERED, 3)
    assert replay(again, COSTS, policy) == replay(bench.recording, COSTS, policy)


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "other.npz", format=np.array(9))
    for name in ("no.npz", "other.npz", "missing.npz"):
        with pytest.raises(ModelError, match=name):
            Recording.load(tmp_path / name)


def test_a_mode_needs_the_tiers_that_it_runs(bench: Bench) -> None:
    lone = record(bench.verifier, None, bench.answers[:1])
    assert replay(lone, COSTS, Policy()).tokens > 0
    with pytest.raises(ValueError, match="mode sd needs the draft tier"):
        replay(lone, COSTS, Policy(Mode.SD))
    with pytest.raises(ValueError, match="block is 0"):
        record(bench.verifier, None, bench.answers, block=0)


@pytest.mark.parametrize(("slim", "least", "most"), [(1.0, 0.0, 0.35), (0.05, 0.65, 1.0)])
def test_exact_leaves_the_slim_tier_out_where_it_does_not_pay(
    bench: Bench, slim: float, least: float, most: float
) -> None:
    """One that costs as much as the full tier, and one that costs next to nothing; both say what the full one says."""
    table = {kind: {int(size): cost for size, cost in row.items()} for kind, row in COSTS.to_json().items()}
    table["slim"] = {size: slim * cost for size, cost in table["full"].items()}
    table["resume"] = {size: (1.0 if slim == 1 else 0.6) * cost for size, cost in table["full"].items()}
    answers = Recording([replace(answer, slim=answer.full) for answer in bench.recording.answers] * 6)
    replayed = replay(answers, Costs(table), Policy(Mode.EXACT, rule=JointRule(0.2, 0.2)))
    first, after = (sum(one.pace[f"{tier}_first"] for one in replayed.stats) for tier in ("slim", "full"))
    assert replayed.deviations == 0
    assert least <= first / (first + after) <= most
    sd = replay(answers, Costs(table), Policy(Mode.SD)).tokens_per_second
    assert replayed.tokens_per_second > 0.9 * sd
    always = replay(answers, Costs(table), Policy(Mode.EXACT, draft_tokens=4, rule=JointRule(0.2, 0.2)))
    assert all(one.pace["full_first"] == 0 for one in always.stats)


def test_exact_loses_little_to_a_slim_tier_that_is_sure_and_of_no_use(bench: Bench) -> None:
    """It confirms whatever the drafter says: all that a try of it can do is to cost time."""
    answers = Recording([replace(answer, slim=answer.draft) for answer in bench.recording.answers] * 6)
    table = COSTS.to_json() | {"slim": {size: 0.5 * cost for size, cost in COSTS.to_json()["full"].items()}}
    exact, sd = (
        replay(answers, Costs.from_json(table), Policy(mode, rule=JointRule(0.2, 0.2))).tokens_per_second
        for mode in (Mode.EXACT, Mode.SD)
    )
    assert exact > 0.93 * sd
