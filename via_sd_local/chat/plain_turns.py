"""Plain `User:` and `Assistant:` turns for a model without a chat template."""

from __future__ import annotations

from ..arrays import Floats
from ..engine.watch import Flow
from ..runtime.model import Model
from ..text import StopStrings, Utf8Stream

TEMPLATE = (
    "{% for message in messages %}"
    "{{ {'system': '', 'user': 'User: ', 'assistant': 'Assistant: '}[message['role']] }}{{ message['content'] }}\n"
    "{% endfor %}Assistant:"
)
STOP = "\nUser"  # the model has begun the user's next turn


def warning(model: Model) -> str:
    """Return what the user should know about a model without a chat template."""
    return (
        f"{model.path.name} has no chat template; using plain User:/Assistant: turns, which it may not follow; "
        "give its own template with --chat-template FILE"
    )


class OneTurn:
    """A `Watcher` that ends an answer before the token that would complete `STOP`."""

    prompt_from = None

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream, self._stops = Utf8Stream(), StopStrings([STOP])

    def see_prompt(self, start: int, logits: Floats) -> None:
        """Ignore the prompt."""

    def see_token(self, token: int, logits: Floats) -> Flow:
        """End the answer before a token that completes `STOP`."""
        _, stopped = self._stops.push(self._stream.push(self._model.piece(token)))
        return Flow.END_BEFORE if stopped else Flow.GO_ON
