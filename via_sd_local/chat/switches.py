"""The settings that `/mode` and `/draft` ask for: pure values."""

from __future__ import annotations

from dataclasses import replace

from ..policy import Mode
from ..settings import MODES, Settings


class Switches:
    """The settings in force, and those that the mode in force has no use for, for the way back."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drafter = (settings.drafter, settings.draft)
        self._slim = (settings.mask, settings.thresholds, settings.max_deviation)

    def use(self, settings: Settings) -> None:
        """These are in force now."""
        self.settings = settings
        if settings.resolved_drafter != "none":
            self._drafter = (settings.drafter, settings.draft)
        if settings.mask is not None:
            self._slim = (settings.mask, settings.thresholds, settings.max_deviation or self._slim[2])

    def with_mode(self, mode: str, mask: str | None = None) -> Settings:
        """The settings for a mode, its slim tier with this mask or the one before; ValueError if it lacks something."""
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        drafter, draft = self._drafter
        has_drafter = draft is not None or drafter == "lookup"
        if mode == "auto" and not (has_drafter and self.settings.profile):
            mode = "sd" if has_drafter else "plain"
        if mode == "plain":
            drafter, draft = "none", None
        elif not has_drafter:
            raise ValueError(f"mode {mode!r} needs a drafter; choose one with /draft MODEL or /draft lookup")
        slim = mode in (Mode.EXACT.value, Mode.TIERED.value)
        before, thresholds, max_deviation = self._slim
        if slim and not (mask or before or self.settings.profile):
            raise ValueError(f"mode {mode!r} needs to know which layers to skip; e.g. /mode {mode} 12-17")
        if mask and not slim:
            raise ValueError(f"mode {mode!r} has no slim tier that could skip layers {mask!r}; leave them out")
        return replace(
            self.settings,
            mode=mode,
            drafter=drafter,
            draft=draft,
            mask=(mask or before) if slim else None,
            thresholds=thresholds if slim else None,
            max_deviation=max_deviation if mode in (Mode.TIERED.value, "auto") else None,
        )

    def with_drafter(self, name: str) -> Settings:
        """The settings with a draft model, with `lookup`, or with `none`, which is mode plain."""
        if name == "none":
            return self.with_mode("plain")
        drafter, draft = ("lookup", None) if name == "lookup" else ("auto", name)
        mode = self.settings.resolved_mode
        if mode is Mode.PLAIN:
            return replace(self.settings, mode="sd", drafter=drafter, draft=draft)
        return replace(self.settings, mode=mode.value, drafter=drafter, draft=draft)
