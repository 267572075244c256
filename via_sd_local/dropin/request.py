"""What one call asks for, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ..sampling.params import LogitsProcessor, SamplingParams
from .prompt import CompletionPrompt
from .text_watcher import Criterion

RANDOM_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED, also written -1


@dataclass(frozen=True, slots=True)
class Request:
    """A completion; `max_tokens` None is up to the end of the context."""

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


def read_sampling(
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    typical_p: float,
    repeat_penalty: float,
    frequency_penalty: float,
    presence_penalty: float,
    mirostat_mode: int,
    mirostat_tau: float,
    mirostat_eta: float,
    penalty_last_n: int,
    grammar: Any,
    logit_bias: Mapping[Any, float] | None = None,
) -> SamplingParams:
    """llama-cpp-python's sampler arguments as ours. A temperature below 0 is a draw at 1 from all tokens there."""
    numbers = {name: value for name, value in locals().items() if name not in ("grammar", "logit_bias")}
    for name, value in numbers.items():
        if not isinstance(value, Real):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    if logit_bias is not None and not isinstance(logit_bias, Mapping):
        raise TypeError(f"logit_bias is {logit_bias!r}; it must map token ids to numbers")
    biases = tuple((int(token), float(bias)) for token, bias in (logit_bias or {}).items())
    common: dict[str, Any] = {
        "repeat_penalty": repeat_penalty,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "penalty_last_n": max(penalty_last_n, 0),
        "logit_bias": biases,
        "grammar": read_grammar(grammar),
    }
    if temperature < 0:
        return SamplingParams(temperature=1.0, **common)
    return SamplingParams(
        temperature=temperature,
        top_k=max(read_whole("top_k", top_k) or 0, 0),
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        mirostat_mode=mirostat_mode,
        mirostat_tau=mirostat_tau,
        mirostat_eta=mirostat_eta,
        **common,
    )


def read_grammar(grammar: Any) -> str | None:
    """The GBNF text of a `LlamaGrammar`, or of a text; TypeError for anything else."""
    if grammar is None or isinstance(grammar, str):
        return grammar
    text = getattr(grammar, "_grammar", None)
    if not isinstance(text, str):
        raise TypeError(f"grammar is {grammar!r:.80}; it must be a LlamaGrammar or GBNF text")
    return text


def read_stops(stop: Any) -> tuple[tuple[str, ...], frozenset[int]]:
    """Stop strings and stop tokens from a string, a token id, or a list of both; empty strings stop nothing."""
    items = [] if stop is None else [stop] if isinstance(stop, (str, Integral)) else list(stop)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (str, Integral)):
            raise TypeError(f"stop has {item!r}; it must be texts or token ids")
    strings = tuple(item for item in items if isinstance(item, str) and item)
    return strings, frozenset(int(item) for item in items if not isinstance(item, str))


def read_max_tokens(max_tokens: int | None) -> int | None:
    """None or a negative number is no limit, 0 is no token."""
    number = read_whole("max_tokens", max_tokens)
    return None if number is None or number < 0 else number


def read_whole(name: str, value: Any) -> int | None:
    """A whole number, also one that is written as a float, or None; TypeError for anything else."""
    if value is None or isinstance(value, Integral):
        return None if value is None else int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise TypeError(f"{name} is {value!r}; it must be a whole number or None")


def read_callbacks(
    processors: Iterable[LogitsProcessor] | LogitsProcessor | None, criteria: Any
) -> tuple[tuple[LogitsProcessor, ...], Criterion | None]:
    """Logits processors and stopping criteria, each given as a list or as a single function."""
    some: Any = processors
    if some is None:
        some = ()
    elif callable(some) and not isinstance(some, Sequence):
        some = (some,)
    checks: Any = criteria
    if checks is not None and not callable(checks):
        several: Sequence[Callable[..., bool]] = tuple(checks)
        checks = (lambda ids, logits: any(check(ids, logits) for check in several)) if several else None
    return tuple(some), checks


def read_logprobs(logprobs: int | None) -> int | None:
    """ValueError for a negative number."""
    number = read_whole("logprobs", logprobs)
    if number is not None and number < 0:
        raise ValueError(f"logprobs is {number}; it is how many of the best tokens to show, from 0 up")
    return number


def read_seed(seed: int | None) -> int | None:
    """32 bits of it; None for llama.cpp's code for a random one."""
    given = read_whole("seed", seed)
    number = RANDOM_SEED if given is None else given & RANDOM_SEED
    return None if number == RANDOM_SEED else number
