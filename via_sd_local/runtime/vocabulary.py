"""Checks that two models share a vocabulary, so that the tokens of one can be given to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ModelError

if TYPE_CHECKING:
    from .model import Model

_KINDS = {  # llama_vocab_type
    0: "absent",
    1: "SentencePiece",
    2: "byte-level BPE",
    3: "WordPiece",
    4: "Unigram",
    5: "RWKV's",
    6: "PLaMo's",
}


def check_vocabulary(draft: Model, verifier: Model) -> None:
    """Raise ModelError, naming the first difference, unless each token id means the same to both models.

    Only the ids that both models have are compared: vocabularies may be padded to different lengths.
    """
    if draft.path == verifier.path:
        return
    pair = f"the draft {draft.path.name} cannot serve the verifier {verifier.path.name}"
    if draft.vocab_type != verifier.vocab_type:
        raise ModelError(
            f"{pair}: its tokenizer is {_kind(draft)} and the verifier's {_kind(verifier)}; take a draft of the "
            "verifier's family"
        )
    for name in ("bos", "eos"):
        theirs, ours = getattr(draft, name), getattr(verifier, name)
        if theirs != ours:
            raise ModelError(f"{pair}: {name.upper()} is token {theirs} in the draft and {ours} in the verifier")
    for token in range(min(draft.n_vocab, verifier.n_vocab)):
        theirs, ours = draft.token_text(token), verifier.token_text(token)
        if theirs != ours:
            raise ModelError(
                f"{pair}: token {token} is {_quoted(theirs)} in the draft and {_quoted(ours)} in the verifier"
            )
    if draft.eog != verifier.eog:
        token = min(draft.eog ^ verifier.eog)
        raise ModelError(
            f"{pair}: token {token} ({_quoted(verifier.token_text(token))}) ends the text in only one of them"
        )


def _kind(model: Model) -> str:
    return _KINDS.get(model.vocab_type, f"of type {model.vocab_type}")


def _quoted(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
