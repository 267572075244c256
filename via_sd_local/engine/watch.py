"""Someone who sees each token before it is committed, and may end the text there."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ..arrays import Floats


class Flow(Enum):
    """What becomes of a token, and of those that were decided together with it and follow it."""

    GO_ON = "go on"
    END_AFTER = "end after"  # the token is the text's last one
    END_BEFORE = "end before"  # the token is not part of the text


class Watcher(Protocol):
    """Follows a generation token by token. What it ends, ends with `finish_reason` "stop".

    It is called from inside the loop: the arrays are valid during the call only, and what it raises ends the
    generation.
    """

    @property
    def prompt_from(self) -> int | None:
        """The prompt position from which on it wants to see logits, which are decoded anew for it; None: none."""
        ...

    def see_prompt(self, start: int, logits: Floats) -> None:
        """Logits `[n, n_vocab]` that follow the prompt's tokens `start`…; called before any token."""
        ...

    def see_token(self, token: int, logits: Floats) -> Flow:
        """A token that is no end token, and the logits `[n_vocab]` that decided it, before bias and penalties.

        They are the full model's, but for what the slim tier decides alone in mode `tiered`.
        """
        ...
