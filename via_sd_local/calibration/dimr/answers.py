"""The verifier's own greedy answers to the prompts: the text over which masks are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ... import json_form
from ...json_form import NOT_EMPTY
from ...runtime.chat_format import ChatFormat
from ...tiers.verifier import Verifier
from .texts import CalibrationPrompt


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A prompt in the model's chat template and what the full model says to it; an end token, if it came, is the last.

    Both have at least one token.
    """

    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    kind: str


def answers(
    verifier: Verifier,
    prompts: Sequence[CalibrationPrompt],
    max_tokens: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[RecordedAnswer]:
    """Answer each prompt with at most `max_tokens` tokens, greedily, by full passes; `progress(done, all)` after each.

    The prompt goes through the file's own chat template, or as it is where there is none. ValueError for a prompt that
    leaves no room in the verifier's context.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; an answer has at least one token")
    model = verifier.model
    chat = ChatFormat(model) if model.chat_template is not None else None
    made: list[RecordedAnswer] = []
    for prompt in prompts:
        if chat is not None:
            tokens = chat.tokens([{"role": "user", "content": prompt.text}])
        else:
            tokens = model.tokenize_prompt(prompt.text)
        room = verifier.context.n_ctx - len(tokens)
        if room < 1:
            raise ValueError(
                f"the prompt {prompt.text[:40]!r}… has {len(tokens)} tokens and the context {verifier.context.n_ctx}; "
                "shorten it or raise n_ctx"
            )
        made.append(RecordedAnswer(tuple(tokens), tuple(_greedy(verifier, tokens, min(max_tokens, room))), prompt.kind))
        if progress is not None:
            progress(len(made), len(prompts))
    return made


def _greedy(verifier: Verifier, prompt: list[int], max_tokens: int) -> list[int]:
    end_tokens = verifier.model.eog
    emitted: list[int] = []
    verifier.rewind(verifier.reuse(prompt, len(prompt) - 1))
    inputs = prompt[verifier.n_kv :]
    while len(emitted) < max_tokens:
        logits = verifier.full(inputs, 1, kind="full" if emitted else "prefill")
        emitted.append(int(logits[0].argmax()))
        if emitted[-1] in end_tokens:
            break
        inputs = emitted[-1:]
    return emitted


@dataclass(frozen=True, slots=True)
class _SavedAnswer:
    """An answer as JSON has it."""

    kind: str
    prompt: Annotated[tuple[int, ...], NOT_EMPTY]
    answer: Annotated[tuple[int, ...], NOT_EMPTY]


def to_json(made: Sequence[RecordedAnswer]) -> Any:
    """Return answers as JSON data for a cache file; `from_json` reads it back."""
    return json_form.to_json(tuple(_SavedAnswer(one.kind, one.prompt_tokens, one.tokens) for one in made))


def from_json(data: Any) -> list[RecordedAnswer]:
    """Return the answers from what `to_json` returned; raises ValueError that names the wrong entry."""
    saved: tuple[_SavedAnswer, ...] = json_form.from_json(tuple[_SavedAnswer, ...], data, "answers")
    return [RecordedAnswer(answer.prompt, answer.answer, answer.kind) for answer in saved]
