"""The protocol of a watcher, which sees each token before it is committed, and may end the text there."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ..arrays import Floats


class Flow(Enum):
    """What happens to the text at a token."""

    GO_ON = "go on"
    END_AFTER = "end after"  # the token is the text's last one
    END_BEFORE = "end before"  # the token is not part of the text


class Watcher(Protocol):
    """Follows a generation token by token, and may end it with `finish_reason` "stop".

    It is called from inside the loop: arrays are valid during the call only, and an exception ends the generation.
    """

    @property
    def prompt_from(self) -> int | None:
        """The prompt position from which on `see_prompt` is called, with logits decoded for it; None for no calls."""
        ...

    def see_prompt(self, start: int, logits: Floats) -> None:
        """See the logits `[n, n_vocab]` that follow the prompt's tokens from `start` on; called before any token."""
        ...

    def see_token(self, token: int, logits: Floats) -> Flow:
        """See a token that is not an end token, and the logits `[n_vocab]` that decided it, before bias and penalties.

        The logits are the full model's, except for tokens that the slim tier decides alone in mode `tiered`.
        """
        ...
