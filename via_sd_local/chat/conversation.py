"""What was said so far: pure state, without models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.chat_format import Message

MIN_ANSWER = 64  # tokens of context that a prompt leaves free, or the oldest turns go
_FORMAT = "via_sd_local chat 1"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The tokens of a conversation with a new message, and how many of its oldest messages had to go."""

    tokens: list[int]
    dropped: int


@dataclass(slots=True)
class Conversation:
    """A system message, or none, and the turns: a user's message, the answer, and so on."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def prompt_for(self, text: str, tokens_of: Callable[[Sequence[Message]], list[int]], n_ctx: int) -> ChatPrompt:
        """The prompt that asks `text`, without as many of the oldest turns as must go to make it fit.

        Changes nothing; `forget` drops them. Raises ValueError when the message does not fit even alone.
        """
        head: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        message: Message = {"role": "user", "content": text}
        room = n_ctx - min(MIN_ANSWER, n_ctx // 4)
        for dropped in range(0, len(self.turns) + 1, 2):
            tokens = tokens_of([*head, *self.turns[dropped:], message])
            if len(tokens) <= room:
                return ChatPrompt(tokens, dropped)
        what = "this message" + (" and the system message take" if head else " takes")
        raise ValueError(
            f"{what} {len(tokens)} tokens, {len(tokens) - room} more than fit: the context has {n_ctx} (--n-ctx), of "
            f"which {n_ctx - room} are kept for the answer"
        )

    def forget(self, dropped: int) -> None:
        """Drop so many of the oldest messages."""
        del self.turns[:dropped]

    def add(self, question: str, answer: str) -> None:
        """Append an exchange."""
        self.turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    def take_back(self) -> tuple[str, str]:
        """Remove the last exchange and return it; ValueError if there is none."""
        if not self.turns:
            raise ValueError("nothing was asked yet")
        question, answer = self.turns[-2:]
        del self.turns[-2:]
        return question["content"], answer["content"]

    def to_json(self) -> str:
        """The conversation as a JSON text; `from_json` reads it."""
        data = {"format": _FORMAT, "system": self.system, "messages": self.turns}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Conversation:
        """The conversation that `to_json` wrote; ValueError for anything else."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ValueError(f"this is no saved conversation: {error}") from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f'this is no saved conversation: it lacks "format": "{_FORMAT}"')
        system, messages = data.get("system"), data.get("messages")
        if system is not None and not isinstance(system, str):
            raise ValueError(f"the saved conversation's system message is {system!r}; it must be a text or null")
        if not isinstance(messages, list) or len(messages) % 2:
            raise ValueError("the saved conversation's messages must be a list of questions, each with its answer")
        turns: list[Message] = []
        for number, message in enumerate(messages):
            role = ("user", "assistant")[number % 2]
            content = message.get("content") if isinstance(message, dict) and message.get("role") == role else None
            if not isinstance(content, str):
                raise ValueError(f"the saved conversation's message {number} must have the role {role} and a text")
            turns.append({"role": role, "content": content})
        return cls(system, turns)
