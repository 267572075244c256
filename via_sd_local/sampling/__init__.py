"""How tokens are drawn from logits: parameters, samplers, and lossless acceptance of drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .chain import make_sampler as make_sampler
    from .sampler import Distribution as Distribution
    from .sampler import LogitsProcessor as LogitsProcessor
    from .sampler import Sampler as Sampler
    from .sampler import SamplingParams as SamplingParams
    from .sampler import TemperatureSampler as TemperatureSampler

_HOMES = {
    "Distribution": ".sampler",
    "LogitsProcessor": ".sampler",
    "Sampler": ".sampler",
    "SamplingParams": ".sampler",
    "TemperatureSampler": ".sampler",
    "make_sampler": ".chain",
}

__all__ = ["Distribution", "LogitsProcessor", "Sampler", "SamplingParams", "TemperatureSampler", "make_sampler"]

__getattr__ = lazy_names(__name__, _HOMES)
