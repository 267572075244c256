"""Profiles for the tests, made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from via_sd_local.profiles.profile import (
    VERSION,
    Agreement,
    CostTable,
    DeltaCriterion,
    Level,
    Point,
    Profile,
    SearchSummary,
    Speeds,
    Texts,
    Thresholds,
    dump,
    write,
)
from via_sd_local.runtime.fingerprint import Fingerprint

VERIFIER = Fingerprint("large.gguf", "llama", 6, 1000, {"q4_0": 40, "f32": 13}, "ab" * 16)
DRAFT = Fingerprint("small.gguf", "llama", 2, 100, {"q8_0": 20}, "cd" * 16)
SECONDS = {"draft": {"1": 0.001}, "full": {"1": 0.01, "4": 0.011}, "slim": {"4": 0.006}, "resume": {"4": 0.005}}


def level(max_deviation: float, mode: str, rule: str | None, speed: float = 50.0) -> Level:
    """A level with one rule, or with none."""
    if rule is None:
        why = "too little evidence: 100 tokens, and at least 298 are needed"
        return Level(max_deviation, mode, {"joint": Thresholds(None, 100, 0, 0, 0.03, None, why)})
    return Level(
        max_deviation, mode, {rule.partition(":")[0]: Thresholds(rule, 600, 2, 4, max_deviation * 0.9, speed, None)}
    )


LEVELS = (
    level(0.01, "sd", None),
    level(0.02, "sd", "joint:0.9,0.9", 28.0),
    level(0.05, "tiered", "joint:0.6,0.7", 35.0),
    level(0.1, "tiered", "confidence:0.5,0.3", 40.0),
)


def make(**changes: Any) -> Profile:
    """A profile in which tiered pays from 0.05 on, and sd is the fastest lossless mode."""
    profile = Profile(
        version=VERSION,
        created="2026-01-02T03:04:05+00:00",
        program="via_sd_local 0.1.0, llama.cpp 0c1e57098",
        verifier=VERIFIER,
        draft=DRAFT,
        mask="2-3",
        no_resume=None,
        texts=Texts("shipped", 24, 1500, 1400),
        costs=(CostTable("a machine", 1, SECONDS),),
        agreement={"p-q": Agreement(0.81, 1400), "q'-q": Agreement(0.9, 1400), "p-q'": Agreement(0.82, 1400)},
        delta=DeltaCriterion(0.9, 0.5, 0.3, 0.1),
        speeds=Speeds(10.0, 30.0, 25.0, "joint:0.5,0.5"),
        lossless="sd",
        levels=LEVELS,
        search=SearchSummary("guided", "kl", 200, 61.5, 0, True, (Point("2-3", 1 / 3, 0.2, 0.9),)),
        notes=(),
    )
    return replace(profile, **changes)


def put(folder: Path, name: str, **changes: Any) -> Path:
    """Write one into a folder."""
    path = folder / name
    write(dump(make(**changes)), path)
    return path
