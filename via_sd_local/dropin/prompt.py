"""From the prompt of a completion to its tokens, with exactly one BOS and, for infilling, the model's own marks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..binding import llama


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """Tokens, the text to echo (None if it was given as tokens), and what to put after the answer."""

    tokens: list[int]
    text: str | None
    appended: str = ""


def read_prompt(llm: Any, prompt: str | Sequence[int], suffix: str | None) -> CompletionPrompt:
    """ValueError for an empty prompt of a model without BOS, TypeError for what is neither a text nor token ids."""
    if suffix is not None and not isinstance(suffix, str):
        raise TypeError(f"suffix is {suffix!r}; it must be a text")
    text = prompt if isinstance(prompt, str) else None
    given = None if isinstance(prompt, str) else _token_ids(prompt)
    if suffix is None:
        tokens, appended = (_tokens_of(llm, prompt) if isinstance(prompt, str) else given or []), ""
    else:
        tokens, appended = _infill(llm, prompt if isinstance(prompt, str) else given or [], suffix)
    bos = llm.token_bos()
    if not tokens:
        if bos < 0:
            raise ValueError("the prompt is empty, and the model has no BOS token to begin with; give it some text")
        tokens = [bos]
    if llm._model.add_bos_token() and tokens != llm._input_ids.tolist():
        while tokens[:2] == [bos, bos]:
            del tokens[0]
    return CompletionPrompt(tokens, text, appended)


def _token_ids(prompt: Sequence[int]) -> list[int]:
    try:
        return [int(token) for token in prompt]
    except (TypeError, ValueError):
        raise TypeError(f"the prompt is {prompt!r:.80}; it must be a text or a list of token ids") from None


def _ends(llm: Any) -> tuple[list[int], list[int]]:
    """What the model wants before and after a text."""
    bos, sep = llm.token_bos(), llm._model.token_sep()
    before = [bos] if llm._model.add_bos_token() and bos >= 0 else []
    if sep >= 0:
        return before, [sep]
    return before, [llm.token_eos()] if llm._model.add_eos_token() else []


def _tokens_of(llm: Any, text: str) -> list[int]:
    if not text:
        return []
    before, after = _ends(llm)
    return before + list(llm.tokenize(_utf8(text), add_bos=False, special=True)) + after


def _infill(llm: Any, prompt: str | list[int], suffix: str) -> tuple[list[int], str]:
    """Prefix, suffix and middle marks around the two texts; without such marks the suffix is only appended."""
    model = llm._model
    marks = [model.token_prefix(), model.token_suffix(), model.token_middle()]
    if min(marks) < 0:
        return (_tokens_of(llm, prompt) if isinstance(prompt, str) else prompt), suffix
    prefix = list(llm.tokenize(_utf8(prompt), add_bos=False, special=False)) if isinstance(prompt, str) else prompt
    behind: list[int] = []
    if suffix:
        # SentencePiece puts a blank before a text; a character before it, of two tokens with the blank, takes it away
        blank = model.vocab_type() == llama.LLAMA_VOCAB_TYPE_SPM and llm.metadata.get(
            "tokenizer.ggml.add_space_prefix", "true"
        ) == "true"  # fmt: skip
        behind = list(llm.tokenize(_utf8(("☺" if blank else "") + suffix), add_bos=False, special=False))
        behind = behind[2:] if blank else behind
    before, after = _ends(llm)
    first, second = [marks[0], *prefix], [marks[1], *behind]
    order = second + first if llm.spm_infill else first + second
    return before + order + [marks[2]] + after, ""


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt has no UTF-8 form: its character {error.start} is half of a pair") from None


def check_ignored(**values: tuple[Any, Any]) -> None:
    """Warn about settings that the libraries behind us no longer have, where they are not at their defaults."""
    for name, (value, default) in values.items():
        if value != default:
            warnings.warn(f"{name} has no effect any more", RuntimeWarning, stacklevel=4)
