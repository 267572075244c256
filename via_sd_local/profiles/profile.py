"""The routing profile of a verifier: the result of a calibration, as one readable JSON file."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..engine.costs import Costs
from ..engine.gate import Rule
from ..engine.policy import Mode
from ..errors import ModelError
from ..files import replacing, temporary_path
from ..json_form import from_json, to_json
from ..mask import LayerMask
from ..runtime.fingerprint import Fingerprint

VERSION = 1
LEVELS = (0.01, 0.02, 0.05, 0.10)  # values of max_deviation for which thresholds are calibrated
MODES = tuple(mode.value for mode in (Mode.PLAIN, Mode.SD, Mode.EXACT, Mode.TIERED))  # that calibration compares
_REMEDY = "correct it, remove it, or calibrate again"


def _positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and number <= 0:
            raise ValueError(f"{name} is {number}; it must be above 0")


def _share(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not 0 <= number <= 1:
            raise ValueError(f"{name} is {number}; it must be a share from 0 to 1")


def _lossless(name: str, mode: str) -> None:
    known = (Mode.PLAIN.value, Mode.SD.value, Mode.EXACT.value)
    if mode not in known:
        raise ValueError(f"{name} is {mode!r}; it is one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class CostTable:
    """The seconds of a pass by kind and number of tokens, with the mask, on one machine and number of threads."""

    machine: str
    threads: int
    seconds: dict[str, dict[str, float]]

    def __post_init__(self) -> None:
        _positive(threads=self.threads)
        if not self.seconds.get("full"):
            raise ValueError("seconds has no full passes")
        for kind, row in self.seconds.items():
            for tokens, seconds in row.items():
                if not tokens.isdecimal() or int(tokens) < 1:
                    raise ValueError(f"seconds.{kind} has an entry for {tokens!r}; that is no number of tokens")
                _positive(**{f"seconds.{kind}.{tokens}": seconds})

    @property
    def costs(self) -> Costs:
        """The same figures as the engine's cost table."""
        return Costs.from_json(self.seconds)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of `tokens` positions at which two tiers have the same most probable token."""

    share: float
    tokens: int

    def __post_init__(self) -> None:
        _share(share=self.share)
        _positive(tokens=self.tokens)


@dataclass(frozen=True, slots=True)
class DeltaCriterion:
    """The paper's criterion Δ(u) = C(q‖p) - C(u‖p) - C(q‖u) with u = q', in nats per token; positive if q' pays."""

    q_p: float
    u_p: float
    q_u: float
    delta: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of one region rule for one level; if none keep the level, `rule` is None and `why` says why.

    The figures are for `tokens` held-out tokens, of which the slim tier chose `deviations` differently from the full
    model; `bound` is the one-sided 95 % upper confidence bound of their share, for all rules at once. The full tier let
    `lenient` further draft tokens through, within the budget.
    """

    rule: str | None
    tokens: int
    deviations: int
    lenient: int
    bound: float
    tokens_per_second: float | None
    why: str | None

    def __post_init__(self) -> None:
        _share(bound=self.bound)
        _positive(tokens=self.tokens, tokens_per_second=self.tokens_per_second)
        for name, count in (("deviations", self.deviations), ("lenient", self.lenient)):
            if not 0 <= count <= self.tokens:
                raise ValueError(f"{name} is {count}; it is from 0 to tokens, {self.tokens}")
        if self.rule is not None:
            Rule.parse(self.rule)
        if (self.rule is None) != (self.tokens_per_second is None) or (self.rule is None) == (self.why is None):
            raise ValueError("either rule and tokens_per_second are given, or why they are not")


@dataclass(frozen=True, slots=True)
class Level:
    """A deviation budget, the thresholds by rule name, and the fastest mode within the budget."""

    max_deviation: float
    mode: str
    rules: dict[str, Thresholds]

    def __post_init__(self) -> None:
        _share(max_deviation=self.max_deviation)
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; it is one of {', '.join(MODES)}")
        for name, thresholds in self.rules.items():
            if thresholds.rule is not None and Rule.parse(thresholds.rule).name != name:
                raise ValueError(f"rules.{name}.rule is {thresholds.rule!r}; that is another rule")
        for name, thresholds in self.rules.items():
            if thresholds.rule is not None and thresholds.bound > self.max_deviation:
                raise ValueError(f"rules.{name}.bound is {thresholds.bound}; that is more than {self.max_deviation}")
        if self.mode == Mode.TIERED.value and self.best is None:
            raise ValueError("mode is 'tiered', but no rule has thresholds")

    @property
    def best(self) -> Thresholds | None:
        """The thresholds of the fastest rule; None if no rule has any."""
        known = [thresholds for thresholds in self.rules.values() if thresholds.tokens_per_second is not None]
        return max(known, key=lambda thresholds: thresholds.tokens_per_second or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Predicted tokens per second of greedy decoding, from the first cost table; None for a mode that cannot run.

    `exact_rule` is the region rule with which `exact` is fastest.
    """

    plain: float
    sd: float | None
    exact: float | None
    exact_rule: str | None

    def __post_init__(self) -> None:
        _positive(plain=self.plain, sd=self.sd, exact=self.exact)
        if self.exact_rule is not None:
            Rule.parse(self.exact_rule)
        if (self.exact is None) != (self.exact_rule is None):
            raise ValueError("exact and exact_rule are given both, or neither of them")


