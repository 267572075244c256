"""Costs of passes, measured when a pair of models is first used on a machine, and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from ..files import cache_folder, replacing
from ..json_form import from_json, to_json
from ..tiers.drafter import Drafter
from ..tiers.model_drafter import ModelDrafter
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from . import measure
from .costs import Costs, PassCost

_VERSION = 4
_BUSY = 0.7  # processes a core; costs measured with more are measured again once there are fewer than half as many


@dataclass(frozen=True, slots=True)
class KeptCosts:
    """A file of costs: when they were measured, how busy the machine was, and `{kind: {tokens: cost}}`.

    `load` is the number of running processes per core over the last minute; None where the system does not tell.
    """

    measured: str
    load: float | None
    passes: dict[str, dict[str, PassCost]]

    def __post_init__(self) -> None:
        costs = [cost.seconds for row in self.passes.values() for cost in row.values()]
        if not costs or not all(0 < seconds < math.inf for seconds in costs):
            raise ValueError("these are no costs")
        if not all(size.isdecimal() for row in self.passes.values() for size in row):
            raise ValueError("the sizes are no numbers")

    @property
    def costs(self) -> Costs:
        """The table to plan with."""
        return Costs(
            {kind: {int(size): cost.seconds for size, cost in row.items()} for kind, row in self.passes.items()}
        )

    def is_doubtful(self, load: float | None) -> bool:
        """Return whether they were measured on a busy machine that is idler now."""
        return self.load is not None and load is not None and self.load > _BUSY and load < self.load / 2


def costs_of(verifier: Verifier, drafters: Sequence[Drafter], *, remeasure: bool = False) -> Costs:
    """Return the costs from the cache folder, or measure them and put them there.

    They are measured again with `remeasure`, and where the machine was busy and is idler now. A folder that cannot be
    written only means that the next process measures again.
    """
    path, load = costs_path(verifier, drafters), _load()
    kept = None if remeasure else _read(path)
    if kept is not None and not kept.is_doubtful(load):
        return kept.costs
    costs = measure.measure(verifier, drafters)
    if verifier.context.n_ctx <= max(size for group in measure.SIZES for size in group):
        return costs  # too small for all sizes: other contexts should not use these costs
    passes = costs.observed()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(to_json(KeptCosts(now, load, passes))))
    return costs


def forget(verifier: Verifier, drafters: Sequence[Drafter]) -> None:
    """Remove the kept costs of a pair, which running answers have disproved: the next process measures again."""
    with suppress(OSError):
        costs_path(verifier, drafters).unlink(missing_ok=True)


def _read(path: Path) -> KeptCosts | None:
    try:
        kept: KeptCosts = from_json(KeptCosts, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None
    return kept


def _load() -> float | None:
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (OSError, AttributeError):  # the system does not count
        return None


def _folder() -> Path:
    return cache_folder() / "costs"


def costs_path(verifier: Verifier, drafters: Sequence[Drafter]) -> Path:
    """Return the file for everything that the costs depend on: files, placements, masks, threads, library."""
    from ..binding import build_info  # here: without the compiled library nothing is measured

    models = [verifier.model, *(part.model for part in drafters if isinstance(part, ModelDrafter))]
    stats = [(model.path.name, model.path.stat()) for model in models]
    files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    places = [asdict(model.placement) for model in models]
    masks = [str(verifier.mask), *(str(part.mask) for part in drafters if isinstance(part, SelfDrafter))]
    facts = [_VERSION, files, masks, verifier.why_no_resume, verifier.context.n_threads, places, build_info()]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
    return _folder() / f"{key}.json"
