"""The first stage: record the verifier's own answers to the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ModelError
from ..dimr.answers import RecordedAnswer, answers, from_json, to_json
from ..dimr.texts import CalibrationPrompt
from ..workbench import Workbench

N_CTX = 2048  # tokens of the context in which the verifier answers, if the model was trained on as many
_FILE = "answers.json"


@dataclass(frozen=True, slots=True)
class AnswerSets:
    """The answers that the search for a mask may read, and those that are held out from it."""

    searched: list[RecordedAnswer]
    held_out: list[RecordedAnswer]

    @property
    def all(self) -> list[RecordedAnswer]:
        """All answers, those of the search first."""
        return [*self.searched, *self.held_out]


def record_answers(
    bench: Workbench, searched: Sequence[CalibrationPrompt], held_out: Sequence[CalibrationPrompt]
) -> AnswerSets:
    """Let the verifier answer every prompt, greedily; answers that an earlier run saved are read instead.

    Each answer is saved as soon as it is complete. Raises ModelError if the model cannot roll its state back.
    """
    prompts = [*searched, *held_out]
    recorded = _saved(bench.work.load_json(_FILE), len(prompts))
    note = f"{len(recorded)} of {len(prompts)} from an earlier run" if recorded else ""
    bars = bench.bars
    bars.stage("answers", len(prompts), note)
    bars.step(len(recorded))
    if len(recorded) < len(prompts):
        with bench.verifier(None, min(N_CTX, bench.model.n_ctx_train)) as verifier:
            if not verifier.can_rewind:
                raise ModelError(
                    f"{bench.model.path.name} cannot be calibrated: its state cannot be rolled back (it is recurrent "
                    "or hybrid), so it has no slim tier"
                )
            for prompt in prompts[len(recorded) :]:
                recorded += answers(verifier, [prompt], bench.plan.answer_tokens)
                bench.work.save_json(_FILE, to_json(recorded))
                bars.step()
    bars.end()
    cut = len(searched)
    return AnswerSets(recorded[:cut], recorded[cut:])


def _saved(data: object, most: int) -> list[RecordedAnswer]:
    """Return the answers of an earlier run, at most `most`; none if the data is not valid."""
    try:
        saved = from_json(data) if data is not None else []
    except ValueError:
        return []
    return saved if len(saved) <= most else []
