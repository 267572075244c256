"""What settings come to, with the routing profile that fits the models, if there is one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from ..catalog.catalog import resolve
from ..engine.costs import Costs
from ..engine.gate import parse_rule
from ..engine.policy import Mode, Policy
from ..mask import LayerMask
from ..profiles import store
from ..profiles.machine import machine
from ..profiles.store import ProfileMatch
from ..runtime.context import default_threads
from ..runtime.placement import DEFAULT
from .routing import Choice, choose
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Advice:
    """The choice, and the profile behind it.

    `pair`: what drafts is the profile's draft model, and both models lie where they lie by default.
    """

    choice: Choice
    found: ProfileMatch | None
    pair: bool

    def costs(self, mask: LayerMask | None, threads: int) -> Costs | None:
        """The profile's, where they were measured on this machine, for this pair and this mask."""
        if self.found is None or not self.pair:
            return None
        profile = self.found.profile
        if mask and mask != LayerMask.parse(profile.mask, mask.n_layer):
            return None
        return profile.costs_on(machine(), threads)


def check(settings: Settings) -> None:
    """ValueError for what can be told to be wrong before anything is loaded."""
    if settings.thresholds is not None:
        parse_rule(settings.thresholds)
    Policy(draft_tokens=settings.draft_tokens)


def advise(settings: Settings, verifier: Path) -> Advice:
    """Look for the profile, and choose; a warning where the user would expect something else.

    Raises ModelError for a profile that is named and does not fit, and for a mode that lacks a mask.
    """
    found = _find(settings, verifier)
    placed = settings.placement == settings.draft_placement == DEFAULT
    pair = found is not None and found.pair and settings.resolved_drafter == "model"
    threads = settings.threads or default_threads()
    here = found is not None and placed and found.profile.costs_on(machine(), threads) is not None
    choice = choose(settings, found.profile if found is not None else None, pair=pair, here=here)
    if choice.doubt:
        warnings.warn(choice.doubt, RuntimeWarning, stacklevel=5)
    return Advice(choice, found, pair and placed)


def _find(settings: Settings, verifier: Path) -> ProfileMatch | None:
    """The profile that the settings name, or the one that fits."""
    if settings.profile is None:
        return None
    draft = resolve(settings.draft) if settings.draft is not None else None
    if settings.profile != "auto":
        return store.matching(store.named(settings.profile), verifier, draft)
    # where nothing could come of it, not even a look at the files
    given = settings.mask is not None and settings.thresholds is not None
    if given or settings.mode == Mode.SD.value or settings.resolved_mode is Mode.PLAIN:
        return None
    return store.find(verifier, draft)
