"""A calibration from its plan to the routing profile."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .._version import version
from ..binding import build_info
from ..catalog.lookup import resolve
from ..engine.costs import Costs
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
from .dimr.texts import load_texts, split
from .plan import Plan
from .recording import Recording
from .stages.answers import N_CTX, AnswerSets, record_answers
from .stages.comparison import Comparison, compare_modes
from .stages.costs import measure_costs
from .stages.mask import MaskResult, find_mask
from .stages.recordings import record_tiers
from .tier_distributions import TierDistributions
from .work import Work
from .workbench import Workbench


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The profile, and the result of the search for a mask (None if the plan gave the mask)."""

    profile: Profile
    search: MaskResult | None


@dataclass(frozen=True, slots=True)
class _Results:
    """What the stages produced; `no_resume` is why the full tier cannot resume slim passes."""

    mask: LayerMask
    search: MaskResult | None
    answers: AnswerSets
    held_out: Recording
    costs: Costs
    no_resume: str | None
    comparison: Comparison


class Calibration:
    """One run of a plan; the stages reuse what an earlier run of the same plan saved."""

    def __init__(self, plan: Plan, bars: StageBars) -> None:
        """Read the files' headers and the prompts.

        Raises ModelError for a model that cannot be used, and ValueError for an invalid text.
        """
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
        """Run the stages in order and return the profile.

        KeyboardInterrupt ends the search for a mask early; during any other stage it ends the calibration.
        """
        if self.plan.check_memory:
            paths = filter(None, (self.verifier_path, self.draft_path))
            check_memory([plan_of(path, DEFAULT, N_CTX, N_BATCH) for path in paths])
        with self.work.alone(), self._workbench() as bench:
            answers = record_answers(bench, self.searched, self.held_out)
            found = find_mask(bench, answers.searched) if self.plan.mask is None else None
            mask = found.mask if found is not None else LayerMask.parse(self.plan.mask or "", bench.model.n_layer)
            searched, held_out = record_tiers(bench, mask, answers)
            costs, no_resume = measure_costs(bench, mask)
            comparison = compare_modes(bench, searched, held_out, costs)
        return Calibrated(self._profile(_Results(mask, found, answers, held_out, costs, no_resume, comparison)), found)

    @contextmanager
    def _workbench(self) -> Iterator[Workbench]:
        """Open the models; a mask of the plan, or a draft model, that does not fit the verifier raises at once."""
        with ExitStack() as stack:
            model = stack.enter_context(closing(Model(self.verifier_path)))
            draft = stack.enter_context(closing(Model(self.draft_path))) if self.draft_path is not None else None
            if draft is not None:
                check_vocabulary(draft, model)
            if self.plan.mask is not None:
                LayerMask.parse(self.plan.mask, model.n_layer)
            draft_hash = self.draft_print.hash if self.draft_print is not None else None
            yield Workbench(self.plan, model, draft, draft_hash, self.threads, self.work, self.bars)

    def _profile(self, results: _Results) -> Profile:
        tiers, comparison = TierDistributions.of(results.held_out), results.comparison
        texts = Texts(
            (self.plan.text and Path(self.plan.text).name) or "the shipped prompts",
            len(self.prompts),
            sum(len(answer.tokens) for answer in results.answers.searched),
            len(results.held_out),
        )
        return Profile(
            version=VERSION,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            program=f"via_sd_local {version()}, llama.cpp {build_info()['llama_cpp_commit'][:9]}",
            verifier=self.verifier_print,
            draft=self.draft_print,
            mask=str(results.mask),
            no_resume=results.no_resume,
            texts=texts,
            costs=(CostTable(machine(), self.threads, _rounded(results.costs)),),
            agreement=tiers.agreements(),
            delta=tiers.delta(),
            speeds=comparison.speeds,
            lossless=comparison.verdict.lossless.value,
            levels=comparison.levels,
            search=results.search.summary if results.search is not None else None,
            notes=self._notes(results.search),
        )

    def _notes(self, search: MaskResult | None) -> tuple[str, ...]:
        notes = []
        if search is not None and not search.summary.complete:
            notes.append("the search was cut short")
        if self.draft_path is None:
            notes.append("made without a draft model")
        return tuple(notes)


def _rounded(costs: Costs) -> dict[str, dict[str, float]]:
    return {kind: {size: round(seconds, 7) for size, seconds in row.items()} for kind, row in costs.to_json().items()}
