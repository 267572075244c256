"""Sampler settings as users give them, validated when they are constructed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats

# (all tokens so far, logits of the next one) -> logits, as in llama-cpp-python's `logits_processor`
LogitsProcessor: TypeAlias = Callable[[npt.NDArray[np.intc], Floats], Floats]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama.cpp's sampler settings; by default, decoding is greedy and every other sampler is off.

    Samplers are applied in the order logit bias, penalties, grammar and then, at a temperature above 0, top-k, typical,
    top-p, min-p and temperature, or mirostat in place of these five. Penalties consider the last `penalty_last_n`
    generated tokens (-1: the whole context). `grammar` is GBNF text; `json_schema`, a mapping or JSON text, is
    converted to a grammar. `seed` None stands for a fresh random seed. ValueError for a setting out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    json_schema: Mapping[str, Any] | str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        inf = float("inf")
        for name, low, high in (
            ("temperature", 0, inf),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("typical_p", 0, 1),
            ("frequency_penalty", -inf, inf),
            ("presence_penalty", -inf, inf),
            ("mirostat_tau", 0, inf),
            ("mirostat_eta", 0, inf),
        ):
            value = getattr(self, name)
            if not (low <= value <= high and abs(value) < inf):
                raise ValueError(
                    f"{name} is {value}; it must be a number from {low} {'on' if high == inf else f'to {high}'}"
                )
        if not 0 < self.repeat_penalty < inf:
            raise ValueError(f"repeat_penalty is {self.repeat_penalty}; it must be above 0 (1 is none)")
        if self.penalty_last_n < -1:
            raise ValueError(f"penalty_last_n is {self.penalty_last_n}; it is -1 (the context) or a number of tokens")
        if self.mirostat_mode not in (0, 1, 2):
            raise ValueError(f"mirostat_mode is {self.mirostat_mode}; it is 0 (off), 1 or 2")
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("grammar and json_schema both constrain the text; give one of the two")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it must be 0 or larger")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always chosen, after bias, penalties and grammar (temperature 0)."""
        return self.temperature == 0

    @property
    def edits_logits(self) -> bool:
        """Whether a bias, a penalty or a grammar changes the logits before a token is chosen."""
        penalties = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)
        constrained = self.grammar is not None or self.json_schema is not None
        return bool(self.logit_bias) or constrained or (penalties and self.penalty_last_n != 0)

    @property
    def truncates(self) -> bool:
        """Whether a sampler other than the temperature shapes the distribution (top-k, top-p, …, or mirostat)."""
        return not self.greedy and (
            self.top_k > 0 or self.top_p < 1 or self.min_p > 0 or self.typical_p < 1 or self.mirostat_mode != 0
        )
