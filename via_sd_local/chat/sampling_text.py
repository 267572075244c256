"""Sampling settings as the chat shows them: pure text."""

from __future__ import annotations

from dataclasses import fields

from ..sampling.params import SamplingParams

_DEFAULTS = SamplingParams()
_CONSTRAINTS = ("grammar", "json_schema", "logit_bias")  # long values, of which only the presence is shown
# without effect on greedy decoding
_SHAPING = ("top_k", "top_p", "min_p", "typical_p", "mirostat_mode", "mirostat_tau", "mirostat_eta", "seed")


def describe(params: SamplingParams) -> str:
    """Return the temperature, and every other setting that is not off, as in "temperature 0.2, top-p 0.9"."""
    parts = []
    for field in fields(params):
        value = getattr(params, field.name)
        if field.name != "temperature" and value == getattr(_DEFAULTS, field.name):
            continue
        if params.greedy and field.name in _SHAPING:
            continue
        label = field.name.replace("_", "-")
        parts.append(label if field.name in _CONSTRAINTS else f"{label} {value:g}")
    return ", ".join(parts)
