"""The third stage: record what every tier predicts at each position of the answers."""

from __future__ import annotations

import hashlib

from ...mask import LayerMask
from ..recording import Recording, record
from ..workbench import Workbench
from .answers import AnswerSets


def record_tiers(bench: Workbench, mask: LayerMask, answers: AnswerSets) -> tuple[Recording, Recording]:
    """Return the recordings of the answers of the search, and of the held-out ones.

    The recording of an earlier run is read instead if it is of the same mask, draft model and answers.
    """
    facts = [str(mask), bench.draft_hash]
    name = f"recording-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.npz"
    texts = answers.all
    bench.bars.stage("recording", sum(len(answer.tokens) for answer in texts))
    recording = bench.work.load(name, Recording.load)
    if recording is None or [answer.tokens for answer in recording.answers] != [list(a.tokens) for a in texts]:
        longest = max(len(answer.prompt_tokens) + len(answer.tokens) for answer in texts)
        with bench.verifier(mask, longest + 1) as verifier:
            recording = record(verifier, bench.draft, texts, progress=bench.bars.step)
        bench.work.save(name, recording.save)
    bench.bars.end()
    cut = len(answers.searched)
    return Recording(recording.answers[:cut]), Recording(recording.answers[cut:])
