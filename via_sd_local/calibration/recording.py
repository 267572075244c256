"""Recorded predictions of the three tiers for the same texts, with which policies are compared without models."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..errors import ModelError
from ..files import replacing
from .top_logits import TopLogits

if TYPE_CHECKING:
    from ..runtime.model import Model
    from ..tiers.cache import TokenCache
    from ..tiers.verifier import Verifier

BLOCK = 4  # tokens of a slim pass; tokens before the block have the full model's K/V
_FORMAT = 1


class AnswerLike(Protocol):
    """A prompt and the verifier's own answer to it."""

    @property
    def prompt_tokens(self) -> Sequence[int]: ...

    @property
    def tokens(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of n tokens; row i of each tier is its distribution over tokens[i], given all tokens before it.

    `slim` is None without a mask, `draft` without a draft model.
    """

    prompt: list[int]
    tokens: list[int]
    full: TopLogits
    slim: TopLogits | None
    draft: TopLogits | None

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded answers of a set of prompts."""

    answers: list[Recorded]

    def __len__(self) -> int:
        """Return the number of recorded positions."""
        return sum(map(len, self.answers))

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        arrays: dict[str, np.ndarray] = {"format": np.array(_FORMAT)}
        for number, answer in enumerate(self.answers):
            arrays[f"{number}.prompt"] = np.array(answer.prompt, np.int32)
            arrays[f"{number}.tokens"] = np.array(answer.tokens, np.int32)
            for tier in ("full", "slim", "draft"):
                top: TopLogits | None = getattr(answer, tier)
                if top is not None:
                    arrays[f"{number}.{tier}.ids"], arrays[f"{number}.{tier}.log_probs"] = top.ids, top.log_probs
        with replacing(path, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a file that `save` wrote; raises ModelError for any other file."""
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                if int(arrays["format"]) != _FORMAT:
                    raise ModelError(f"{path}: a recording of format {arrays['format']}; this program reads {_FORMAT}")

                def top(number: int, tier: str) -> TopLogits | None:
                    name = f"{number}.{tier}"
                    known = f"{name}.ids" in arrays
                    return TopLogits(arrays[f"{name}.ids"], arrays[f"{name}.log_probs"]) if known else None

                answers = []
                number = 0
                while f"{number}.tokens" in arrays:
                    full = top(number, "full")
                    assert full is not None
                    prompt, tokens = (arrays[f"{number}.{part}"].tolist() for part in ("prompt", "tokens"))
                    answers.append(Recorded(prompt, tokens, full, top(number, "slim"), top(number, "draft")))
                    number += 1
                return cls(answers)
        except (OSError, EOFError, ValueError, KeyError, AssertionError, zipfile.BadZipFile) as error:
            raise ModelError(f"{path}: not a recording: {error}") from None


def record(
    verifier: Verifier,
    draft: Model | None,
    answers: Sequence[AnswerLike],
    *,
    block: int = BLOCK,
    progress: Callable[[int], None] = lambda _tokens: None,
) -> Recording:
    """Teacher-force the answers through the tiers in blocks, as at run time.

    The full tier's rows come from passes over whole blocks, so they are rounded as in a run with drafts. `progress` is
    called with the number of tokens of each block. The verifier's cache is empty afterwards.
    """
    if block < 1:
        raise ValueError(f"block is {block}; it must be at least 1 token")
    drafts: list[TopLogits | None] = [None] * len(answers)
    if draft is not None:
        from ..runtime.vocabulary import check_vocabulary
        from ..tiers.cache import TokenCache

        check_vocabulary(draft, verifier.model)
        n_ctx, n_threads = verifier.context.n_ctx, verifier.context.n_threads
        with closing(TokenCache(draft, n_ctx=n_ctx, n_threads=n_threads)) as tracked:
            drafts = [_draft_rows(tracked, answer) for answer in answers]
    recorded = []
    for answer, draft_rows in zip(answers, drafts, strict=True):
        full, slim = _verifier_rows(verifier, answer, block, progress)
        recorded.append(Recorded(list(answer.prompt_tokens), list(answer.tokens), full, slim, draft_rows))
    verifier.reset()
    return Recording(recorded)


def _draft_rows(tracked: TokenCache, answer: AnswerLike) -> TopLogits:
    """Return the draft model's rows, computed token by token as at run time."""
    tracked.reset()
    rows = [TopLogits.from_logits(tracked.append(answer.prompt_tokens)[None])]
    rows += [TopLogits.from_logits(tracked.append([token])[None]) for token in answer.tokens[:-1]]
    return TopLogits.join(rows)


def _verifier_rows(
    verifier: Verifier, answer: AnswerLike, block: int, progress: Callable[[int], None]
) -> tuple[TopLogits, TopLogits | None]:
    text = [*answer.prompt_tokens, *answer.tokens]
    start = len(answer.prompt_tokens) - 1  # row i comes from position start + i
    verifier.reset()
    if start:
        verifier.full(text[:start], 1, "prefill")
    full: list[TopLogits] = []
    slim: list[TopLogits] = []
    for begin in range(start, len(text) - 1, block):
        tokens = text[begin : min(begin + block, len(text) - 1)]
        if verifier.mask:
            slim.append(TopLogits.from_logits(verifier.slim(tokens)))
        full.append(TopLogits.from_logits(verifier.full([] if verifier.mask else tokens, len(tokens))))
        progress(len(tokens))
    return TopLogits.join(full), TopLogits.join(slim) if slim else None
