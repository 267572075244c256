"""Costs of passes, measured once for a pair of models on a machine, in a few seconds, and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..files import cache_folder, replacing
from ..tiers.cache import Recorder, ignore
from ..tiers.drafter import Drafter, Hints
from ..tiers.model_drafter import ModelDrafter
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from .costs import Costs

SECONDS = 2.5  # for all measurements; a pass that is running then is completed
_SIZES = (1, 4, 2, 8, 3, 5, 6, 16, 7, 12, 32)  # the most telling first
_VERSION = 3


def costs_of(verifier: Verifier, drafters: Sequence[Drafter]) -> Costs:
    """Return the costs from the cache folder, or measure them and put them there.

    A folder that cannot be written only means that the next process measures again.
    """
    path = _folder() / f"{_key(verifier, drafters)}.json"
    try:
        return Costs.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        costs = measure(verifier, drafters)
    if verifier.context.n_ctx <= max(_SIZES):  # too small for all sizes: other contexts should not use these costs
        return costs
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(costs.to_json()))
    except OSError:
        pass
    return costs


def measure(verifier: Verifier, drafters: Sequence[Drafter], seconds: float = SECONDS) -> Costs:
    """Time passes of the drafters, then of the verifier's tiers by number of tokens, for about `seconds`.

    Every kind of pass is measured with one token at least. The verifier's cache is empty afterwards.
    """
    costs = Costs()
    deadline = time.perf_counter() + seconds
    for drafter in drafters:
        if isinstance(drafter, ModelDrafter):
            _time_draft_model(drafter, costs.observe)
        elif isinstance(drafter, SelfDrafter):
            _time_self_drafter(drafter, verifier, costs)
    _time_passes(verifier, 1, ignore)  # warm up
    for size in _SIZES:
        if size > 1 and time.perf_counter() > deadline:
            break
        if size < verifier.context.n_ctx:
            _time_passes(verifier, size, costs.observe)
    verifier.reset()
    return costs


def _time_draft_model(drafter: ModelDrafter, recorder: Recorder) -> None:
    """Time passes of one and of two tokens; the pass that takes in the verifier's token has two."""
    drafter.propose([0], 2)  # warm up
    for length in (1, 3):
        drafter.propose([0] * length, 1)
        drafter.propose([0] * (length + 2), 4, Hints(unchanged=length, recorder=recorder))


def _time_self_drafter(drafter: SelfDrafter, verifier: Verifier, costs: Costs) -> None:
    """Time passes of one token, and enter them as passes of two tokens, too.

    This drafter never runs a pass of two tokens, and a cost in proportion would count double.
    """

    def record(kind: str, _tokens: int, seconds: float) -> None:
        for size in (1, 2):
            costs.observe(kind, size, seconds)

    verifier.reset()
    verifier.full([0], 1)
    drafter.propose([0, 0], 1)  # warm up
    drafter.propose([0, 0], 5, Hints(recorder=record))


def _time_passes(verifier: Verifier, size: int, recorder: Recorder) -> None:
    """Time one full pass of `size` tokens; with a mask, also a slim pass and the full pass that resumes from it."""
    tokens = [0] * size
    verifier.reset()
    verifier.full(tokens, size, recorder=recorder)
    if verifier.has_slim_tier:
        verifier.reset()
        verifier.slim(tokens, recorder=recorder)
        if verifier.can_resume:
            verifier.full([], size, recorder=recorder)


def _folder() -> Path:
    return cache_folder() / "costs"


def _key(verifier: Verifier, drafters: Sequence[Drafter]) -> str:
    """Return a hash of everything that the costs depend on: files, placements, masks, threads, library."""
    from ..binding import build_info  # here: without the compiled library nothing is measured

    models = [verifier.model, *(part.model for part in drafters if isinstance(part, ModelDrafter))]
    stats = [(model.path.name, model.path.stat()) for model in models]
    files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    places = [asdict(model.placement) for model in models]
    masks = [str(verifier.mask), *(str(part.mask) for part in drafters if isinstance(part, SelfDrafter))]
    facts = [_VERSION, files, masks, verifier.why_no_resume, verifier.context.n_threads, places, build_info()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
