"""The search for a mask as a stage of calibration."""

from __future__ import annotations

from dataclasses import dataclass

from ..dimr.answers import Answer
from ..mask import LayerMask
from ..model import Model
from ..profile import SearchSummary
from .bars import Bars
from .plan import Plan
from .work import Work


@dataclass(frozen=True, slots=True)
class Found:
    """The mask, how it was found, and (skip ratio, cost) of every mask that was tried, in order."""

    mask: LayerMask
    summary: SearchSummary
    tried: tuple[tuple[float, float], ...]


def find_mask(model: Model, answers: list[Answer], plan: Plan, threads: int, work: Work, bars: Bars) -> Found:
    raise NotImplementedError