@dataclass(frozen=True, slots=True)
class Texts:
    """The calibration text: the verifier's own answers to a set of prompts, and their lengths in tokens."""

    name: str
    prompts: int
    search_tokens: int
    held_out_tokens: int

    def __post_init__(self) -> None:
        _positive(prompts=self.prompts, held_out_tokens=self.held_out_tokens)


@dataclass(frozen=True, slots=True)
class Point:
    """A mask of the search's front: the share of sublayers skipped, the loss, and the agreement with the full model."""

    mask: str
    skip_ratio: float
    cost: float
    agreement: float


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """The search for the mask; `front` holds the best mask for each number of skipped sublayers."""

    strategy: str
    objective: str
    evaluations: int
    seconds: float
    seed: int
    complete: bool
    front: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of one calibration; figures that need a draft model are absent without one.

    `mask` is the text form of a LayerMask, `none` without a slim tier. `lossless` is the fastest lossless mode.
    `search` is None if the mask was given rather than searched for.
    """

    version: int
    created: str
    program: str
    verifier: Fingerprint
    draft: Fingerprint | None
    mask: str
    no_resume: str | None
    texts: Texts
    costs: tuple[CostTable, ...]
    agreement: dict[str, Agreement]
    delta: DeltaCriterion | None
    speeds: Speeds
    lossless: str
    levels: tuple[Level, ...]
    search: SearchSummary | None
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        try:
            LayerMask.parse(self.mask, self.verifier.n_layer)
        except ValueError as error:
            raise ValueError(f"mask: {error}") from None
        _lossless("lossless", self.lossless)
        if any(one.max_deviation >= other.max_deviation for one, other in pairwise(self.levels)):
            raise ValueError("levels are not in the order of max_deviation, each once")
        if self.lossless == Mode.EXACT.value and self.speeds.exact is None:
            raise ValueError("lossless is 'exact', but speeds.exact is not known")
        if not self.has_mask and any(level.mode == Mode.TIERED.value for level in self.levels):
            raise ValueError("mask is none, but there are levels in mode tiered")

    @property
    def layer_mask(self) -> LayerMask:
        """The mask of the slim tier; empty without one."""
        return LayerMask.parse(self.mask, self.verifier.n_layer)

    @property
    def has_mask(self) -> bool:
        """Whether the profile has a slim tier."""
        return bool(self.layer_mask)

    @property
    def exact_rule(self) -> Rule | None:
        """The region rule with which `exact` is fastest; None if `exact` was not predicted."""
        return Rule.parse(self.speeds.exact_rule) if self.speeds.exact_rule is not None else None

    def level(self, max_deviation: float) -> Level | None:
        """Return the largest level within a budget; None if the budget is below the smallest level."""
        return max(
            (level for level in self.levels if level.max_deviation <= max_deviation),
            key=lambda level: level.max_deviation,
            default=None,
        )

    def rule(self, max_deviation: float) -> Rule | None:
        """Return the fastest rule that keeps a budget, according to the held-out text; None if no rule does."""
        for level in reversed(self.levels):
            if level.max_deviation <= max_deviation and level.best is not None and level.best.rule is not None:
                return Rule.parse(level.best.rule)
        return None

    def costs_on(self, machine: str, threads: int) -> Costs | None:
        """Return the costs of passes on a machine with this number of threads; None where they were not measured."""
        for table in self.costs:
            if (table.machine, table.threads) == (machine, threads):
                return table.costs
        return None


def dump(profile: Profile) -> str:
    """Return the text of the profile's file."""
    return json.dumps(to_json(profile), indent=1, ensure_ascii=False) + "\n"


def load(path: Path) -> Profile:
    """Read a profile; raises ModelError, which names the field and the remedy, for an invalid file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # JSON's own, or no UTF-8
        raise ModelError(f"{path}: not a profile ({error}); {_REMEDY}") from None
    except RecursionError:
        raise ModelError(f"{path}: not a profile (too deeply nested); {_REMEDY}") from None
    return parse(data, str(path))


def parse(data: Any, where: str) -> Profile:
    """Return the profile from JSON data; raises ModelError, in which `where` names the source."""
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int:
        raise ModelError(f"{where}: not a profile: its version is {version!r}; {_REMEDY}")
    if version != VERSION:
        raise ModelError(
            f"{where}: a profile of version {version}, and this via-sd-local reads version {VERSION}; "
            f"{'update via-sd-local' if version > VERSION else 'calibrate again'}"
        )
    try:
        profile: Profile = from_json(Profile, data)
    except ValueError as error:
        raise ModelError(f"{where}: {error}; {_REMEDY}") from None
    return profile


def check_writable(path: Path) -> None:
    """Create the parent folders, and raise the system's OSError if no file can be written at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with temporary_path(path) as probe:
        probe.touch(exist_ok=False)


def write(text: str, path: Path) -> None:
    """Write a file as a whole or not at all; raises the system's OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text)
