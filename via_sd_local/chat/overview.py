"""What `/show` says: the model, the mode, the sampling and the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.policy import Mode
from .columns import columns
from .sampling_text import describe

if TYPE_CHECKING:
    from .chat import Chat


def overview(chat: Chat) -> list[str]:
    """Return one line for each of the things that are in force."""
    dialogue = chat.dialogue
    model, verifier = dialogue.session.model, dialogue.session.engine.verifier
    exchanges = len(dialogue.conversation.turns) // 2
    limit = dialogue.max_tokens
    rows = [
        ("model", f"{model.path.name} ({model.description}, {model.n_bytes / 1e6:.0f} MB)"),
        ("file", str(model.path)),
        ("mode", mode_text(chat)),
        ("sampling", _sampling(chat)),
        ("answers", "to the end of the context" if limit is None else f"at most {limit} tokens"),
        ("context", f"{verifier.n_kv} of {dialogue.n_ctx} tokens; the model was trained for {model.n_ctx_train}"),
        ("system", dialogue.conversation.system or "no message"),
        ("messages", f"{exchanges} exchange{'' if exchanges == 1 else 's'}"),
    ]
    return columns(rows, chat.display.width)


def mode_text(chat: Chat) -> str:
    """Return the mode in force, what drafts, and what the slim tier skips."""
    settings, engine = chat.switches.settings, chat.dialogue.session.engine
    parts = [engine.policy.mode.value]
    if engine.policy.mode is not Mode.PLAIN:
        names = {"model": settings.draft, "self": f"the verifier without {settings.draft_mask}"}
        drafters = [names.get(kind.value) or kind.value for kind in settings.drafter_kinds]
        parts.append(f"drafts from {', then '.join(drafters)}")
    if engine.policy.mode.uses_slim_tier:
        parts.append(f"the slim tier skips {engine.verifier.mask}")
    return ", ".join(parts)


def _sampling(chat: Chat) -> str:
    sampling = chat.dialogue.sampling
    text = describe(sampling.params)
    if sampling.recommendation is None:
        return f"{text}; nothing is recommended for this model"
    if not sampling.follows_recommendation:
        return f"{text}; greedy, so without the recommendation of {sampling.recommendation.source}"
    given = [name.replace("_", "-") for name in sampling.given]
    but = f", but for {', '.join(given)}" if given else ""
    return f"{text}; as recommended by {sampling.recommendation.source}{but}"
