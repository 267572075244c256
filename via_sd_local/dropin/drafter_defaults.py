"""The drafter and the mode of objects that name none, for programs that know only llama-cpp-python's arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..session.settings import Settings
from ..tiers.drafter import Drafter
from .paths import model_file

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class _Defaults:
    draft_path: str | None = None
    drafter: str = AUTO
    mode: str = AUTO


_defaults = _Defaults()


def install_defaults(draft: str | os.PathLike[str] | None, drafter: str | None, mode: str | None) -> None:
    """Set the defaults of this process; None takes the environment variable, if there is one.

    Raises ModelError for a draft model that is not on this machine, ValueError for an unknown drafter or mode.
    """
    global _defaults
    variables = {name: os.environ.get(name) or None for name in ("VIA_SD_DRAFT", "VIA_SD_DRAFTER", "VIA_SD_MODE")}
    name = "the draft model" if draft is not None else "VIA_SD_DRAFT"
    draft = variables["VIA_SD_DRAFT"] if draft is None else draft
    path = None if draft is None else model_file(name, draft)
    drafter, mode = drafter or variables["VIA_SD_DRAFTER"] or AUTO, mode or variables["VIA_SD_MODE"] or AUTO
    Settings("the program's model", draft=path, drafter=drafter, mode=mode)  # checks the names
    _defaults = _Defaults(path, drafter, mode)


def with_defaults(
    draft_path: str | None, drafter: str | Drafter, mode: str, draft_model: Any
) -> tuple[str | None, str | Drafter, str]:
    """Return the draft model, the drafter and the mode of an object: the defaults where it names none of them."""
    if draft_path is None and drafter == AUTO and draft_model is None and mode in (AUTO, _defaults.mode):
        return _defaults.draft_path, _defaults.drafter, _defaults.mode
    return draft_path, drafter, mode
