"""The verifier's own greedy answers to the prompts: the text over which masks are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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


def to_json(made: Sequence[RecordedAnswer]) -> list[dict[str, Any]]:
    """For a cache file; `from_json` reads it back."""
    return [{"kind": one.kind, "prompt": list(one.prompt_tokens), "answer": list(one.tokens)} for one in made]


def from_json(data: Any) -> list[RecordedAnswer]:
    """The answers from what `to_json` returned; ValueError for anything else."""
    try:
        made = [RecordedAnswer(_tokens(item["prompt"]), _tokens(item["answer"]), str(item["kind"])) for item in data]
    except (KeyError, TypeError):
        raise ValueError(f"answers are a list of objects with kind, prompt and answer, not {data!r:.80}") from None
    if not all(one.prompt_tokens and one.tokens for one in made):
        raise ValueError("an answer needs at least one token of prompt and one of answer")
    return made


def _tokens(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int for value in values):
        raise ValueError(f"tokens are integers, not {values!r:.80}")
    return tuple(values)
