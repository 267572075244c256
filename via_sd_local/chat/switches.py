"""The settings that `/mode` and `/draft` ask for: pure values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..engine.gate import PaperRule, Rule
from ..engine.policy import Mode
from ..runtime.placement import DEFAULT
from ..session.settings import DrafterKind, MissingSetting, Settings

_AUTO = "auto"
_SLIM_MODES = [mode.value for mode in Mode if mode.uses_slim_tier]
_TRUSTING_MODES = [mode.value for mode in Mode if mode.trusts_slim_tier]
_LOSSY_MODES = [mode.value for mode in Mode if mode.is_lossy]


class Switches:
    """The settings in force, and earlier ones that the present mode does not use, so that a later mode finds them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drafting = settings  # the last settings with a drafter, if any had one
        self._slim = settings  # the last settings with a mask, if any had one
        self._router = settings.router
        self._audit_every = settings.audit_every
        self._write_through = settings.write_through
        self._max_deviation = settings.max_deviation

    def use(self, settings: Settings) -> None:
        """Put settings in force."""
        self.settings = settings
        if settings.drafter_kinds:
            self._drafting = settings
        if settings.mask is not None:
            self._slim = settings
        if settings.router is not None:
            self._router = settings.router
        if settings.audit_every is not None:
            self._audit_every = settings.audit_every
        if settings.max_deviation is not None:
            self._max_deviation = settings.max_deviation

    def with_model(self, verifier: str) -> Settings:
        """Return the settings for another large model, without what depends on the layers of the present one.

        A mode with a slim tier becomes auto, and a drafter that is the large model itself is left out.
        """
        kinds = self.settings.drafter_kinds
        names = "+".join(kind.value for kind in kinds if kind is not DrafterKind.SELF)
        mode = self.settings.mode if names and self.settings.mode not in _SLIM_MODES else _AUTO
        return replace(
            self.settings,
            verifier=verifier,
            drafter=names or "none",
            draft_mask=None,
            mode=mode,
            profile=None if self.settings.profile is None else _AUTO,
            mask=None,
            thresholds=None,
            router=None,
            audit_every=None,
            write_through=False,
            max_deviation=self.settings.max_deviation if mode == Mode.LENIENT.value else None,
            draft_tokens=self.settings.draft_tokens if names else None,
        )

    def with_mode(self, mode: str, mask: str | None = None) -> Settings:
        """Return the settings for a mode, with the last drafter, and with this mask or the last one for the slim tier.

        For mode `lenient`, `mask` is the budget of deviations instead. Raises ValueError, with what to type, if the
        mode lacks a drafter, a mask or a budget, and whatever `Settings` raises.
        """
        drafting, slim = self._drafting, self._slim
        if mode == _AUTO and not (drafting.drafter_kinds and self.settings.profile):  # no profile to decide by
            mode = (Mode.SD if drafting.drafter_kinds else Mode.PLAIN).value
        drafts, has_slim = mode != Mode.PLAIN.value, mode in _SLIM_MODES
        lenient, max_deviation = mode == Mode.LENIENT.value, self._max_deviation
        if lenient and mask is not None:
            max_deviation, mask = _share(mask), None
        hints = {"mask": f"e.g. /mode {mode} 12-17", "max_deviation": f"e.g. /mode {mode} 0.05"}
        with _hints(drafter="choose one with /draft MODEL or /draft lookup", **hints):
            return replace(
                self.settings,
                mode=mode,
                mask=(mask or slim.mask) if has_slim else mask,
                thresholds=slim.thresholds if has_slim and _suits(slim.thresholds, mode) else None,
                router=self._router if mode == Mode.TIERED.value else None,
                audit_every=self._audit_every if mode in _TRUSTING_MODES else None,
                write_through=self._write_through and mode in _TRUSTING_MODES,
                max_deviation=max_deviation if mode in (*_LOSSY_MODES, _AUTO) else None,
                drafter=drafting.drafter if drafts else "none",
                draft=drafting.draft if drafts else None,
                draft_mask=drafting.draft_mask if drafts else None,
                draft_placement=drafting.draft_placement if drafts else DEFAULT,
            )

    def with_drafter(self, text: str) -> Settings:
        """Return the settings with another drafter: a model, `lookup[+MODEL]`, `self LAYERS` or `lookup+self LAYERS`.

        `none` means mode plain; in mode plain, a drafter means mode sd. Raises ValueError as `with_mode` does.
        """
        if text == "none":
            return self.with_mode(Mode.PLAIN.value)
        name, _, layers = text.partition(" ")
        draft = draft_mask = None
        if name in ("self", "lookup+self"):
            drafter, draft_mask = name, layers.strip() or None
        elif text == "lookup":
            drafter = text
        elif text.startswith("lookup+"):
            drafter, draft = "lookup+model", text.removeprefix("lookup+")
        else:
            drafter, draft = "model", text
        mode = self.settings.mode_without_profile
        with _hints(draft_mask=f"e.g. /draft {name} 8-25"):
            return replace(
                self.settings,
                mode=(Mode.SD if mode is Mode.PLAIN else mode).value,
                drafter=drafter,
                draft=draft,
                draft_mask=draft_mask,
                draft_placement=self.settings.draft_placement if draft is not None else DEFAULT,
            )


def _suits(thresholds: str | None, mode: str) -> bool:
    """Whether a mode can have these thresholds: viasd has the paper's rule only."""
    return thresholds is None or mode != Mode.VIASD.value or isinstance(Rule.parse(thresholds), PaperRule)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the budget is {text!r}; it must be a share of the tokens from 0 to 1, e.g. 0.05") from None


@contextmanager
def _hints(**commands: str) -> Iterator[None]:
    """Name what to type, by the setting that is missing, in place of the remedy in terms of `Settings`."""
    try:
        yield
    except MissingSetting as error:
        hint = commands.get(error.setting)
        if hint is None:
            raise
        raise ValueError(f"{error.problem}; {hint}") from None
