"""All of a calibration: the verifier's answers, the search for a mask, the recording, the costs, the comparison."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from .._version import version
from ..binding import build_info
from ..catalog.lookup import resolve
from ..engine.costs import Costs
from ..errors import ModelError
from ..mask import LayerMask
from ..profiles.machine import machine
from ..profiles.profile import VERSION, CostTable, Profile, Texts
from ..progress import StageBars
from ..runtime.context import N_BATCH
from ..runtime.fingerprint import Fingerprint
from ..runtime.footprint import plan_of
from ..runtime.limits import default_threads
from ..runtime.memory_check import check_memory
from ..runtime.model import Model
from ..runtime.placement import DEFAULT
from ..runtime.vocabulary import check_vocabulary
from ..tiers.model_drafter import ModelDrafter
from ..tiers.verifier import Verifier
from .dimr.answers import RecordedAnswer, answers, from_json, to_json
from .dimr.evaluation import teacher_forced
from .dimr.texts import CalibrationPrompt, load_texts, split
from .mask_search import MaskResult, find_mask
from .plan import Plan
from .recording import Recording, record
from .stages import TierDistributions, compare, time_passes
from .work import Work

_N_CTX = 2048  # of the answers' context, if the model has as much
ROUNDS = 5  # of timing every pass
_REPLAYS = 150  # about; for the bar


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The profile, and what pictures are made of: the search, None where there was none."""

    profile: Profile
    search: MaskResult | None


@dataclass(frozen=True, slots=True)
class _Answers:
    """Those that the search may see, and those that are held out from it."""

    searched: list[RecordedAnswer]
    held_out: list[RecordedAnswer]


