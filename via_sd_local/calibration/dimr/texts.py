"""The prompts of a calibration: five kinds of tasks, or the user's own prompts."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...files import user_path

KINDS = ("summarisation", "translation", "reasoning", "question answering", "code")
OWN = "own"  # the kind of prompts that come without one

_SHIPPED = Path(__file__).with_name("prompts.json")


@dataclass(frozen=True, slots=True)
class CalibrationPrompt:
    """The text of a user's request, without a chat template; `kind` groups the prompts of one task."""

    text: str
    kind: str


def load_texts(path: str | Path | None = None) -> list[CalibrationPrompt]:
    """Return the shipped prompts, or those of a file: paragraphs between blank lines, or a JSON list.

    Items of the list are texts, or objects with `prompt` and, optionally, `kind`. Raises ValueError, which names the
    file, if it has no prompt, has another form or cannot be read.
    """
    source = _SHIPPED if path is None else user_path(str(path))
    try:
        content = source.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{source}: the text cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{source}: the text is not in UTF-8; save it in that encoding") from None
    if source.suffix.lower() == ".json":
        prompts = _parse_json(source, content)
    else:
        paragraphs = (part.strip() for part in re.split(r"\n[ \t\r]*\n", content.removeprefix("\ufeff")))
        prompts = [CalibrationPrompt(text, OWN) for text in paragraphs if text]
    if not prompts:
        raise ValueError(f"{source}: there is no text in this file; write prompts with a blank line between them")
    return prompts


def split(prompts: Sequence[CalibrationPrompt]) -> tuple[list[CalibrationPrompt], list[CalibrationPrompt]]:
    """Split prompts into a search part (the first, third, … of each kind) and a held-out part (the second, fourth, …).

    The only prompt of a kind belongs to the search part. Raises ValueError if the held-out part would be empty.
    """
    parts: tuple[list[CalibrationPrompt], list[CalibrationPrompt]] = ([], [])
    seen: dict[str, int] = defaultdict(int)
    for prompt in prompts:
        parts[seen[prompt.kind] % 2].append(prompt)
        seen[prompt.kind] += 1
    if not parts[1]:
        raise ValueError(
            f"{len(prompts)} prompt(s) cannot be split into a part to search and one to hold out; give two of a kind, "
            "with a blank line between them"
        )
    return parts


def _parse_json(source: Path, content: str) -> list[CalibrationPrompt]:
    try:
        data = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{source}: this is no JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{source}: the JSON is nested too deeply") from None
    if not isinstance(data, list):
        raise ValueError(f"{source}: a JSON file of prompts holds a list, not {type(data).__name__}")
    return [_parse_item(source, number, item) for number, item in enumerate(data)]


def _parse_item(source: Path, number: int, item: object) -> CalibrationPrompt:
    text, kind = (item.get("prompt"), item.get("kind", OWN)) if isinstance(item, dict) else (item, OWN)
    if not (isinstance(text, str) and text.strip() and isinstance(kind, str) and kind.strip()):
        raise ValueError(f'{source}: item {number} is neither a text nor {{"kind": …, "prompt": …}}: {item!r:.80}')
    return CalibrationPrompt(text.strip(), kind.strip())
