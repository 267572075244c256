"""What to load and how to run it, as values that need no further parsing: paths, masks, a rule, enums."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from ..engine.costs import Costs
from ..engine.gate import Rule
from ..engine.policy import Mode, Router
from ..mask import LayerMask
from ..profiles.store import ProfileMatch
from ..runtime.placement import Placement


class Automatic(Enum):
    """The type of `AUTO`."""

    AUTO = "auto"


AUTO: Final = Automatic.AUTO
"""Stands for a mode or a profile that is chosen once the models are known."""


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """Prompt lookup: propose what followed the same tokens earlier in the text."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A draft model: its file, its placement, and the threads of its context (None: `default_threads()`)."""

    path: Path
    placement: Placement
    threads: int | None


@dataclass(frozen=True, slots=True)
class SelfSpec:
    """The verifier drafts for itself, and skips the sublayers of `mask`."""

    mask: LayerMask


DrafterSpec: TypeAlias = LookupSpec | ModelSpec | SelfSpec


@dataclass(frozen=True, slots=True)
class ParsedSettings:
    """Settings with their names looked up and their texts parsed.

    `drafters` are asked in turn; there are none in mode `plain`. `mode` AUTO leaves the mode to the profile. `profile`
    is a file, AUTO (the profile that matches the models) or None (no profile). `mask` and `rule` are None where the
    profile, or the default, supplies them. `n_ctx`, `threads` and `draft_tokens` are None where they are chosen
    automatically.
    """

    verifier: Path
    placement: Placement
    drafters: tuple[DrafterSpec, ...]
    mode: Mode | Automatic
    profile: Path | Automatic | None
    mask: LayerMask | None
    rule: Rule | None
    max_deviation: float | None
    draft_tokens: int | None
    router: Router
    audit_every: int
    write_through: bool
    n_ctx: int | None
    threads: int | None
    check_memory: bool
    remeasure: bool

    @property
    def draft_model(self) -> ModelSpec | None:
        """The draft model, if one of the drafters is a model."""
        return next((spec for spec in self.drafters if isinstance(spec, ModelSpec)), None)

    @property
    def mode_without_profile(self) -> Mode:
        """The requested mode; for AUTO, `sd` with a drafter and `plain` without one."""
        if self.mode is AUTO:
            return Mode.SD if self.drafters else Mode.PLAIN
        return self.mode


@dataclass(frozen=True, slots=True)
class Route:
    """How a request is run.

    `why` is the reason and `warning` what the user would not expect, both as text. `match` is the profile that was
    consulted, and `costs` the pass costs that it lists for this machine, if they apply to this route.
    """

    mode: Mode
    mask: LayerMask | None
    rule: Rule
    max_deviation: float | None
    why: str
    warning: str | None = None
    match: ProfileMatch | None = None
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class Request(ParsedSettings):
    """Parsed settings and the route that was chosen for them; made by `Settings.resolve`."""

    route: Route

    @property
    def drafters_in_use(self) -> tuple[DrafterSpec, ...]:
        """The drafters that the route uses, in the order in which they are asked."""
        return () if self.route.mode is Mode.PLAIN else self.drafters
