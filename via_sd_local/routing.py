"""What settings come to with the routing profile that fits the models: mode, mask, thresholds, known costs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from . import profiles
from .choice import Choice, choose
from .context import default_threads
from .costs import Costs
from .machine import machine
from .mask import LayerMask
from .placement import DEFAULT
from .policy import Mode, Policy
from .profiles import Found
from .settings import Settings
from .tiers import Verifier


@dataclass(frozen=True, slots=True)
class Routing:
    """A profile, if one was found, and what was chosen by it."""

    settings: Settings
    found: Found | None
    choice: Choice

    @classmethod
    def of(cls, settings: Settings, verifier: Path, draft: Path | None) -> Routing:
        """Look for the profile and choose; warns of what could not be done as asked.

        ModelError for a named profile that does not fit, or where a mode needs a mask and there is none.
        """
        found = _find(settings, verifier, draft)
        threads = settings.threads or default_threads()
        here = found is not None and _unplaced(settings) and found.profile.costs_on(machine(), threads) is not None
        pair = _is_pair(settings, found)
        choice = choose(settings, found.profile if found else None, pair=pair, here=here)
        if choice.doubt:
            warnings.warn(choice.doubt, RuntimeWarning, stacklevel=6)
        return cls(settings, found, choice)

    @property
    def policy(self) -> Policy:
        """How the engine is to run."""
        choice = self.choice
        return Policy(choice.mode, self.settings.draft_tokens, choice.rule, max_deviation=choice.max_deviation)

    @property
    def drafters(self) -> list[str]:
        """The kinds of drafters that are needed, in the order in which they are asked."""
        return [] if self.choice.mode is Mode.PLAIN else self.settings.resolved_drafter.split("+")

    def mask(self, n_layer: int) -> LayerMask | None:
        """What the slim tier skips, if one is needed."""
        return LayerMask.parse(self.choice.mask, n_layer) if self.choice.mask is not None else None

    def known_costs(self, verifier: Verifier) -> Costs | None:
        """The profile's, where they were measured here, with this draft model and what the slim tier is."""
        if self.found is None or not (_is_pair(self.settings, self.found) and _unplaced(self.settings)):
            return None
        profile = self.found.profile
        if verifier.mask and verifier.mask != LayerMask.parse(profile.mask, verifier.model.n_layer):
            return None
        return profile.costs_on(machine(), verifier.context.n_threads)


def _find(settings: Settings, verifier: Path, draft: Path | None) -> Found | None:
    """The profile that the settings name, or the one that fits; ModelError for a named one that does not."""
    if settings.profile is None:
        return None
    if settings.profile == "auto":
        # where nothing could come of it, not even a look at the files
        given = settings.mask is not None and settings.thresholds is not None
        if given or settings.mode == Mode.SD.value or settings.resolved_mode is Mode.PLAIN:
            return None
        return profiles.find(verifier, draft)
    return profiles.matching(profiles.named(settings.profile), verifier, draft)


def _unplaced(settings: Settings) -> bool:
    return settings.placement == settings.draft_placement == DEFAULT


def _is_pair(settings: Settings, found: Found | None) -> bool:
    """Whether what drafts is what the profile was made with: its draft model, and nothing else."""
    return found is not None and found.pair and settings.resolved_drafter == "model"
