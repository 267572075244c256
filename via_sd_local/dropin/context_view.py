"""llama-cpp-python's class with its state attributes as views of objects that the engine's runner shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..errors import ModelError
from .message_text import MessageText
from .original import BaseLlamaCache, Original
from .runner import Runner
from .seeds import SeedSource
from .shared_context import ContextTokens
from .state_cache import StateCache
from .turns import Turns

__all__ = ["ContextView"]


class ContextView(Original):
    """`llama_cpp.Llama` whose tokens, logits, seed and cache live in `ContextTokens`, `SharedContext` and the like.

    `_runner` is None where the model does not generate text; `_message_text` is None there, too, and where control
    tokens in messages are control tokens.
    """

    _runner: Runner | None = None
    _message_text: MessageText | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tokens, self._seeds, self._states = ContextTokens(), SeedSource(), StateCache()
        self._turns = Turns()
        super().__init__(*args, **kwargs)
        self.input_ids = np.zeros(self._n_ctx, np.intc)  # llama.cpp rounds n_ctx up

    @property
    def _active_runner(self) -> Runner:
        """The runner; ModelError where the model does not generate text."""
        if self._runner is None:
            raise ModelError(f"{self.model_path}: this model does not generate text (it has an encoder, or no weights)")
        return self._runner

    @property
    def last_stats(self) -> dict[str, Any]:
        """The statistics of the last generation (`Stats.to_json`); `no_drafts` says why nothing was drafted."""
        return self._active_runner.stats

    @property
    def input_ids(self) -> npt.NDArray[np.intc]:
        """The tokens `[n_ctx]` that were decoded last; the first `n_tokens` of them are in the context."""
        return self._tokens.input_ids

    @input_ids.setter
    def input_ids(self, value: npt.NDArray[np.intc]) -> None:
        self._tokens.input_ids = value

    @property
    def n_tokens(self) -> int:
        """The number of tokens in the context; a smaller number rewinds it."""
        return self._tokens.n_tokens

    @n_tokens.setter
    def n_tokens(self, value: int) -> None:
        self._tokens.n_tokens = value

    @property
    def _requires_eval(self) -> bool:
        return self._tokens.requires_eval

    @_requires_eval.setter
    def _requires_eval(self, value: bool) -> None:
        self._tokens.requires_eval = value

    @property
    def scores(self) -> Floats:
        """Logits `[positions, n_vocab]` of decoded tokens with `logits_all`, else `[1, n_vocab]` of the last one."""
        if self._runner is None:
            return np.zeros((0, self.n_vocab()), np.float32)
        return self._runner.shared.rows.array(self.n_tokens)

    @scores.setter
    def scores(self, _value: Any) -> None:
        """Ignore the array that llama-cpp-python allocates for all positions; ours grows on demand."""

    @property
    def cache(self) -> BaseLlamaCache | None:
        """The cache of saved states (`set_cache`), None for no cache."""
        return self._states.store

    @cache.setter
    def cache(self, value: BaseLlamaCache | None) -> None:
        self._states.store = value

    @property
    def _seed(self) -> int:
        return self._seeds.seed

    @_seed.setter
    def _seed(self, value: int) -> None:
        self._seeds.set(value)

    def set_seed(self, seed: int) -> None:
        """Set the seed of all further calls that give none; -1 makes them random."""
        self._seeds.set(seed)
