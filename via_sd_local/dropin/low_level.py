"""What llama-cpp-python's `Llama` offers below completions, on the context that the engine uses, too."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..binding import import_llama_cpp, llama
from ..errors import ModelError
from .prompt import check_ignored
from .request import RANDOM_SEED, read_callbacks, read_sampling, read_seed
from .runner import Runner

if TYPE_CHECKING:
    from llama_cpp.llama import Llama as Original
    from llama_cpp.llama import LlamaState
else:
    Original = import_llama_cpp("llama").Llama
    LlamaState = import_llama_cpp("llama").LlamaState


__all__ = ["LowLevel", "Original"]


class LowLevel(Original):
    """Evaluation, tokens, states, embeddings; `_runner` is None where the model does not generate."""

    _runner: Runner | None = None
    _random: random.Random | None = None

    @property
    def _run(self) -> Runner:
        if self._runner is None:
            raise ModelError(f"{self.model_path}: this model does not generate text (it has an encoder, or no weights)")
        return self._runner

    @property
    def last_stats(self) -> dict[str, Any]:
        """The statistics of the last generation: `Stats.to_json`, and why nothing was drafted if that needs saying."""
        return self._run.stats

    @property
    def scores(self) -> Floats:
        """Logits `[positions, n_vocab]` of evaluated tokens with `logits_all`, else `[1, n_vocab]`, the last one's."""
        if self._runner is None:
            return np.zeros((0, self.n_vocab()), np.float32)
        return self._runner.rows.array(self.n_tokens)

    @scores.setter
    def scores(self, _value: Any) -> None:
        """llama-cpp-python allocates an array for all positions; ours grows with what is needed."""

    #
    # seeds
    #

    def set_seed(self, seed: int) -> None:
        """The seed of all further calls that give none; -1 makes them random."""
        number = read_seed(seed)
        self._seed = RANDOM_SEED if number is None else number
        self._random = None if number is None else random.Random(number)

    def _call_seed(self, seed: int | None) -> int | None:
        """The seed of one call, None for a random one: the given one, else the next of the object's own."""
        if seed is not None:
            return read_seed(seed)
        return None if self._random is None else self._random.getrandbits(32)

    #
    # evaluation
    #

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluate tokens after those that are in the context; ValueError where they do not fit."""
        self._run.evaluate([int(token) for token in tokens])

    def sample(self, *args: Any, **kwargs: Any) -> int:
        """Draw a token after what `eval` evaluated last; the arguments are llama-cpp-python's."""
        with self._run.turns.taken():
            token: int = super().sample(*args, **kwargs)
            return token

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        penalize_nl: bool = True,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        grammar: Any = None,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Tokens after a prompt, end tokens among them, to the end of the context.

        Tokens that are sent into the generator follow the one that it yielded last. Without `reset` the prompt goes on
        from what is in the context.
        """
        check_ignored(tfs_z=(tfs_z, 1.0), penalize_nl=(penalize_nl, True))
        processors, criteria = read_callbacks(logits_processor, stopping_criteria)
        sampling = read_sampling(
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            mirostat_mode=mirostat_mode,
            mirostat_tau=mirostat_tau,
            mirostat_eta=mirostat_eta,
            penalty_last_n=self.last_n_tokens_size,
            grammar=grammar,
        )
        before = [] if reset else self._input_ids.tolist()
        yield from self._run.tokens([*before, *map(int, tokens)], sampling, processors, criteria)

    def reset(self) -> None:
        """Forget what is in the context."""
        if self._runner is None:
            super().reset()  # type: ignore[no-untyped-call]
            return
        with self._runner.turns.taken():
            self._runner.engine.reset()
            self._runner.forget()
            self._requires_eval = True

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        """The bytes of tokens; control tokens have some only if `special`."""
        runner = self._runner
        if runner is None or special or not runner.uses_vocabulary or not tokens:
            return super().detokenize(tokens, prev_tokens, special)
        text = b"".join(map(runner.model.piece, tokens))
        return text[1:] if tokens[0] == runner.model.bos and text[:1] == b" " else text

    #
    # states
    #

    def save_state(self) -> LlamaState:
        """A copy of the context, to be loaded again by this object or one like it."""
        with self._run.turns.looking():
            return self._state()

    def _state(self) -> LlamaState:
        state: LlamaState = super().save_state()
        state.n_tokens = min(self.n_tokens, self._run.verifier.n_full)
        return state

    def load_state(self, state: LlamaState) -> None:
        """Go on from a saved context; RuntimeError if it does not fit into this one, TypeError if it is none."""
        if not isinstance(state, LlamaState):
            raise TypeError(f"state is {state!r:.80}; it must be what save_state returned")
        with self._run.turns.taken():
            self._restore(state)
            self.set_seed(state.seed)

    def _restore(self, state: LlamaState) -> None:
        runner, n = self._run, state.n_tokens
        data = (ctypes.c_uint8 * state.llama_state_size).from_buffer_copy(state.llama_state)
        taken = llama.llama_state_set_data(self._ctx.ctx, data, state.llama_state_size) if n <= self._n_ctx else -1
        if taken != state.llama_state_size:
            runner.verifier.reset()
            runner.forget()
            raise RuntimeError(f"this state of {n} tokens does not fit into the context of {self._n_ctx} tokens")
        self.input_ids[:] = 0
        self.input_ids[:n] = state.input_ids[:n]
        runner.verifier.adopt(self.input_ids[:n].tolist())
        if not runner.verifier.context.remove(n):  # what the slim tier had computed of it
            runner.verifier.refill()
        runner.rows.cut(0)
        if runner.rows.keeps_all and len(state.scores) >= n > 0:
            runner.rows.put(0, state.scores[:n])
        self.n_tokens, self._requires_eval = n, True

    #
    # embeddings
    #

    def embed(self, *args: Any, **kwargs: Any) -> Any:
        """Embed texts; needs `embedding=True`, and empties the context. The arguments are llama-cpp-python's."""
        if self._runner is None or not self.context_params.embeddings:
            return super().embed(*args, **kwargs)
        with self._runner.turns.taken():
            self._set_embeddings(True)
            try:
                return super().embed(*args, **kwargs)
            finally:
                self._set_embeddings(False)
                self._runner.verifier.reset()
                self._runner.forget()

    def _set_embeddings(self, wanted: bool) -> None:
        """With embeddings on, llama.cpp computes logits for all tokens of a batch, asked for or not."""
        if self.context_params.embeddings:
            llama.llama_set_embeddings(self._ctx.ctx, wanted)

    def close(self) -> None:
        """Free everything."""
        stack = self.__dict__.get("_stack")  # absent where the constructor failed early
        if stack is not None:
            stack.close()

    def __del__(self) -> None:
        self.close()
