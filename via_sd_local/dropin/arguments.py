"""Readers of llama-cpp-python's arguments: each checks one argument, or a group, and returns the engine's form."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from ..sampling.params import LogitsProcessor, SamplingParams
from .original import Original
from .text_watcher import Criterion

# the arguments that `create_completion` and `generate` share, besides the temperature
_NUMBERS = (
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "mirostat_mode",
    "mirostat_tau",
    "mirostat_eta",
)
# what a setting is where a client passes None
_DEFAULTS = {name: given.default for name, given in inspect.signature(Original.create_completion).parameters.items()}
_TRUNCATION = ("top_p", "min_p", "typical_p", "mirostat_mode", "mirostat_tau", "mirostat_eta")
_PENALTIES = ("repeat_penalty", "frequency_penalty", "presence_penalty")


def read_sampling(
    arguments: Mapping[str, Any], *, temperature: float | None, penalty_last_n: int, n_vocab: int
) -> SamplingParams:
    """Read the sampler settings of a call from its arguments by name, which may include others.

    `penalty_last_n` is the window of the penalties in tokens. None stands for the default of `create_completion`. As
    in llama-cpp-python, a temperature below 0 draws from the whole vocabulary at temperature 1, and a bias on a token
    that does not exist (`n_vocab` or larger) has no effect. Raises TypeError for values that are not numbers,
    ValueError for numbers out of range.
    """
    numbers = {"temperature": temperature, **{name: arguments[name] for name in _NUMBERS}}
    numbers = {name: _DEFAULTS[name] if value is None else value for name, value in numbers.items()}
    for name, value in {**numbers, "penalty_last_n": penalty_last_n}.items():
        if not isinstance(value, Real):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    common: dict[str, Any] = {
        **{name: numbers[name] for name in _PENALTIES},
        "penalty_last_n": max(penalty_last_n, 0),
        "logit_bias": _read_logit_bias(arguments.get("logit_bias"), n_vocab),
        "grammar": read_grammar(arguments["grammar"]),
    }
    temperature = numbers["temperature"]
    if temperature < 0:
        return SamplingParams(temperature=1.0, **common)
    return SamplingParams(
        temperature=temperature,
        top_k=max(read_whole("top_k", numbers["top_k"]) or 0, 0),
        **{name: numbers[name] for name in _TRUNCATION},
        **common,
    )


def _read_logit_bias(logit_bias: Mapping[Any, float] | None, n_vocab: int) -> tuple[tuple[int, float], ...]:
    if logit_bias is None:
        return ()
    try:
        pairs = [(int(token), float(bias)) for token, bias in logit_bias.items()]
    except (AttributeError, TypeError, ValueError):
        raise TypeError(f"logit_bias is {logit_bias!r:.80}; it must map token ids to numbers") from None
    return tuple((token, bias) for token, bias in pairs if 0 <= token < n_vocab)


def read_token_ids(tokens: Iterable[Any]) -> list[int]:
    """Return token ids as integers; TypeError for a text, for bytes, and for numbers that are not whole."""
    if isinstance(tokens, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"tokens are {tokens!r:.80}; they must be a list of token ids (`tokenize` makes one of bytes)")
    try:
        return [operator.index(token) for token in tokens]
    except TypeError:
        raise TypeError(f"tokens are {tokens!r:.80}; they must be a list of token ids") from None


def read_grammar(grammar: Any) -> str | None:
    """Return the GBNF text of a `LlamaGrammar` or of a string; TypeError for anything else."""
    if grammar is None or isinstance(grammar, str):
        return grammar
    text = getattr(grammar, "_grammar", None)
    if not isinstance(text, str):
        raise TypeError(f"grammar is {grammar!r:.80}; it must be a LlamaGrammar or GBNF text")
    return text


def read_stops(stop: Any) -> tuple[tuple[str, ...], frozenset[int]]:
    """Split a string, a token id, or a list of both into stop strings and stop tokens; drop empty strings."""
    items = [] if stop is None else [stop] if isinstance(stop, (str, bytes, Integral)) else list(stop)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (str, Integral)):
            raise TypeError(f"stop contains {item!r}; it must be strings or token ids")
    strings = tuple(item for item in items if isinstance(item, str) and item)
    return strings, frozenset(int(item) for item in items if not isinstance(item, str))


def read_max_tokens(max_tokens: int | None) -> int | None:
    """Return the limit in tokens; None, also for a negative number, is no limit, and 0 permits no token."""
    number = read_whole("max_tokens", max_tokens)
    return None if number is None or number < 0 else number


def read_whole(name: str, value: Any) -> int | None:
    """Return an integer, also one that is written as a float, or None; TypeError for anything else."""
    if value is None or isinstance(value, Integral):
        return None if value is None else int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise TypeError(f"{name} is {value!r}; it must be a whole number or None")


def read_callbacks(
    processors: Iterable[LogitsProcessor] | LogitsProcessor | None, criteria: Any
) -> tuple[tuple[LogitsProcessor, ...], Criterion | None]:
    """Read logits processors and stopping criteria, each a list or a single function.

    The criteria become one function, which stops where any of them does; None if there is none.
    """
    functions: Any = processors
    if functions is None:
        functions = ()
    elif callable(functions) and not isinstance(functions, Sequence):
        functions = (functions,)
    criterion: Any = criteria
    if criterion is not None and not callable(criterion):
        checks: Sequence[Callable[..., bool]] = tuple(criterion)
        criterion = (lambda ids, logits: any(check(ids, logits) for check in checks)) if checks else None
    return tuple(functions), criterion


def read_logprobs(logprobs: int | None) -> int | None:
    """Return the number of best tokens to report; ValueError for a negative number."""
    number = read_whole("logprobs", logprobs)
    if number is not None and number < 0:
        raise ValueError(f"logprobs is {number}; it must be a number of tokens to report at each position, 0 or more")
    return number


def warn_without_effect(**arguments: tuple[Any, Any]) -> None:
    """Warn about arguments (value, default) that differ from their defaults but do nothing any more."""
    for name, (value, default) in arguments.items():
        if value != default:
            warnings.warn(f"{name} has no effect any more", RuntimeWarning, stacklevel=4)
