"""The messages of a conversation and the prompt made from them: pure state, without models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.chat_format import Message

MIN_ANSWER = 64  # tokens of context reserved for the answer; the oldest turns are dropped to free them
_FORMAT = "via_sd_local chat 1"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The tokens of a conversation with a new message, and the number of oldest messages left out to make it fit."""

    tokens: list[int]
    dropped: int


@dataclass(slots=True)
class Conversation:
    """An optional system message, and the turns: user and assistant messages in alternation."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def prompt_for(self, text: str, tokens_of: Callable[[Sequence[Message]], list[int]], n_ctx: int) -> ChatPrompt:
        """Return the prompt for a new user message, leaving out as few of the oldest turns as make it fit.

        The conversation is unchanged; `forget` drops the turns. Raises ValueError if the message alone does not fit.
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
            f"{what} {len(tokens)} tokens, {len(tokens) - room} more than fit: the context holds {n_ctx} (--n-ctx), of "
            f"which {n_ctx - room} are reserved for the answer"
        )

    def forget(self, dropped: int) -> None:
        """Drop the `dropped` oldest messages."""
        del self.turns[:dropped]

    def add(self, question: str, answer: str) -> None:
        """Append a user message and its answer."""
        self.turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    @property
    def last(self) -> tuple[str, str]:
        """The last user message and its answer; raises ValueError if there is none."""
        if not self.turns:
            raise ValueError("there is no message yet")
        question, answer = self.turns[-2:]
        return question["content"], answer["content"]

    def before_last(self) -> Conversation:
        """Return the conversation without the last user message and its answer."""
        return Conversation(self.system, self.turns[:-2])

    def extend_last(self, answer: str) -> None:
        """Replace the last answer by a longer one."""
        self.turns[-1] = {"role": "assistant", "content": answer}

    def take_back(self) -> tuple[str, str]:
        """Remove and return the last user message and its answer; raises ValueError if there is none."""
        exchange = self.last
        del self.turns[-2:]
        return exchange

    def to_json(self) -> str:
        """Return the conversation as JSON text, which `from_json` reads."""
        data = {"format": _FORMAT, "system": self.system, "messages": self.turns}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Conversation:
        """Return the conversation that `to_json` wrote; raises ValueError for any other text."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a saved conversation: {error}") from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f'not a saved conversation: it lacks "format": "{_FORMAT}"')
        system, messages = data.get("system"), data.get("messages")
        if system is not None and not isinstance(system, str):
            raise ValueError(f"the saved conversation's system message is {system!r}; it must be a string or null")
        if not isinstance(messages, list) or len(messages) % 2:
            raise ValueError("the saved conversation's messages must be a list of user messages, each with its answer")
        turns: list[Message] = []
        for number, message in enumerate(messages):
            role = ("user", "assistant")[number % 2]
            content = message.get("content") if isinstance(message, dict) and message.get("role") == role else None
            if not isinstance(content, str):
                raise ValueError(
                    f"the saved conversation's message {number} must have the role {role} and a string as content"
                )
            turns.append({"role": role, "content": content})
        return cls(system, turns)
