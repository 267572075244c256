"""What the engine asks of a verifier: facts, passes of two tiers over one cache, and a sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..arrays import Floats
from ..sampling.params import LogitsProcessor, SamplingParams
from ..sampling.sampler import Sampler
from ..tiers.cache import Recorder, ignore


class EngineVerifier(Protocol):
    """A full tier and perhaps a slim tier over one KV cache; `tiers.verifier.Verifier` is the one on llama.cpp.

    The full tier has computed the positions below `n_full`, the slim tier those from `n_full` up to `n_kv`. Full logits
    never depend on slim passes, unless positions were settled: those from `n_exact` up to `n_full`.
    """

    @property
    def name(self) -> str:
        """The name of the model, for messages."""
        ...

    @property
    def n_ctx(self) -> int:
        """The number of positions that the context holds."""
        ...

    @property
    def n_batch(self) -> int:
        """The most tokens of one call of llama_decode."""
        ...

    @property
    def n_vocab(self) -> int:
        """The size of the vocabulary."""
        ...

    @property
    def n_bytes(self) -> int:
        """The size of the weights, in bytes."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        ...

    @property
    def can_rewind(self) -> bool:
        """Whether single positions can be removed from the cache, which recurrent and hybrid memories cannot do."""
        ...

    @property
    def has_slim_tier(self) -> bool:
        """Whether `slim` may be called."""
        ...

    @property
    def n_full(self) -> int:
        """The number of positions that the full tier has computed."""
        ...

    @property
    def n_exact(self) -> int:
        """The number of positions that the full tier alone has computed; `n_full` unless positions were settled."""
        ...

    @property
    def n_kv(self) -> int:
        """The number of positions in the cache."""
        ...

    @property
    def can_resume(self) -> bool:
        """Whether `full([], …)` could start from the hidden states of the slim passes."""
        ...

    def full(
        self, tokens: Sequence[int], rows: int, kind: str = ..., *, recorder: Recorder = ignore, resume: bool = ...
    ) -> Floats:
        """Append tokens and run the full tier over every position that it has not computed yet.

        Returns the logits of the last `rows` positions, `[rows, n_vocab]`, valid until the next pass. `recorder` is
        told of the pass as `kind`, or as `resume` where it resumes.
        """
        ...

    def slim(self, tokens: Sequence[int], *, write_through: bool = ..., recorder: Recorder = ignore) -> Floats:
        """Append tokens and run the slim tier; returns their logits, `[n, n_vocab]`, valid until the next pass.

        With `write_through`, the positions can be settled.
        """
        ...

    def settle(self, n: int) -> None:
        """Let the first `n` positions count as computed by the full tier."""
        ...

    def reopen(self, n: int) -> None:
        """Make settled positions from `n` on pending again, so that the next full pass computes them."""
        ...

    def rewind(self, n: int, recorder: Recorder = ignore) -> None:
        """Remove every position from `n` on."""
        ...

    def reuse(self, tokens: Sequence[int], limit: int, known: int = ..., recorder: Recorder = ignore) -> int:
        """Keep the longest common prefix with `tokens`, at most `limit` positions; returns its length."""
        ...

    def reset(self) -> None:
        """Empty the cache."""
        ...

    def make_sampler(
        self, params: SamplingParams, prompt: Sequence[int], processors: Sequence[LogitsProcessor]
    ) -> Sampler:
        """Return a sampler over the vocabulary; ValueError for parameters that cannot be followed."""
        ...

    def close(self) -> None:
        """Free the context."""
        ...
