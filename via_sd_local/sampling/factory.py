"""The sampler for given parameters: NumPy's where temperature alone shapes the distribution, else llama.cpp's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .params import LogitsProcessor, SamplingParams
from .sampler import Sampler, TemperatureSampler

if TYPE_CHECKING:
    from ..runtime.model import Model


def make_sampler(
    model: Model, params: SamplingParams, text: Sequence[int] = (), processors: Sequence[LogitsProcessor] = ()
) -> Sampler:
    """Return the sampler for these settings; `text` is the prompt, which only the logits processors see.

    Raises ValueError for a grammar or JSON schema that cannot be enforced, or a bias on a token that does not exist.
    """
    if not (params.edits_logits or params.truncates or processors):
        return TemperatureSampler(params.temperature, params.seed)
    from .chain import ChainSampler  # here: it needs the compiled library

    return ChainSampler(model, params, text, processors)
