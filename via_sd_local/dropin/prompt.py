"""Tokenises the prompt of a completion, with exactly one BOS and, for infilling, the model's own FIM tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..binding import llama
from .arguments import read_token_ids
from .message_text import without_marks
from .original import Original


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """The tokens of a prompt, its text (None if it came as tokens), and a text to append to the answer."""

    tokens: list[int]
    text: str | None
    appended: str = ""


def read_prompt(llm: Original, prompt: str | Sequence[int], suffix: str | None) -> CompletionPrompt:
    """Tokenise a prompt; with a suffix, infill between the two.

    A model without FIM tokens gets the prompt alone, and the suffix is appended to its answer. Raises ValueError for
    an empty prompt where the model has no BOS, TypeError for a prompt that is neither text nor token ids.
    """
    if suffix is not None and not isinstance(suffix, str):
        raise TypeError(f"suffix is {suffix!r}; it must be a string")
    text = without_marks(prompt) if isinstance(prompt, str) else None
    content = prompt if isinstance(prompt, str) else _token_ids(prompt)
    if suffix is None:
        tokens, appended = (_tokenize(llm, content) if isinstance(content, str) else content), ""
    else:
        tokens, appended = _infill(llm, content, suffix)
    bos = llm.token_bos()
    if not tokens:
        if bos < 0:
            raise ValueError("the prompt is empty, and the model has no BOS token to start from; give it some text")
        tokens = [bos]
    if llm._model.add_bos_token() and tokens != llm._input_ids.tolist():
        while tokens[:2] == [bos, bos]:
            del tokens[0]
    return CompletionPrompt(tokens, text, appended)


def _token_ids(prompt: Sequence[int]) -> list[int]:
    try:
        return read_token_ids(prompt)
    except TypeError:
        raise TypeError(f"the prompt is {prompt!r:.80}; it must be a string or a list of token ids") from None


def _affixes(llm: Original) -> tuple[list[int], list[int]]:
    """Return the special tokens that the model expects before and after a text."""
    bos, sep = llm.token_bos(), llm._model.token_sep()
    before = [bos] if llm._model.add_bos_token() and bos >= 0 else []
    if sep >= 0:
        return before, [sep]
    return before, [llm.token_eos()] if llm._model.add_eos_token() else []


def _tokenize(llm: Original, text: str) -> list[int]:
    if not text:
        return []
    before, after = _affixes(llm)
    return before + list(llm.tokenize(_utf8(text), add_bos=False, special=True)) + after


def _infill(llm: Original, prompt: str | list[int], suffix: str) -> tuple[list[int], str]:
    """Return the tokens of an infilling prompt, and the text to append where the model has no FIM tokens."""
    model = llm._model
    fim_prefix, fim_suffix, fim_middle = model.token_prefix(), model.token_suffix(), model.token_middle()
    if min(fim_prefix, fim_suffix, fim_middle) < 0:
        return (_tokenize(llm, prompt) if isinstance(prompt, str) else prompt), suffix
    prefix_ids = list(llm.tokenize(_utf8(prompt), add_bos=False, special=False)) if isinstance(prompt, str) else prompt
    suffix_ids: list[int] = []
    if suffix:
        # SentencePiece puts a space before a text; a sacrificial character, two tokens with its space, takes it away
        spaced = model.vocab_type() == llama.LLAMA_VOCAB_TYPE_SPM and llm.metadata.get(
            "tokenizer.ggml.add_space_prefix", "true"
        ) == "true"  # fmt: skip
        suffix_ids = list(llm.tokenize(_utf8(("☺" if spaced else "") + suffix), add_bos=False, special=False))
        suffix_ids = suffix_ids[2:] if spaced else suffix_ids
    before, after = _affixes(llm)
    first, second = [fim_prefix, *prefix_ids], [fim_suffix, *suffix_ids]
    order = second + first if llm.spm_infill else first + second
    return before + order + [fim_middle] + after, ""


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the prompt has no UTF-8 form: its character {error.start} is half of a surrogate pair"
        ) from None
