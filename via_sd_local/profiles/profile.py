"""The routing profile of a verifier: what calibration found, as one readable JSON file."""

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
LEVELS = (0.01, 0.02, 0.05, 0.10)  # of max_deviation, for which thresholds are calibrated
MODES = tuple(mode.value for mode in Mode)
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
    """Seconds of a pass by kind and number of tokens, on one machine and so many threads, with the mask."""

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
        """The table to plan with."""
        return Costs.from_json(self.seconds)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two tiers would choose the same token, of how many tokens."""

    share: float
    tokens: int

    def __post_init__(self) -> None:
        _share(share=self.share)
        _positive(tokens=self.tokens)


@dataclass(frozen=True, slots=True)
class DeltaCriterion:
    """The paper's criterion, in nats a token: Δ(u) = C(q‖p) - C(u‖p) - C(q‖u) with u = q'; above 0 it pays."""

    q_p: float
    u_p: float
    q_u: float
    delta: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What one region rule can do at one level; `rule` is None where none is known to keep it, and `why` says why.

    Of `tokens` emitted tokens, on texts that the thresholds were not chosen by, the slim tier decided `deviations` in
    another way than the full model would have; `bound` is the upper end of a one-sided 95 % interval of their share,
    for all rules at once. The full tier itself let `lenient` others through, as far as the budget allowed.
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
    """A budget, its thresholds by the rules' names, and the mode that is fastest within it."""

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
        """The fastest rule's; None where no rule has any."""
        known = [thresholds for thresholds in self.rules.values() if thresholds.tokens_per_second is not None]
        return max(known, key=lambda thresholds: thresholds.tokens_per_second or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Predicted tokens a second, greedy, by the first cost table; None for a mode that lacks a tier or a drafter.

    `exact_rule` is what serves `exact` best.
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
    """The texts behind the figures: the verifier's own answers to the prompts of a set."""

    name: str
    prompts: int
    search_tokens: int
    held_out_tokens: int

    def __post_init__(self) -> None:
        _positive(prompts=self.prompts, held_out_tokens=self.held_out_tokens)


@dataclass(frozen=True, slots=True)
class Point:
    """A mask that was tried: the share of sublayers that it skips, its cost, the slim tier's agreement with it."""

    mask: str
    skip_ratio: float
    cost: float
    agreement: float


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """How the mask was found; `front` are the best masks by the number of skipped sublayers."""

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

    `mask` is LayerMask's text, `none` where no slim tier was found. `lossless` is the fastest mode that does not
    deviate. `search` is None for a mask that was given by hand.
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
        """The mask of the slim tier; empty where none was found."""
        return LayerMask.parse(self.mask, self.verifier.n_layer)

    @property
    def has_mask(self) -> bool:
        """Whether there is a slim tier."""
        return bool(self.layer_mask)

    @property
    def exact_rule(self) -> Rule | None:
        """The rule that is fastest in mode `exact`; None where `exact` was not predicted."""
        return Rule.parse(self.speeds.exact_rule) if self.speeds.exact_rule is not None else None

    def level(self, max_deviation: float) -> Level | None:
        """The largest level within a budget; None where the budget is smaller than all."""
        return max(
            (level for level in self.levels if level.max_deviation <= max_deviation),
            key=lambda level: level.max_deviation,
            default=None,
        )

    def rule(self, max_deviation: float) -> Rule | None:
        """The fastest thresholds that are known to keep a budget; None where the evidence allows for none."""
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
    """The file's text."""
    return json.dumps(to_json(profile), indent=1, ensure_ascii=False) + "\n"


def load(path: Path) -> Profile:
    """Read a profile; ModelError, with the field and the remedy, for a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # JSON's own, or no UTF-8
        raise ModelError(f"{path}: this is no profile ({error}); {_REMEDY}") from None
    except RecursionError:
        raise ModelError(f"{path}: this is no profile (too deeply nested); {_REMEDY}") from None
    return parse(data, str(path))


def parse(data: Any, where: str) -> Profile:
    """The profile of JSON data; `where` names its source in errors (ModelError)."""
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int:
        raise ModelError(f"{where}: this is no profile: its version is {version!r}; {_REMEDY}")
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
    """Raise OSError, as the system reports it, where no file can be put there; nothing changes but missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with temporary_path(path) as probe:
        probe.touch(exist_ok=False)


def write(text: str, path: Path) -> None:
    """Put a file in place whole or not at all; OSError as the system reports it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text)
