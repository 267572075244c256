"""What was learned of a pair of models in earlier processes, kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..files import cache_folder, replacing
from ..json_form import from_json, to_json
from ..tiers.drafter import Drafter
from ..tiers.model_drafter import ModelDrafter
from ..tiers.prompt_lookup import PromptLookup
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from .experience import Experience
from .kept_costs import costs_path
from .pace import Pace
from .policy import Policy

_LEAST = 16  # blocks of an answer from which on it is worth keeping what was learned


@dataclass(frozen=True, slots=True)
class KeptExperience:
    """A file: what the pace of each drafter has learned, in the order in which they are asked."""

    paces: tuple[Experience, ...]


def recall(paces: Sequence[Pace], verifier: Verifier, drafters: Sequence[Drafter], policy: Policy) -> None:
    """Let paces start from what earlier processes have learned with the same models, mask, drafters and policy.

    Nothing happens where nothing is kept, or a drafter is the user's own object, which no file name identifies.
    """
    if not paces or not _are_known(drafters):
        return
    try:
        data = json.loads(_path(verifier, drafters, policy).read_text(encoding="utf-8"))
        kept: KeptExperience = from_json(KeptExperience, data)
    except (OSError, ValueError, RecursionError):
        return
    if len(kept.paces) == len(paces):
        for pace, experience in zip(paces, kept.paces, strict=True):
            pace.recall(experience)


def keep(paces: Sequence[Pace], verifier: Verifier, drafters: Sequence[Drafter], policy: Policy, blocks: int) -> None:
    """Keep what paces have learned, if the last answer had enough `blocks` to learn from."""
    if not paces or blocks < _LEAST or not _are_known(drafters):
        return
    with suppress(OSError):
        path = _path(verifier, drafters, policy)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(to_json(KeptExperience(tuple(pace.experience for pace in paces)))))


def _are_known(drafters: Sequence[Drafter]) -> bool:
    return all(type(drafter) in (ModelDrafter, SelfDrafter, PromptLookup) for drafter in drafters)


def _path(verifier: Verifier, drafters: Sequence[Drafter], policy: Policy) -> Path:
    names = [drafter.name for drafter in drafters]
    facts = [names, policy.mode.value, str(policy.rule), {key: str(value) for key, value in asdict(policy).items()}]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return _folder() / f"{costs_path(verifier, drafters).stem}-{key}.json"


def _folder() -> Path:
    return cache_folder() / "experience"
