"""The sampling that a model's makers recommend: from its GGUF's metadata, or by its family."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .params import SamplingParams

# GGUF metadata key → field of SamplingParams and its type (llama.cpp, `llama_model_meta_key_str`); the keys of samplers
# that this package does not have (`sequence`, `xtc_…`) are left out
_KEYS: Mapping[str, tuple[str, type[int] | type[float]]] = MappingProxyType(
    {
        "general.sampling.temp": ("temperature", float),
        "general.sampling.top_k": ("top_k", int),
        "general.sampling.top_p": ("top_p", float),
        "general.sampling.min_p": ("min_p", float),
        "general.sampling.penalty_repeat": ("repeat_penalty", float),
        "general.sampling.penalty_last_n": ("penalty_last_n", int),
        "general.sampling.mirostat": ("mirostat_mode", int),
        "general.sampling.mirostat_tau": ("mirostat_tau", float),
        "general.sampling.mirostat_eta": ("mirostat_eta", float),
    }
)


@dataclass(frozen=True, slots=True)
class _Family:
    """Models whose architecture and name match the two patterns, what is recommended for them, and where."""

    architecture: str
    name: str
    params: SamplingParams
    source: str


_FAMILIES = (
    _Family(
        "llama",
        r"smollm2",
        SamplingParams(temperature=0.2, top_p=0.9),
        "the model card of SmolLM2-135M-Instruct",
    ),
    _Family(
        "smollm3",
        r"",
        SamplingParams(temperature=0.6, top_p=0.95),
        "the model card of SmolLM3-3B",
    ),
    _Family(
        "llama",
        r"llama[ _-]?3",
        SamplingParams(temperature=0.6, top_p=0.9),
        "generation_config.json of Llama-3.2-3B-Instruct",
    ),
    _Family(
        "gemma3n?",
        r"",
        SamplingParams(temperature=1.0, top_k=64, top_p=0.95),
        "the Gemma team",
    ),
    _Family(
        "qwen2",
        r"qwen[ _-]?2\.5",
        SamplingParams(temperature=0.7, top_k=20, top_p=0.8, repeat_penalty=1.05),
        "generation_config.json of Qwen2.5-7B-Instruct",
    ),
    _Family(
        "qwen3(moe)?",
        r"",
        SamplingParams(temperature=0.6, top_k=20, top_p=0.95),
        "the llama.cpp guide of Qwen3",
    ),
)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommended sampling, and a noun phrase that says who recommends it."""

    params: SamplingParams
    source: str


def recommended(metadata: Callable[[str], str | None]) -> Recommendation | None:
    """Return the sampling that the file's `general.sampling.*` keys set, or that its family's makers recommend.

    `metadata` returns the text of a GGUF metadata value, or None. Returns None for a model of which nothing is known.
    Warns of values in the file that cannot be used, and goes by the family then.
    """
    values = {name: metadata(key) for key, (name, _) in _KEYS.items()}
    if any(value is not None for value in values.values()):
        try:
            types = dict(_KEYS.values())
            own: dict[str, Any] = {name: types[name](text) for name, text in values.items() if text is not None}
            params = SamplingParams(**own)
            return Recommendation(params, "the model's file")
        except ValueError as error:
            warnings.warn(
                f"the sampling settings in the model's file are ignored: {error}", RuntimeWarning, stacklevel=2
            )
    architecture = metadata("general.architecture") or ""
    name = f"{metadata('general.basename') or ''} {metadata('general.name') or ''}".lower()
    for family in _FAMILIES:
        if re.fullmatch(family.architecture, architecture) and re.search(family.name, name):
            return Recommendation(family.params, family.source)
    return None


@dataclass(frozen=True, slots=True)
class ChosenSampling:
    """The sampling of a conversation: what the user has given, fields of `SamplingParams` by name, else as recommended.

    A given temperature of 0 is greedy decoding: then no recommendation applies, since a recommended penalty would
    change which token is the best one. Raises ValueError for values out of range.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    recommendation: Recommendation | None = None
    params: SamplingParams = field(init=False)

    def __post_init__(self) -> None:
        base = self.recommendation.params if self.recommendation and self.follows_recommendation else SamplingParams()
        object.__setattr__(self, "params", replace(base, **self.given))

    @property
    def follows_recommendation(self) -> bool:
        """Whether a recommendation, if there is one, applies to what is not given."""
        return self.given.get("temperature") != 0

    def with_value(self, name: str, value: Any) -> ChosenSampling:
        """Return the sampling with another given value; None restores the recommended value."""
        given = {**self.given, name: value}
        return ChosenSampling({key: kept for key, kept in given.items() if kept is not None}, self.recommendation)

    def for_model(self, recommendation: Recommendation | None) -> ChosenSampling:
        """Return the same choice for another model."""
        return ChosenSampling(self.given, recommendation)
