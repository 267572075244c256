"""Token ids to text: the steps of a generation, decoded into whole characters."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from ..engine.steps import FinishReason, Step, Tier
from ..text import Utf8Stream


@dataclass(frozen=True, slots=True)
class Piece:
    """The text that one token completed, the tier that decided the token, and whether it was drafted."""

    text: str
    tier: Tier
    drafted: bool = False


@dataclass(frozen=True, slots=True)
class TextStep:
    """The text of one step of the engine, one piece per token; `finish_reason` is None until the last token."""

    pieces: tuple[Piece, ...]
    finish_reason: FinishReason | None

    @property
    def text(self) -> str:
        """The text of all pieces; empty while a character is incomplete."""
        return "".join(piece.text for piece in self.pieces)


def text_steps(steps: Generator[Step, None, None], piece_of: Callable[[int], bytes]) -> Generator[TextStep, None, None]:
    """Decode the steps of `Engine.generate`; `piece_of` returns the bytes of a token (`Model.piece`).

    A character may span several tokens: it belongs to the token that completes it. A character that is still incomplete
    at the end follows as a step of its own, as U+FFFD. Closing the iterator closes `steps`.
    """
    stream, tier, finish_reason = Utf8Stream(), Tier.FULL, None
    with closing(steps):
        for step in steps:
            pieces = tuple(
                Piece(stream.push(piece_of(token)), tier, number < step.drafted)
                for number, (token, tier) in enumerate(zip(step.tokens, step.tiers, strict=True))
            )
            tier, finish_reason = step.tiers[-1] if step.tiers else tier, step.finish_reason
            yield TextStep(pieces, finish_reason)
    if rest := stream.finish():
        yield TextStep((Piece(rest, tier),), finish_reason)
