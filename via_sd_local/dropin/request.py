"""One completion, as the runner takes it: arguments are read and checked, nothing is computed yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..sampling.params import LogitsProcessor, SamplingParams
from .original import LlamaState
from .pieces import Detokenizer
from .prompt import CompletionPrompt
from .text_watcher import Criterion


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """The arguments of one completion; `max_tokens` None runs to the end of the context.

    `logprobs` is the number of best tokens to report with each token, None for no log-probabilities. `seed` None
    takes the next seed of the object. `load_state` and `save_state` are the object's methods if they are overridden;
    they serve the user's cache of states.
    """

    prompt: CompletionPrompt
    sampling: SamplingParams
    processors: tuple[LogitsProcessor, ...]
    max_tokens: int | None
    stops: tuple[str, ...]
    stop_tokens: frozenset[int]
    criteria: Criterion | None
    logprobs: int | None
    echo: bool
    seed: int | None
    detokenizer: Detokenizer
    load_state: Callable[[LlamaState], None] | None = None
    save_state: Callable[[], LlamaState] | None = None