class Calibration:
    """One run of a plan; what is done already is taken from the files of an earlier run."""

    def __init__(self, plan: Plan, bars: StageBars) -> None:
        """Look at the files; ModelError for models or texts that cannot be used, ValueError for a bad text."""
        self.plan, self.bars = plan, bars
        self.verifier_path = resolve(plan.verifier)
        self.draft_path = resolve(plan.draft) if plan.draft is not None else None
        self.prompts = load_texts(plan.text)
        self.searched, self.held_out = (sorted(part, key=lambda prompt: prompt.kind) for part in split(self.prompts))
        self.verifier_print = Fingerprint.of(self.verifier_path)
        self.draft_print = Fingerprint.of(self.draft_path) if self.draft_path is not None else None
        self.threads = plan.threads or default_threads()
        text = hashlib.sha256(repr([(p.kind, p.text) for p in self.prompts]).encode()).hexdigest()
        self.work = Work([VERSION, self.verifier_print.hash, text, plan.answer_tokens])

    def run(self) -> Calibrated:
        """Do what is left to do; KeyboardInterrupt ends the search, and anything else at once."""
        if self.plan.check_memory:
            paths = filter(None, (self.verifier_path, self.draft_path))
            check_memory([plan_of(path, DEFAULT, _N_CTX, N_BATCH) for path in paths])
        with self.work.alone(), closing(Model(self.verifier_path)) as model, self._draft_model() as draft:
            if draft is not None:
                check_vocabulary(draft, model)
            given = LayerMask.parse(self.plan.mask, model.n_layer) if self.plan.mask is not None else None
            made = self._answers(model)
            found = None if given is not None else self._search(model, draft, made.searched)
            mask = given if given is not None else found.mask if found is not None else LayerMask.of(model.n_layer)
            searched, held_out = self._recordings(model, draft, mask, made)
            costs, no_resume = self._costs(model, draft, mask)
            self.bars.stage("thresholds", _REPLAYS if mask and draft else 2)
            comparison = compare(searched, held_out, costs, self.bars.step)
            self.bars.end()
        tiers = TierDistributions.of(held_out)
        profile = Profile(
            version=VERSION,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            program=f"via_sd_local {version()}, llama.cpp {build_info()['llama_cpp_commit'][:9]}",
            verifier=self.verifier_print,
            draft=self.draft_print,
            mask=str(mask),
            no_resume=no_resume,
            texts=Texts(
                (self.plan.text and Path(self.plan.text).name) or "the shipped prompts",
                len(self.prompts),
                sum(len(answer.tokens) for answer in made.searched),
                len(held_out),
            ),
            costs=(CostTable(machine(), self.threads, _rounded(costs)),),
            agreement=tiers.agreements(),
            delta=tiers.delta(),
            speeds=comparison.speeds,
            lossless=comparison.verdict.lossless.value,
            levels=comparison.levels,
            search=found.summary if found is not None else None,
            notes=self._notes(found),
        )
        return Calibrated(profile, found)

    @contextmanager
    def _draft_model(self) -> Iterator[Model | None]:
        with closing(Model(self.draft_path)) if self.draft_path is not None else nullcontext() as draft:
            yield draft

    #
    # the stages
    #

    def _answers(self, model: Model) -> _Answers:
        """The verifier's own answers, each kept as soon as it is there."""
        every = [*self.searched, *self.held_out]
        made = self._known_answers(self.work.load_json("answers.json"), every)
        self.bars.stage("answers", len(every), f"{len(made)} of {len(every)} are there" if made else "")
        self.bars.step(len(made))
        n_ctx = min(_N_CTX, model.n_ctx_train)
        if len(made) < len(every):
            with closing(Verifier(model, n_ctx=n_ctx, n_threads=self.threads)) as verifier:
                if not verifier.can_rewind:
                    raise ModelError(
                        f"{model.path.name} cannot be calibrated: its state cannot be rolled back (it is recurrent or "
                        "hybrid), so it has no slim tier"
                    )
                for prompt in every[len(made) :]:
                    made += answers(verifier, [prompt], self.plan.answer_tokens)
                    self.work.save_json("answers.json", to_json(made))
                    self.bars.step()
        self.bars.end()
        cut = len(self.searched)
        return _Answers(made[:cut], made[cut:])

    @staticmethod
    def _known_answers(data: object, prompts: Sequence[CalibrationPrompt]) -> list[RecordedAnswer]:
        try:
            known = from_json(data) if data is not None else []
        except ValueError:
            return []
        return known if len(known) <= len(prompts) else []

    def _search(self, model: Model, draft: Model | None, searched: list[RecordedAnswer]) -> MaskResult:
        """Find the mask; what masks are worth must be the same when the search is resumed, so its costs are kept."""
        name = f"costs-{self.threads}-{self.draft_print.hash[:12] if self.draft_print else 'alone'}.json"
        costs = self.work.load(name, lambda path: Costs.from_json(json.loads(path.read_text(encoding="utf-8"))))
        if costs is None or not costs.knows("full"):
            costs, _ = self._costs(model, draft, LayerMask.of(model.n_layer))
            self.work.save_json(name, costs.to_json())
        rows = teacher_forced(draft, searched, n_threads=self.threads) if draft is not None else None
        return find_mask(
            model,
            searched,
            self.plan,
            costs=costs,
            draft=rows,
            threads=self.threads,
            work=self.work,
            bars=self.bars,
        )

    def _recordings(
        self, model: Model, draft: Model | None, mask: LayerMask, made: _Answers
    ) -> tuple[Recording, Recording]:
        """What all tiers say of the search's answers, and of those held out."""
        facts = [str(mask), self.draft_print.hash if self.draft_print else None]
        name = f"recording-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.npz"
        every = [*made.searched, *made.held_out]
        total = sum(len(answer.tokens) for answer in every)
        self.bars.stage("recording", total)
        recording = self.work.load(name, Recording.load)
        if recording is None or [answer.tokens for answer in recording.answers] != [list(a.tokens) for a in every]:
            longest = max(len(answer.prompt_tokens) + len(answer.tokens) for answer in every)
            with closing(self._verifier(model, mask, longest + 1)) as verifier:
                recording = record(verifier, draft, every, progress=self.bars.step)
            self.work.save(name, recording.save)
        self.bars.end()
        cut = len(made.searched)
        return Recording(recording.answers[:cut]), Recording(recording.answers[cut:])

    def _costs(self, model: Model, draft: Model | None, mask: LayerMask) -> tuple[Costs, str | None]:
        """What passes cost here, and why the full tier cannot resume the slim one's passes, if so."""
        self.bars.stage("costs", ROUNDS)
        with closing(self._verifier(model, mask, 64)) as verifier:
            if draft is None:
                costs = time_passes(verifier, [], ROUNDS, self.bars.step)
            else:
                with closing(ModelDrafter(draft, model, n_ctx=64, n_threads=self.threads)) as drafter:
                    costs = time_passes(verifier, [drafter], ROUNDS, self.bars.step)
            no_resume = verifier.why_no_resume if mask else None
        self.bars.end()
        return costs, no_resume

    def _verifier(self, model: Model, mask: LayerMask, n_ctx: int) -> Verifier:
        return Verifier(model, n_ctx=n_ctx, mask=mask or None, n_threads=self.threads)

    def _notes(self, found: MaskResult | None) -> tuple[str, ...]:
        notes = []
        if found is not None and not found.summary.complete:
            notes.append("the search was cut short")
        if self.draft_path is None:
            notes.append("made without a draft model")
        return tuple(notes)


def _rounded(costs: Costs) -> dict[str, dict[str, float]]:
    return {kind: {size: round(seconds, 7) for size, seconds in row.items()} for kind, row in costs.to_json().items()}
