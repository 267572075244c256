"""For the tests of the chat: conversations with a tiny model.

Test files take the fixtures as `name = conversations.name`: ruff takes an imported fixture for an unused name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local import chat
from via_sd_local.chat_format import ChatFormat, Message
from via_sd_local.sampling import SamplingParams
from via_sd_local.session import Session
from via_sd_local.settings import Settings

LLAMA = tiny.spec("llama")
TEMPLATE = (
    "{% if 'forbidden' in messages[-1].content %}"
    "{{ raise_exception('refused: ' ~ messages[-1].content | replace('\n', ' / ')) }}"
    "{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)
GREEDY = SamplingParams()


class Recorder(ChatFormat):
    """A chat format that remembers the messages that it rendered last, and their tokens."""

    messages: list[Message]
    prompt: list[int]

    def tokens(self, messages: Any) -> list[int]:
        self.messages = list(messages)
        self.prompt = super().tokens(messages)
        return self.prompt


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with TEMPLATE."""
    path = tmp_path_factory.mktemp("chat") / "tiny.gguf"
    return tiny.write(path, LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})


@pytest.fixture
def talking(tiny_path: Path, keep: Callable[[Any], Any]) -> Callable[..., chat.Conversation]:
    """`talking(system="…", n_ctx=256)` begins a conversation with the tiny model."""

    def make(system: str | None = None, n_ctx: int = 256, **options: Any) -> chat.Conversation:
        options.setdefault("draft_tokens", 3)
        session = keep(Session(Settings(str(tiny_path), n_ctx=n_ctx, threads=1, **options)))
        return chat.Conversation(session, Recorder(session.model), system)

    return make


Talking = Callable[..., chat.Conversation]


def ask(conversation: chat.Conversation, text: str, max_tokens: int | None = 5) -> str:
    return "".join(conversation.answer(text, max_tokens, GREEDY))
