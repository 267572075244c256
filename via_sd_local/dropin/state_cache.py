"""The cache of saved states that a user attaches with `Llama.set_cache`."""

from __future__ import annotations

from collections.abc import Sequence

from ..tiers.cache import common_prefix
from .original import BaseLlamaCache, LlamaState


class StateCache:
    """An optional llama-cpp-python cache, which maps token sequences to saved states; `store` None disables it."""

    def __init__(self) -> None:
        self.store: BaseLlamaCache | None = None

    def find(self, prompt: Sequence[int], n_held: int) -> LlamaState | None:
        """Return a state that covers more than the first `n_held` tokens of the prompt, or None."""
        if self.store is None:
            return None
        try:
            state: LlamaState = self.store[prompt]
        except KeyError:
            return None
        n_covered = common_prefix(state.input_ids[: state.n_tokens].tolist(), prompt)
        return state if n_covered > n_held else None
