"""Watchers see each token before it is committed, and may end the text there: their protocol, and who asks them."""

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

        The logits are the full model's, except for tokens that the slim tier decides alone in `tiered` and `viasd`.
        """
        ...


class Watch:
    """Shows the tokens of a block to the watcher of a generation, each one once, whoever asks about it first."""

    def __init__(self, watcher: Watcher | None) -> None:
        self.watcher = watcher
        self._flows: list[Flow] = []  # of the tokens of the current block

    def flow(self, index: int, token: int, logits: Floats) -> Flow:
        """Return what happens to the text at the token `index` of the current block, decided by logits `[n_vocab]`."""
        if self.watcher is None:
            return Flow.GO_ON
        if index == len(self._flows):
            self._flows.append(self.watcher.see_token(token, logits))
        return self._flows[index]

    def commit(self) -> None:
        """Begin the next block."""
        self._flows.clear()
