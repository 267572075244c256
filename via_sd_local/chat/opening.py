"""Loads the model of a conversation, with its chat format."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..engine.watch import Watcher
from ..runtime.chat_format import ChatFormat
from ..session.session import Session
from ..session.settings import Settings
from . import plain_turns


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A session and the format of its prompts.

    `make_watcher` is called once per answer for what ends it besides the model. `template` is the chat template that
    replaces the model's own, if one was given.
    """

    session: Session
    form: ChatFormat
    make_watcher: Callable[[], Watcher] | None = None
    template: str | None = None

    @classmethod
    def load(
        cls, settings: Settings, template: str | None = None, on_stage: Callable[[str], None] | None = None
    ) -> OpenModel:
        """Load the models of the settings; `template` replaces the model's own chat template.

        `on_stage` is told what is being done (`Session`).

        A model without a template gets plain turns, with a warning. Raises what `Session` and `ChatFormat` raise, with
        nothing left loaded.
        """
        session = Session(settings, on_stage=on_stage)
        try:
            model = session.model
            if template is None and model.chat_template is None:
                warnings.warn(plain_turns.warning(model), RuntimeWarning, stacklevel=2)
                form = ChatFormat(model, plain_turns.TEMPLATE)
                return cls(session, form, partial(plain_turns.OneTurn, model))
            return cls(session, ChatFormat(model, template), template=template)
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        """Free the models."""
        self.session.close()
