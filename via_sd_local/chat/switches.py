"""The settings that `/mode` and `/draft` ask for: pure values."""

from __future__ import annotations

from dataclasses import replace

from ..placement import DEFAULT
from ..policy import Mode
from ..settings import MODES, Settings

_SLIM = (Mode.EXACT, Mode.TIERED)


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

    def with_mode(self, mode: str, mask: str | None = None) -> Settings:
        """The settings for a mode, its slim tier with this mask or the one before; ValueError if it lacks something."""
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        drafting = self._drafting
        has_drafter = drafting.resolved_drafter != "none"
        wanted = Mode(mode) if mode != "auto" else Mode.SD if has_drafter else Mode.PLAIN
        if wanted is not Mode.PLAIN and not has_drafter:
            raise ValueError(f"mode {mode!r} needs a drafter; choose one with /draft MODEL or /draft lookup")
        drafts = wanted is not Mode.PLAIN
        return self._in_mode(
            replace(
                self.settings,
                mode="auto",
                mask=None,
                thresholds=None,
                max_deviation=None,
                drafter=drafting.drafter if drafts else "none",
                draft=drafting.draft if drafts else None,
                draft_mask=drafting.draft_mask if drafts else None,
                draft_placement=drafting.draft_placement if drafts else DEFAULT,
            ),
            wanted,
            mask,
        )

    def _in_mode(self, settings: Settings, mode: Mode, mask: str | None) -> Settings:
        slim = self._slim
        if mode not in _SLIM:
            if mask:
                raise ValueError(
                    f"mode {mode.value!r} has no slim tier that could skip layers {mask!r}; leave them out"
                )
            return replace(settings, mode=mode.value)
        if not (mask or slim.mask):
            raise ValueError(f"mode {mode.value!r} needs to know which layers to skip; e.g. /mode {mode.value} 12-17")
        return replace(
            settings,
            mode=mode.value,
            mask=mask or slim.mask,
            thresholds=slim.thresholds,
            max_deviation=self._max_deviation if mode is Mode.TIERED else None,
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
