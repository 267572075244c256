"""SentencePiece vocabularies for the tiny models, and the edits that make two of them differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from string import ascii_lowercase

from gguf import TokenType

Metadata = dict[str, "bool | int | float | str | list[bool] | list[int] | list[float] | list[str]"]

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = tuple(  # best first, the score ranks the merges: "▁t" + "he" come before "th"
    "▁t,he,in,▁a,▁s,▁w,▁o,er,on,▁c,re,at,en,▁the,nd,▁in,▁on,▁it,▁is,ing,▁and,▁of,▁to,th,an,ou,it,is,or,ed".split(",")  # noqa: SIM905
)
_BIGRAMS = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]

FIRST_PIECE = 3 + len(_BYTES)  # ids below are <unk>, <s>, </s> and the bytes


@dataclass(frozen=True, slots=True)
class Vocab:
    """A tokenizer as GGUF holds it: texts, scores and types by id, and the ids of its special tokens."""

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[TokenType, ...]
    bos: int = 1
    eos: int = 2
    eot: int | None = None
    add_bos: bool = True

    def __len__(self) -> int:
        return len(self.tokens)

    def with_token(self, token: int, text: str, kind: TokenType = TokenType.NORMAL) -> Vocab:
        """Give one id another text; llama.cpp takes a text such as "<|im_end|>" for an end of generation by itself."""
        return replace(
            self,
            tokens=(*self.tokens[:token], text, *self.tokens[token + 1 :]),
            types=(*self.types[:token], kind, *self.types[token + 1 :]),
        )

    def with_eot(self, token: int, text: str = "<turn_end>") -> Vocab:
        """Make one id a second end of generation, by the metadata's eot_token_id and not by its text."""
        return replace(self.with_token(token, text, TokenType.CONTROL), eot=token)

    def padded(self, n_vocab: int) -> Vocab:
        """Fill up with unused tokens, as converters do when the embedding has more rows than the tokenizer."""
        pads = range(len(self), n_vocab)
        return replace(
            self,
            tokens=self.tokens + tuple(f"[PAD{token}]" for token in pads),
            scores=self.scores + tuple(-1000.0 for _ in pads),
            types=self.types + tuple(TokenType.UNUSED for _ in pads),
        )

    def metadata(self) -> Metadata:
        """Its GGUF keys."""
        keys: Metadata = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": list(self.tokens),
            "tokenizer.ggml.scores": list(self.scores),
            "tokenizer.ggml.token_type": [int(kind) for kind in self.types],
            "tokenizer.ggml.bos_token_id": self.bos,
            "tokenizer.ggml.eos_token_id": self.eos,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": self.add_bos,
        }
        if self.eot is not None:
            keys["tokenizer.ggml.eot_token_id"] = self.eot
        return keys


def vocabulary(n_vocab: int) -> Vocab:
    """The first n_vocab of: <unk>, <s>, </s>, 256 bytes, "▁", letters, common pieces, pairs of letters.

    Any text tokenizes; a longer vocabulary begins with the shorter one. Raises ValueError outside 259..990 tokens.
    """
    pieces = list(dict.fromkeys(["▁", *ascii_lowercase, *_WORDS, *_BIGRAMS]))
    if not FIRST_PIECE <= n_vocab <= FIRST_PIECE + len(pieces):
        raise ValueError(f"n_vocab must be {FIRST_PIECE} to {FIRST_PIECE + len(pieces)}, not {n_vocab}")
    pieces = pieces[: n_vocab - FIRST_PIECE]
    special = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    return Vocab(
        tokens=("<unk>", "<s>", "</s>", *_BYTES, *pieces),
        scores=(*[0.0] * FIRST_PIECE, *(-float(rank) for rank in range(len(pieces)))),
        types=(*special, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces)),
    )
