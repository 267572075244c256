"""llama.cpp's own samplers as a target distribution, one position at a time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Floats
from ..binding import llama
from ..runtime.model import Model
from .distribution import Distribution, TokenIds
from .gbnf import open_grammar
from .json_schema import to_gbnf
from .noise import Noise
from .params import LogitsProcessor, SamplingParams
from .sampler import NoTokenLeft, Proposal, greedy_proposal, sampled_proposal
from .truncation import best_candidates, truncated

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


class ChainSampler:
    """Two llama.cpp sampler chains: one edits the logits given the text so far, one shapes the distribution.

    Random numbers come from NumPy, seeded by `params.seed`; mirostat's come from llama.cpp. Logits processors may keep
    a state (a position in a grammar, say), so they are called once for each position, in the order of the text, with
    the first logits that are processed there. Forks do not call them.
    """

    def __init__(
        self,
        model: Model,
        params: SamplingParams,
        text: Sequence[int] = (),
        processors: Sequence[LogitsProcessor] = (),
    ) -> None:
        self._params = params
        self._n_vocab = model.n_vocab
        self._processors = tuple(processors)
        self._text = list(text) if processors else []
        self._answer: Floats | None = None  # what the processors returned for the current position
        self._random = np.random.default_rng(params.seed)
        self._noise = Noise(int(self._random.integers(2**63)))
        self._position = 0
        self._has_grammar = params.grammar is not None or params.json_schema is not None
        self._ids = np.arange(self._n_vocab, dtype=np.int32)
        self._candidates = np.zeros(self._n_vocab, dtype=_CANDIDATE)
        self._edit = _Chain(_editors(model, params))
        try:
            self._shape = _Chain(_shapers(params, self._n_vocab, int(self._random.integers(2**32))))
        except BaseException:
            self._edit.close()
            raise

    @property
    def greedy(self) -> bool:
        return self._params.greedy

    @property
    def is_distribution(self) -> bool:
        return self.greedy or self._params.mirostat_mode == 0

    @property
    def calls_processors(self) -> bool:
        return bool(self._processors)

    @property
    def random(self) -> np.random.Generator:
        return self._random

    def _call_processors(self, logits: Floats) -> Floats:
        for processor in self._processors:
            edited = processor(np.array(self._text, dtype=np.intc), logits.copy())
            logits = np.asarray(edited, dtype=np.float32)
            if logits.shape != (self._n_vocab,):
                raise ValueError(
                    f"a logits processor returned an array of shape {logits.shape}; it must return the logits of all "
                    f"{self._n_vocab} tokens"
                )
            largest = logits.max()
            if largest == -np.inf:
                raise NoTokenLeft("a logits processor ruled out every token; it must leave at least one")
            if not np.isfinite(largest):
                raise ValueError("a logits processor returned NaN or infinity")
        return logits

    def processed(self, logits: Floats) -> Floats:
        if self._processors:
            if self._answer is None:
                self._answer = self._call_processors(logits)
            logits = self._answer
        if not self._edit.parts:
            return logits
        kept, _ = self._apply(self._edit, self._ids, logits)
        # these samplers edit in place and neither reorder nor remove candidates
        return self._possible(kept["logit"].copy())

    def _possible(self, row: Floats) -> Floats:
        """Return logits `[n_vocab]` without NaN and positive infinity; NoTokenLeft if they rule out every token."""
        largest = row.max()
        if np.isnan(largest):  # a token that was ruled out and then given an infinite bias
            row = np.where(np.isnan(row), -np.inf, row)
            largest = row.max()
        if largest == np.inf:  # the tokens of infinite bias alone, all equally probable
            return np.where(row == np.inf, np.float32(0), np.float32(-np.inf))
        if largest == -np.inf:
            raise NoTokenLeft(self._dead_end())
        return row

    def _dead_end(self) -> str:
        params = self._params
        edits = {
            "the JSON schema": params.json_schema is not None,
            "the grammar": params.grammar is not None,
            "logit_bias": params.logit_bias,
            "the logits processors": self._processors,
        }
        names = [name for name, is_set in edits.items() if is_set]
        return (
            f"no token is left after {self._position} tokens of the answer: {' and '.join(names)} "
            f"rule{'s' if len(names) == 1 else ''} out every token; permit at least one, or the end of the text"
        )

    def distribution(self, logits: Floats) -> Distribution:
        logits = self.processed(logits)
        if self.greedy:
            return Distribution(self._ids[[logits.argmax()]], np.ones(1))
        distribution = truncated(logits, self._params)
        if distribution is not None:
            return distribution
        kept, _ = self._shaped(logits)
        return Distribution.from_logits(kept["id"].copy(), kept["logit"])

    def choose(self, logits: Floats) -> int:
        if self.greedy:
            return int(self.processed(logits).argmax())
        if not self.is_distribution:
            kept, selected = self._shaped(self.processed(logits))
            return int(kept["id"][selected])
        return self.draw(logits).token

    def draw(self, logits: Floats) -> Proposal:
        if self.greedy:
            return greedy_proposal(self.processed(logits))
        target = self.distribution(logits)
        index = self._noise.winner(self._position, target.probabilities, target.tokens)
        return Proposal(int(target.tokens[index]), float(target.probabilities[index]))

    def propose(self, logits: Floats) -> Proposal:
        if self.greedy or not self.is_distribution:
            return greedy_proposal(self.processed(logits))
        return sampled_proposal(self.distribution(logits), self._random)

    def accept(self, token: int) -> None:
        # llama.cpp would end the process at a token that the grammar rules out
        if self._has_grammar and not self._permits(token):
            raise ValueError(f"token {token} cannot follow here: the grammar or the bias rules it out")
        self._edit.accept(token)
        self._position += 1
        if self._processors:
            self._text.append(token)
            self._answer = None

    def fork(self, *, fresh: bool = False) -> ChainSampler:
        twin = object.__new__(ChainSampler)
        twin.__dict__.update(self.__dict__)
        twin._processors, twin._text, twin._answer = (), [], None
        twin._random = self._random.spawn(1)[0]
        if fresh:
            twin._noise = Noise(int(twin._random.integers(2**63)))
        twin._edit, twin._shape = self._edit.clone(), self._shape.clone()
        return twin

    def close(self) -> None:
        self._edit.close()
        self._shape.close()

    def _permits(self, token: int) -> bool:
        """Return whether bias and grammar leave a token a chance at the current position."""
        kept, _ = self._apply(self._edit, np.array([token], np.int32), np.zeros(1, np.float32))
        return bool(kept["logit"][0] > -np.inf)

    def _shaped(self, row: Floats) -> tuple[Any, int]:
        """Return what `_apply` does with the chain that shapes the distribution, given processed logits `[n_vocab]`.

        Tokens that are ruled out are left out: typical sampling would compute 0 · log 0 for them, and sort by NaN.
        """
        best = best_candidates(row, self._params)
        tokens, logits = best if best is not None else (self._ids, row)
        possible = logits > -np.inf
        if not possible.all():
            tokens, logits = tokens[possible], logits[possible]
        return self._apply(self._shape, tokens, logits, ordered=best is not None)

    def _apply(self, chain: _Chain, tokens: TokenIds, logits: Floats, *, ordered: bool = False) -> tuple[Any, int]:
        """Apply a chain to `tokens` `[n]` with these logits `[n]`, which may be `ordered`, the largest first.

        Returns the candidates that it keeps (a view, valid until the next call) and the selected index.
        """
        candidates = self._candidates[: len(tokens)]
        candidates["id"] = tokens
        candidates["logit"] = logits
        pointer = candidates.ctypes.data_as(llama.llama_token_data_p)
        array = llama.llama_token_data_array(pointer, len(candidates), -1, ordered)
        llama.llama_sampler_apply(chain.handle, ctypes.byref(array))
        return candidates[: array.size], array.selected


class _Chain:
    """Owns a `llama_sampler_chain` and the samplers in it."""

    def __init__(self, parts: Sequence[Callable[[], Any]]) -> None:
        self.parts = len(parts)
        self.handle: Any = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        for part in parts:
            llama.llama_sampler_chain_add(self.handle, part())

    def accept(self, token: int) -> None:
        llama.llama_sampler_accept(self.handle, token)

    def clone(self) -> _Chain:
        twin = object.__new__(_Chain)
        twin.parts, twin.handle = self.parts, llama.llama_sampler_clone(self.handle)
        return twin

    def close(self) -> None:
        if self.handle is not None:
            llama.llama_sampler_free(self.handle)
            self.handle = None


def _editors(model: Model, params: SamplingParams) -> list[Callable[[], Any]]:
    """Return constructors of the samplers that edit logits, in llama-cpp-python's order."""
    parts: list[Callable[[], Any]] = []
    if params.logit_bias:
        for token, bias in params.logit_bias:
            if math.isnan(bias):
                raise ValueError(f"logit_bias of token {token} is {bias}; it must be a number or an infinity")
            if not 0 <= token < model.n_vocab:
                raise ValueError(f"logit_bias names token {token}; the model has tokens 0 to {model.n_vocab - 1}")
        biases = (llama.llama_logit_bias * len(params.logit_bias))(
            *(llama.llama_logit_bias(token, bias) for token, bias in params.logit_bias)
        )
        parts.append(lambda: llama.llama_sampler_init_logit_bias(model.n_vocab, len(biases), biases))
    penalties = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)
    if penalties != (1, 0, 0) and params.penalty_last_n != 0:
        last_n = params.penalty_last_n if params.penalty_last_n > 0 else model.n_ctx_train
        parts.append(lambda: llama.llama_sampler_init_penalties(model.n_vocab, last_n, *penalties))
    text = params.grammar if params.json_schema is None else to_gbnf(params.json_schema)
    if text is not None:
        grammar = open_grammar(model.vocab, text)
        parts.append(lambda: grammar)
    return parts


def _shapers(params: SamplingParams, n_vocab: int, seed: int) -> list[Callable[[], Any]]:
    """Return constructors of the samplers that turn processed logits into a distribution."""
    if params.mirostat_mode == 1:
        tau, eta = params.mirostat_tau, params.mirostat_eta
        return [lambda: llama.llama_sampler_init_mirostat(n_vocab, seed, tau, eta, 100)]
    if params.mirostat_mode == 2:
        return [lambda: llama.llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta)]
    parts: list[Callable[[], Any]] = []
    if params.top_k > 0:
        parts.append(lambda: llama.llama_sampler_init_top_k(params.top_k))
    if params.typical_p < 1:
        parts.append(lambda: llama.llama_sampler_init_typical(params.typical_p, 1))
    if params.top_p < 1:
        parts.append(lambda: llama.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        parts.append(lambda: llama.llama_sampler_init_min_p(params.min_p, 1))
    if params.temperature > 0:
        parts.append(lambda: llama.llama_sampler_init_temp(params.temperature))
    return parts
