"""The methods of llama-cpp-python's `Llama` below completions, on the context that the engine uses, too."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ..binding import llama
from .arguments import read_callbacks, read_sampling, read_token_ids, warn_without_effect
from .closed import close_off
from .context_view import ContextView
from .original import LlamaState
from .overrides import is_overridden, warn_not_called
from .pieces import Detokenizer

__all__ = ["LowLevel"]


class LowLevel(ContextView):
    """Evaluation, token-by-token generation, saved states and embeddings."""

    #
    # evaluation
    #

    def eval(self, tokens: Sequence[int]) -> None:
        """Decode tokens after those in the context; ValueError for tokens that do not fit or do not exist."""
        runner = self._active_runner
        token_ids = read_token_ids(tokens)
        with self._turns.taken():
            runner.shared.evaluate(token_ids)

    def sample(self, *args: Any, **kwargs: Any) -> int:
        """Draw a token from the logits of the last evaluation; the arguments are llama-cpp-python's."""
        with self._turns.taken():
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
        """Generate tokens after a prompt to the end of the context, end-of-generation tokens included.

        Tokens that are sent into the generator follow the token that it yielded last. With `reset=False` the prompt
        continues the tokens in the context. Raises ValueError or TypeError for invalid arguments.
        """
        warn_without_effect(tfs_z=(tfs_z, 1.0), penalize_nl=(penalize_nl, True))
        warn_not_called(self, LowLevel, ("eval", "sample", "reset"), "generate")
        processors, criteria = read_callbacks(logits_processor, stopping_criteria)
        sampling = read_sampling(
            locals(), temperature=temp, penalty_last_n=self.last_n_tokens_size, n_vocab=self.n_vocab()
        )
        runner = self._active_runner
        before = [] if reset else self._input_ids.tolist()
        text = [*before, *read_token_ids(tokens)]
        yield from runner.tokens(text, sampling, processors, criteria, self._detokenizer)

    def reset(self) -> None:
        """Empty the context."""
        with self._turns.taken():
            if self._runner is None:
                super().reset()  # type: ignore[no-untyped-call]
                return
            self._runner.engine.reset()
            self._runner.shared.forget()
            self._requires_eval = True

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Return the token ids of a text in UTF-8; `special` recognises control tokens in it."""
        with self._turns.using():
            if special and self._message_text is not None and self._message_text.has_marks(text):
                prompt = text.decode("utf-8", "replace")
                return self._message_text.tokenize(prompt, add_bos, super().tokenize)
            return super().tokenize(text, add_bos, special)

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        """Return the bytes of tokens; control tokens are empty unless `special` is set."""
        with self._turns.using():
            if self._runner is None:
                return super().detokenize(tokens, prev_tokens, special)
            return Detokenizer(self._runner.model, self.tokenizer_).detokenize(tokens, prev_tokens, special)

    @property
    def _detokenizer(self) -> Detokenizer:
        """What turns the tokens of an answer into text: this object's `detokenize` if it is overridden."""
        overridden = is_overridden(self, LowLevel, "detokenize")
        return Detokenizer(self._active_runner.model, self if overridden else self.tokenizer_)

    #
    # states
    #

    def save_state(self) -> LlamaState:
        """Copy the context into a state that this object, or one like it, can load."""
        runner = self._active_runner
        with self._turns.looking():
            return runner.shared.save(self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Replace the context by a saved one.

        Raises TypeError for anything but a state, RuntimeError for a state that does not fit into this context.
        """
        if not isinstance(state, LlamaState):
            raise TypeError(f"state is {state!r:.80}; it must be what save_state returned")
        runner = self._active_runner
        with self._turns.taken():
            runner.shared.restore(state)
            self.set_seed(state.seed)

    #
    # embeddings
    #

    def embed(self, *args: Any, **kwargs: Any) -> Any:
        """Embed texts, which empties the context; needs `embedding=True`. The arguments are llama-cpp-python's."""
        with self._turns.taken():
            if self._runner is None or not self.context_params.embeddings:
                return super().embed(*args, **kwargs)
            self._set_embeddings(True)
            try:
                return super().embed(*args, **kwargs)
            finally:
                self._set_embeddings(False)
                self._runner.shared.clear()

    def _set_embeddings(self, wanted: bool) -> None:
        """Turn embeddings on or off; with them on, llama.cpp computes logits for all tokens of a batch."""
        if self.context_params.embeddings:
            llama.llama_set_embeddings(self._ctx.ctx, wanted)

    #
    # the end
    #

    def close(self) -> None:
        """Free the model, its contexts and the drafter; a second call does nothing.

        Waits for the running call and those that came before, and ends a stream that is half read. Afterwards all other
        methods and properties raise ValueError. RuntimeError in a callback of this object's own generation.
        """
        with self._turns.closing() as is_first:
            if is_first:
                self._free()

    def _free(self) -> None:
        stack = self.__dict__.get("_stack")  # absent where the constructor failed early
        if stack is None:
            return
        stack.close()
        for name in ("_ctx", "_batch", "_model"):
            part = self.__dict__.get(name)
            if part is not None:
                close_off(part)
        close_off(self)

    def __del__(self) -> None:
        if "_turns" in self.__dict__:  # absent where the constructor refused its arguments
            self.close()
