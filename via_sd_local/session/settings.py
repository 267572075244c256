"""What a user asks for, in names and texts, and its translation into a `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from ..engine.gate import PaperRule, Rule
from ..engine.policy import AUDIT_EVERY, NEVER, Mode, Policy, Router
from ..mask import LayerMask
from ..profiles import store
from ..runtime.gguf_header import layer_count
from ..runtime.placement import DEFAULT, Placement
from .request import AUTO, Automatic, DrafterSpec, LookupSpec, ModelSpec, ParsedSettings, Request, SelfSpec


class DrafterKind(Enum):
    """What proposes drafts."""

    LOOKUP = "lookup"
    MODEL = "model"
    SELF = "self"


_KINDS: Mapping[str, tuple[DrafterKind, ...]] = MappingProxyType(
    {
        "model": (DrafterKind.MODEL,),
        "lookup": (DrafterKind.LOOKUP,),
        "self": (DrafterKind.SELF,),
        "lookup+model": (DrafterKind.LOOKUP, DrafterKind.MODEL),
        "lookup+self": (DrafterKind.LOOKUP, DrafterKind.SELF),
        "none": (),
    }
)
MODES = (AUTO.value, *(mode.value for mode in Mode))
DRAFTERS = (AUTO.value, *_KINDS)
ROUTERS = tuple(router.value for router in Router)


class MissingSetting(ValueError):
    """A setting that the others require is absent: its name, the problem, and the remedy in terms of `Settings`."""

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(problem + remedy)
        self.setting, self.problem = setting, problem


@dataclass(frozen=True, slots=True)
class Settings:
    """What to load and how to run it; models are names of the catalogue or paths.

    `drafter` auto is the draft model if one is named, else none. `mode` auto is what the routing profile of the pair
    recommends: the fastest lossless mode, or `tiered` where `max_deviation` is above 0 and the profile predicts a gain;
    without a profile it is `sd` with a drafter, else `plain`. `profile` is `auto` (looked up by the verifier's
    fingerprint), a file or a name, or None. `max_deviation`, a share of tokens, is the budget of the lossy
    modes. `router` (`slim-first`, `cost` or `full-first`) chooses the tier that sees a draft first in `tiered`, and
    `audit_every` is the largest number of tokens that the slim tier decides between two audits, or `never`.
    `write_through` keeps the K/V of what the slim tier decided, at a loss of fidelity, instead of computing them again.
    `draft_mask` lists the layers that the verifier skips when it drafts for itself. `n_ctx` None is the smaller of 4096
    and the context that the model was trained for; `threads` None is `runtime.context.default_threads()`. The
    placements assign the verifier and the draft model to devices. `check_memory` refuses models that together need more
    main memory than is available. `remeasure` times passes anew instead of using the costs that an earlier run, or the
    profile, has measured.

    Raises ValueError for settings that contradict each other; files and layers are checked by `resolve`.
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
    router: str | None = None
    audit_every: int | str | None = None
    write_through: bool = False
    n_ctx: int | None = None
    threads: int | None = None
    placement: Placement = DEFAULT
    draft_placement: Placement = DEFAULT
    check_memory: bool = True
    remeasure: bool = False

    def __post_init__(self) -> None:
        for name, value, choices in (("mode", self.mode, MODES), ("drafter", self.drafter, DRAFTERS)):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(choices)}")
        self._check_drafter()
        self._check_mode()
        self._check_max_deviation()
        self._check_routing()
        if self.thresholds is not None:
            rule = Rule.parse(self.thresholds)
            if self.mode == Mode.VIASD.value and not isinstance(rule, PaperRule):
                raise ValueError(
                    f"thresholds are {self.thresholds!r}; mode 'viasd' has the paper's rule, paper:0.3,0.5"
                )
        Policy(draft_tokens=self.draft_tokens)

    def _check_drafter(self) -> None:
        kinds = self.drafter_kinds
        if DrafterKind.MODEL in kinds and self.draft is None:
            raise MissingSetting("draft", f"drafter {self.drafter!r} needs a draft model", " (draft)")
        if DrafterKind.MODEL not in kinds and self.draft is not None:
            raise ValueError(
                f"drafter {self.drafter!r} does not use the draft model {self.draft!r}; give one of the two"
            )
        if self.draft_placement != DEFAULT and DrafterKind.MODEL not in kinds:
            raise ValueError("draft_placement is given, but there is no draft model (draft)")
        if DrafterKind.SELF in kinds and self.draft_mask is None:
            problem = f"drafter {self.drafter!r} needs a mask to draft under"
            raise MissingSetting("draft_mask", problem, " (draft_mask), e.g. 8-25")
        if DrafterKind.SELF not in kinds and self.draft_mask is not None:
            name = "+".join(kind.value for kind in kinds) or "none"
            raise ValueError(f"draft_mask is for the drafter self; this is drafter {name!r}")

    def _check_mode(self) -> None:
        mode = self.mode_without_profile
        if mode.uses_slim_tier and self.mask is None and self.profile is None:
            raise MissingSetting(
                "mask",
                f"mode {self.mode!r} needs a mask",
                " (mask), e.g. 12-17, or a routing profile (profile), which via-sd-local calibrate makes",
            )
        *some, last = (mode.value for mode in Mode if mode.uses_slim_tier)
        slim = f"{', '.join(some)} and {last}"
        for name, value in (("mask", self.mask), ("thresholds", self.thresholds)):
            if value is not None and not mode.uses_slim_tier:
                raise ValueError(f"{name} is for the modes {slim}; this is mode {mode.value!r}: leave it out")
        if mode is Mode.PLAIN and self.drafter_kinds:
            raise ValueError("mode 'plain' does not draft; leave out the drafter, or use mode 'sd'")
        if mode is not Mode.PLAIN and not self.drafter_kinds:
            problem = f"mode {self.mode!r} needs a drafter"
            raise MissingSetting(
                "drafter",
                problem,
                ": a draft model (draft), drafter 'lookup', which needs no model, or drafter 'self' with a draft_mask",
            )

    def _check_routing(self) -> None:
        mode = self.mode_without_profile
        if self.router is not None:
            if self.router not in ROUTERS:
                raise ValueError(f"router is {self.router!r}; it is one of {', '.join(ROUTERS)}")
            if mode is Mode.VIASD and self.router != Router.SLIM_FIRST.value:
                raise ValueError(f"router is {self.router!r}; in mode 'viasd' the slim tier is always first")
        for name, is_given in (
            ("router", self.router is not None and self.mode != AUTO.value),
            ("audit_every", self.audit_every is not None and self.mode != AUTO.value),
            ("write_through", self.write_through),  # auto is lossy only with a budget
        ):
            if is_given and not mode.trusts_slim_tier:
                raise ValueError(f"{name} is for the modes tiered and viasd; this is mode {self.mode!r}: leave it out")
        if self.write_through and self.max_deviation is not None:
            raise ValueError(
                "write_through lets later choices of the full model drift, which no audit sees, and max_deviation is a "
                "bound of all deviations; leave out one of the two"
            )
        every = self.audit_every
        if not (every is None or every == "never" or (isinstance(every, int) and every >= 1)):
            raise ValueError(f"audit_every is {every!r}; it must be a number of tokens, at least 1, or never")
        if every == "never" and self.max_deviation is not None:
            raise ValueError("audit_every is never, and max_deviation needs audits; leave out one of the two")

    def _check_max_deviation(self) -> None:
        if self.max_deviation is None:
            if self.mode == Mode.LENIENT.value:
                problem = "mode 'lenient' needs a budget of deviations"
                raise MissingSetting("max_deviation", problem, " (max_deviation), e.g. 0.05")
            return
        if not 0 <= self.max_deviation <= 1:
            raise ValueError(f"max_deviation is {self.max_deviation}; it must be a share from 0 to 1")
        if self.mode != AUTO.value and not Mode(self.mode).is_lossy:
            *some, last = (mode.value for mode in Mode if mode.is_lossy)
            raise ValueError(
                f"max_deviation is for the modes auto, {', '.join(some)} and {last}; "
                f"mode {self.mode!r} does not deviate"
            )
        if self.max_deviation > 0 and self.mode == AUTO.value and self.profile is None:
            raise ValueError(
                "max_deviation in mode 'auto' needs a routing profile (profile), or use mode 'lenient' or 'tiered'"
            )

    @property
    def _audit_every(self) -> int:
        if self.audit_every is None:
            return AUDIT_EVERY
        return self.audit_every if isinstance(self.audit_every, int) else NEVER

    @property
    def drafter_kinds(self) -> tuple[DrafterKind, ...]:
        """The drafters, in the order in which they are asked; empty where nothing drafts."""
        if self.drafter == AUTO.value:
            return (DrafterKind.MODEL,) if self.draft is not None else ()
        return _KINDS[self.drafter]

    @property
    def mode_without_profile(self) -> Mode:
        """The mode; `auto` is resolved as without a profile: `sd` with a drafter, else `plain`."""
        if self.mode == AUTO.value:
            return Mode.SD if self.drafter_kinds else Mode.PLAIN
        return Mode(self.mode)

    def resolve(self) -> Request:
        """Look up the files, parse the masks and choose the route; nothing is loaded.

        Masks require the verifier's GGUF header, and profiles its fingerprint. Raises ModelError for a model or a
        profile that is not on this machine or does not fit, and for a mode that lacks a mask; ValueError for a mask
        that names layers which the verifier does not have.
        """
        from ..catalog.lookup import resolve  # here: no --help needs it
        from .routing import find_route

        verifier = resolve(self.verifier)
        draft = resolve(self.draft) if self.draft is not None else None
        n_layer = 1 if self.mask is None and self.draft_mask is None else layer_count(verifier)
        profile: Path | Automatic | None = None
        if self.profile is not None:
            profile = AUTO if self.profile == AUTO.value else store.path_of(self.profile)
        parsed = self.parse(verifier, draft, n_layer, profile)
        values = {field.name: getattr(parsed, field.name) for field in fields(parsed)}
        return Request(**values, route=find_route(parsed))

    def parse(
        self, verifier: Path, draft: Path | None, n_layer: int, profile: Path | Automatic | None
    ) -> ParsedSettings:
        """Return the settings as values, for these files and for masks over `n_layer` layers; pure."""
        return ParsedSettings(
            verifier=verifier,
            placement=self.placement,
            drafters=tuple(self._drafter_spec(kind, draft, n_layer) for kind in self.drafter_kinds),
            mode=AUTO if self.mode == AUTO.value else Mode(self.mode),
            profile=profile,
            mask=None if self.mask is None else LayerMask.parse(self.mask, n_layer),
            rule=None if self.thresholds is None else Rule.parse(self.thresholds),
            max_deviation=self.max_deviation,
            draft_tokens=self.draft_tokens,
            router=Router.COST if self.router is None else Router(self.router),
            audit_every=self._audit_every,
            write_through=self.write_through,
            n_ctx=self.n_ctx,
            threads=self.threads,
            check_memory=self.check_memory,
            remeasure=self.remeasure,
        )

    def _drafter_spec(self, kind: DrafterKind, draft: Path | None, n_layer: int) -> DrafterSpec:
        if kind is DrafterKind.LOOKUP:
            return LookupSpec()
        if kind is DrafterKind.SELF:
            assert self.draft_mask is not None, "checked at construction"
            return SelfSpec(LayerMask.parse(self.draft_mask, n_layer, "draft_mask"))
        assert draft is not None, "checked at construction"
        return ModelSpec(draft, self.draft_placement, self.threads)
