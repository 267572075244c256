"""What passes cost here: measured once for a pair of models on a machine, in a few seconds, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..binding import build_info
from ..files import cache_folder
from ..tiers.drafter import Drafter, Hints, ModelDrafter
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Recorder, Verifier, ignore
from .costs import Costs

SECONDS = 2.5  # for all of it, but for the pass that is running then
_SIZES = (1, 4, 2, 8, 3, 5, 6, 16, 7, 12, 32)  # the most telling first
_VERSION = 3


def costs_of(verifier: Verifier, drafters: Sequence[Drafter]) -> Costs:
    """The costs from the cache, or measured now and put there; a cache that cannot be written costs only time."""
    path = _folder() / f"{_key(verifier, drafters)}.json"
    try:
        return Costs.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError):
        costs = measure(verifier, drafters)
    if verifier.context.n_ctx <= max(_SIZES):  # too small for all sizes: nothing that others should go by
        return costs
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(costs.to_json()), encoding="utf-8")
        os.replace(partial, path)
    except OSError:
        pass
    return costs


def measure(verifier: Verifier, drafters: Sequence[Drafter], seconds: float = SECONDS) -> Costs:
    """Time passes of the drafters, then of the verifier's tiers by size, until `seconds` are over.

    Every kind is measured at size 1 at least. The verifier's cache is empty after.
    """
    costs = Costs()
    deadline = time.perf_counter() + seconds
    for drafter in drafters:
        if isinstance(drafter, ModelDrafter):
            drafter.propose([0], 2)  # warm up
            for length in (1, 3):  # the pass that takes in the verifier's token has two tokens
                drafter.propose([0] * length, 1)
                drafter.propose([0] * (length + 2), 4, Hints(unchanged=length, recorder=costs.observe))
        elif isinstance(drafter, SelfDrafter):
            verifier.recorder = ignore
            verifier.reset()
            verifier.full([0], 1)
            drafter.propose([0, 0], 1)
            drafter.propose([0, 0], 5, Hints(recorder=_of_one_or_two(costs)))
    _pass(verifier, 1, ignore)
    for size in _SIZES:
        if size > 1 and time.perf_counter() > deadline:
            break
        if size < verifier.context.n_ctx:
            _pass(verifier, size, costs.observe)
    verifier.reset()
    verifier.recorder = ignore
    return costs


def _of_one_or_two(costs: Costs) -> Recorder:
    """For a drafter whose passes all have one token; one of two, which it never runs, must not count double."""

    def record(kind: str, _tokens: int, seconds: float) -> None:
        for size in (1, 2):
            costs.observe(kind, size, seconds)

    return record


def _pass(verifier: Verifier, size: int, recorder: Recorder) -> None:
    """One full pass of so many tokens; with a mask, also a slim one and the one that resumes from it."""
    tokens = [0] * size
    verifier.recorder = recorder
    verifier.reset()
    verifier.full(tokens, size)
    if verifier.mask:
        verifier.reset()
        verifier.slim(tokens)
        verifier.recorder = lambda kind, n, seconds: recorder(kind, n, seconds) if kind == "resume" else None
        verifier.full([], size)


def _folder() -> Path:
    return cache_folder() / "costs"


def _key(verifier: Verifier, drafters: Sequence[Drafter]) -> str:
    """What the costs depend on: the files, where they lie, the mask, the threads, the library."""
    models = [verifier.model, *(part.model for part in drafters if isinstance(part, ModelDrafter))]
    stats = [(model.path.name, model.path.stat()) for model in models]
    files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    places = [asdict(model.placement) for model in models]
    masks = [str(verifier.mask), *(str(part.mask) for part in drafters if isinstance(part, SelfDrafter))]
    facts = [_VERSION, files, masks, verifier.why_no_resume, verifier.context.n_threads, places, build_info()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
