"""What a user asks for, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.policy import Mode
from ..runtime.placement import DEFAULT, Placement

MODES = ("auto", *(mode.value for mode in Mode))
DRAFTERS = ("auto", "model", "lookup", "self", "lookup+model", "lookup+self", "none")


@dataclass(frozen=True, slots=True)
class Settings:
    """What to load and how to run it; models are names of the catalogue or paths.

    `drafter` auto is the draft model if one is named, else none. `mode` auto is what the routing profile of the pair
    recommends: the fastest lossless mode, or `tiered` where `max_deviation` is above 0 and that pays; without a profile
    it is `sd` with a drafter, else `plain`. `profile` is `auto` (looked up by the verifier's fingerprint), a file or a
    name, or None. `max_deviation` also makes the thresholds of `tiered` stricter while audits find more than that.
    `draft_mask` is what the verifier skips when it drafts for itself. `n_ctx` None is the smaller of 4096 and what the
    model was trained for. The placements say where the verifier and the draft model lie. `check_memory` refuses models
    that together need more main memory than there is.
    """

    verifier: str
    draft: str | None = None
    drafter: str = "auto"
    draft_mask: str | None = None
    mode: str = "auto"
    profile: str | None = "auto"
    mask: str | None = None
    thresholds: str | None = None
    max_deviation: float | None = None
    draft_tokens: int | None = None
    n_ctx: int | None = None
    threads: int | None = None
    placement: Placement = DEFAULT
    draft_placement: Placement = DEFAULT
    check_memory: bool = True

    def __post_init__(self) -> None:
        for name, value, known in (("mode", self.mode, MODES), ("drafter", self.drafter, DRAFTERS)):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(known)}")
        parts = self.resolved_drafter.split("+")
        if "model" in parts and self.draft is None:
            raise ValueError(f"drafter {self.drafter!r} needs a draft model (draft)")
        if "model" not in parts and self.draft is not None:
            raise ValueError(
                f"drafter {self.drafter!r} does not use the draft model {self.draft!r}; give one of the two"
            )
        if self.draft_placement != DEFAULT and "model" not in parts:
            raise ValueError("draft_placement is given, but there is no draft model (draft)")
        if "self" in parts and self.draft_mask is None:
            raise ValueError(f"drafter {self.drafter!r} needs a mask to draft under (draft_mask), e.g. 8-25")
        if "self" not in parts and self.draft_mask is not None:
            raise ValueError(f"draft_mask is for the drafter self; this is drafter {self.resolved_drafter!r}")
        if self.resolved_mode in (Mode.EXACT, Mode.TIERED) and self.mask is None and self.profile is None:
            raise ValueError(
                f"mode {self.mode!r} needs a mask (mask), e.g. 12-17, or a routing profile (profile), which "
                "via-sd-local calibrate makes"
            )
        for name, given in (("mask", self.mask), ("thresholds", self.thresholds)):
            if given is not None and self.resolved_mode not in (Mode.EXACT, Mode.TIERED):
                raise ValueError(f"{name} is for the modes exact and tiered; this is mode {self.resolved_mode.value!r}")
        if self.resolved_mode is Mode.PLAIN and self.resolved_drafter != "none":
            raise ValueError("mode 'plain' does not draft; leave out the drafter, or use mode 'sd'")
        if self.resolved_mode is not Mode.PLAIN and self.resolved_drafter == "none":
            raise ValueError(
                f"mode {self.mode!r} needs a drafter: a draft model (draft), or drafter 'lookup' or 'self'"
            )

        if self.max_deviation is not None:
            if not 0 <= self.max_deviation <= 1:
                raise ValueError(f"max_deviation is {self.max_deviation}; it is a share, from 0 to 1")
            if self.mode not in ("auto", Mode.TIERED.value):
                raise ValueError(f"max_deviation is for the modes auto and tiered; mode {self.mode!r} does not deviate")
            if self.max_deviation > 0 and self.mode == "auto" and self.profile is None:
                raise ValueError("max_deviation in mode 'auto' needs a routing profile (profile), or use mode 'tiered'")

    @property
    def resolved_drafter(self) -> str:
        """One of `DRAFTERS` but `auto`."""
        if self.drafter == "auto":
            return "model" if self.draft is not None else "none"
        return self.drafter

    @property
    def resolved_mode(self) -> Mode:
        """The mode that `auto` stands for without a profile."""
        if self.mode == "auto":
            return Mode.PLAIN if self.resolved_drafter == "none" else Mode.SD
        return Mode(self.mode)
