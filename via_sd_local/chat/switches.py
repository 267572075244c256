"""The settings that `/mode` and `/draft` ask for: pure values."""

from __future__ import annotations

from dataclasses import replace

from ..engine.policy import Mode
from ..runtime.placement import DEFAULT
from ..session.settings import MODES, Settings

_SLIM = (Mode.EXACT.value, Mode.TIERED.value)


class Switches:
    """The settings in force, and those that the mode in force has no use for, for the way back."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drafting = settings  # the last ones with a drafter, if any had one
        self._slim = settings  # the last ones with a slim tier, if any had one
        self._max_deviation = settings.max_deviation

    def use(self, settings: Settings) -> None:
        """These are in force now."""
        self.settings = settings
        if settings.resolved_drafter != "none":
            self._drafting = settings
        if settings.mask is not None:
            self._slim = settings
        if settings.max_deviation is not None:
            self._max_deviation = settings.max_deviation

    def with_mode(self, mode: str, mask: str | None = None) -> Settings:
        """The settings for a mode, its slim tier with this mask or the one before; ValueError if it lacks something."""
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        drafting, slim = self._drafting, self._slim
        has_drafter = drafting.resolved_drafter != "none"
        if mode == "auto" and not (has_drafter and self.settings.profile):
            mode = "sd" if has_drafter else "plain"
        drafts, has_slim = mode != Mode.PLAIN.value, mode in _SLIM
        if drafts and not has_drafter:
            raise ValueError(f"mode {mode!r} needs a drafter; choose one with /draft MODEL or /draft lookup")
        if has_slim and not (mask or slim.mask or self.settings.profile):
            raise ValueError(f"mode {mode!r} needs to know which layers to skip; e.g. /mode {mode} 12-17")
        if mask and not has_slim:
            raise ValueError(f"mode {mode!r} has no slim tier that could skip layers {mask!r}; leave them out")
        return replace(
            self.settings,
            mode=mode,
            mask=(mask or slim.mask) if has_slim else None,
            thresholds=slim.thresholds if has_slim else None,
            max_deviation=self._max_deviation if mode in (Mode.TIERED.value, "auto") else None,
            drafter=drafting.drafter if drafts else "none",
            draft=drafting.draft if drafts else None,
            draft_mask=drafting.draft_mask if drafts else None,
            draft_placement=drafting.draft_placement if drafts else DEFAULT,
        )

    def with_drafter(self, text: str) -> Settings:
        """The settings with another drafter: a model, `lookup`, `lookup+MODEL`, or `self LAYERS`; `none`: mode plain.

        In mode plain, a drafter means mode sd.
        """
        if text == "none":
            return self.with_mode("plain")
        name, _, layers = text.partition(" ")
        draft = draft_mask = None
        if name in ("self", "lookup+self"):
            if not layers:
                raise ValueError(f"drafter {name!r} needs to know which layers to skip; e.g. /draft {name} 8-25")
            drafter, draft_mask = name, layers.strip()
        elif text == "lookup":
            drafter = "lookup"
        elif text.startswith("lookup+"):
            drafter, draft = "lookup+model", text.removeprefix("lookup+")
        else:
            drafter, draft = "model", text
        mode = self.settings.resolved_mode
        before = self.settings.draft_placement
        return replace(
            self.settings,
            mode=(Mode.SD if mode is Mode.PLAIN else mode).value,
            drafter=drafter,
            draft=draft,
            draft_mask=draft_mask,
            draft_placement=before if draft is not None else DEFAULT,
        )
