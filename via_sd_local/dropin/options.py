"""The constructor arguments that the drop-in adds to llama-cpp-python's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..tiers.drafter import Drafter


@dataclass(frozen=True, slots=True)
class TierOptions:
    """How to draft and verify: arguments of `Llama` by the same names, most of them those of `Settings`."""

    draft_model_path: str | None
    drafter: str | Drafter
    mode: str
    profile: str | None
    max_deviation: float | None
    draft_tokens: int | None
    router: str | None
    audit_every: int | str | None
    write_through: bool
    draft_mask: str | None
    mask: str | None
    thresholds: str | None
    draft_n_gpu_layers: int | None
    draft_n_threads: int | None
    check_memory: bool
    message_control_tokens: bool
    remeasure: bool

    def check(self, draft_model: Any) -> None:
        """Raise ValueError or TypeError for options that contradict each other or llama-cpp-python's `draft_model`."""
        drafter, has_draft_file = self.drafter, self.draft_model_path is not None
        if not isinstance(drafter, str | Drafter):
            raise TypeError(
                f"drafter is {drafter!r}; it must be a name or an instance of a via_sd_local.drafters.Drafter subclass"
            )
        if draft_model is not None and (has_draft_file or drafter != "auto"):
            raise ValueError("draft_model is a drafter; pass only one of draft_model, draft_model_path and drafter")
        if self.draft_n_threads is not None and not has_draft_file:
            raise ValueError("draft_n_threads is given, but there is no draft model (draft_model_path)")
        drafts = has_draft_file or draft_model is not None or drafter not in ("auto", "none")
        if self.draft_tokens is not None and not drafts:
            raise ValueError(
                "draft_tokens is given, but nothing drafts: name a draft model (draft_model_path) or a drafter"
            )

    def to_arguments(self) -> dict[str, Any]:
        """Return the constructor's keyword arguments."""
        return {option.name: getattr(self, option.name) for option in fields(self)}
