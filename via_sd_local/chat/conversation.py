"""The messages of a conversation and the prompt made from them: pure state, without models."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.chat_format import Message

MIN_ANSWER = 64  # tokens of context reserved for the answer; the oldest turns are left out to free them
_FORMAT = "via_sd_local chat 1"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The tokens of a conversation with a new message, and how many of the oldest messages do not fit into it."""

    tokens: list[int]
    dropped: int


@dataclass(slots=True)
class Conversation:
    """An optional system message, and the turns: user and assistant messages in alternation."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def prompt_for(self, text: str, tokens_of: Callable[[Sequence[Message]], list[int]], n_ctx: int) -> ChatPrompt:
        """Return the prompt for a new user message, leaving out as few of the oldest turns as make it fit.

        The conversation keeps them. Raises ValueError if the message alone does not fit.
        """
        head: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        message: Message = {"role": "user", "content": text}
        room = n_ctx - min(MIN_ANSWER, n_ctx // 4)

        def without(dropped: int) -> list[int]:
            return tokens_of([*head, *self.turns[dropped:], message])

        dropped, tokens = 0, without(0)
        if self.turns and len(tokens) > room:
            fewer = range(2, len(self.turns), 2)
            found = bisect_left(fewer, True, key=lambda dropped: len(without(dropped)) <= room)
            dropped = 2 + 2 * found
            tokens = without(dropped)
        if len(tokens) <= room:
            return ChatPrompt(tokens, dropped)
        what = "this message" + (" and the system message take" if head else " takes")
        raise ValueError(
            f"{what} {len(tokens)} tokens, {len(tokens) - room} more than fit: the context holds {n_ctx} (--n-ctx), of "
            f"which {n_ctx - room} are reserved for the answer"
        )

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

    def copy(self) -> Conversation:
        """Return a conversation that does not change with this one."""
        return Conversation(self.system, list(self.turns))

    def with_exchange(self, question: str, answer: str) -> Conversation:
        """Return the conversation with another user message and its answer."""
        conversation = self.copy()
        conversation.add(question, answer)
        return conversation

    def extend_last(self, answer: str) -> None:
        """Replace the last answer by a longer one."""
        self.turns[-1] = {"role": "assistant", "content": answer}

    def take_back(self) -> tuple[str, str]:
        """Remove and return the last user message and its answer; raises ValueError if there is none."""
        exchange = self.last
        del self.turns[-2:]
        return exchange

    def take_unanswered(self) -> str | None:
        """Remove and return the last user message if its answer is empty, else return None."""
        if not self.turns or self.turns[-1]["content"]:
            return None
        return self.take_back()[0]

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
        except RecursionError:
            raise ValueError("not a saved conversation: the JSON is nested too deeply") from None
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
            turns.append({"role": role, "content": _valid(content)})
        return cls(None if system is None else _valid(system), turns)


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and UTF-8 cannot, by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
