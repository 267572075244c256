"""How tokens are drawn from logits: sampler settings, samplers, and lossless acceptance of drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .distribution import Distribution as Distribution
    from .factory import make_sampler as make_sampler
    from .params import LogitsProcessor as LogitsProcessor
    from .params import SamplingParams as SamplingParams
    from .sampler import Sampler as Sampler
    from .sampler import TemperatureSampler as TemperatureSampler

_HOMES = {
    "Distribution": ".distribution",
    "LogitsProcessor": ".params",
    "Sampler": ".sampler",
    "SamplingParams": ".params",
    "TemperatureSampler": ".sampler",
    "make_sampler": ".factory",
}

__all__ = ["Distribution", "LogitsProcessor", "Sampler", "SamplingParams", "TemperatureSampler", "make_sampler"]

__getattr__ = lazy_names(__name__, _HOMES)
