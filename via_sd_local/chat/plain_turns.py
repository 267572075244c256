"""Turns for a model without a chat template: names and colons, and an end where it would speak for the user."""

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
STOP = "\nUser"  # the first tokens of a turn that is not the model's


def warning(model: Model) -> str:
    """What the user should know."""
    return (
        f"{model.path.name} has no chat template; talking to it in plain turns, which it may not keep to: "
        "give its own with --chat-template FILE"
    )


class OneTurn:
    """Ends an answer where the text of `STOP` would be complete; a `Watcher`."""

    prompt_from = None

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream, self._stops = Utf8Stream(), StopStrings([STOP])

    def see_prompt(self, start: int, logits: Floats) -> None:
        """Nothing to see."""

    def see_token(self, token: int, logits: Floats) -> Flow:
        _, stopped = self._stops.push(self._stream.push(self._model.piece(token)))
        return Flow.END_BEFORE if stopped else Flow.GO_ON
