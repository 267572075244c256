"""Text on a terminal: nothing that was not meant for the terminal is obeyed by it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminals import Terminal

from via_sd_local.visible import VisibleStream, unguarded, visible, visible_terminals

EVIL = "a\x1b]0;title\x07\x1b[2Jb"
SHOWN = "a^[]0;title^G^[[2Jb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SHOWN),
        ("\x00\x7f\x9b2J", "^@^?<9b>2J"),
        ("tab\tand\nnewline", "tab\tand\nnewline"),
        ("windows\r\nline, over\rwritten", "windows\nline, over^Mwritten"),
        ("é 文 😀 \xa0 \u202e", "é 文 😀 \xa0 \u202e"),
    ],
)
def test_control_characters_become_visible_and_all_others_stay(text: str, shown: str) -> None:
    assert visible(text) == shown
    for cut in range(len(text) + 1):
        stream = VisibleStream()
        assert stream.push(text[:cut]) + stream.push(text[cut:]) + stream.finish() == shown


def test_every_control_character_of_unicode_but_tab_and_newline_is_made_visible() -> None:
    every = "".join(map(chr, range(0x3000)))
    assert {char for char in every if char not in visible(char)} == {
        chr(code) for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
    }


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminals_get_visible_text_and_pipes_the_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = _Tty(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", pipe)
    with visible_terminals():
        print(EVIL, flush=True)
        print(EVIL, file=sys.stderr)
        unguarded(sys.stdout).write("\x1b[1m")
        unguarded(sys.stderr).write("\x1b[1m")
        print("over\r", end="")
    assert terminal.getvalue() == f"{SHOWN}\n\x1b[1mover^M"
    assert pipe.getvalue() == f"{EVIL}\n\x1b[1m"
    assert sys.stdout is terminal
    with pytest.raises(KeyError), visible_terminals():
        raise KeyError
    assert sys.stdout is terminal


#
# the commands
#


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """`started("models", "list")` runs a command in a terminal until its end; its cache folder is `tmp_path`."""
    terminals: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        code = f"import sys; from via_sd_local.cli import main; sys.exit(main({list(arguments)!r}))"
        terminals.append(Terminal([sys.executable, "-c", code], {"VIA_SD_HOME": str(tmp_path)}, columns=400))
        terminals[-1].status()
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("models", "list"),
        ("models", "pull", EVIL),
        ("profiles", "show", f"{EVIL}.json"),
        ("complete", "--verifier", "x", "--prompt-file", EVIL),
        ("models", EVIL),
        ("calibrate", "--verifier", EVIL),
    ],
    ids=lambda arguments: " ".join(arguments).replace(EVIL, "EVIL"),
)
def test_commands_show_file_names_and_arguments_without_obeying_them(
    arguments: tuple[str, ...], started: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{EVIL}.gguf").write_bytes(b"GGUF")
    terminal = started(*arguments)
    assert SHOWN in terminal.text or repr(EVIL)[1:-1] in terminal.text
    assert EVIL.encode() not in terminal.written
    assert b"\x1b]0;" not in terminal.written


def test_what_a_profile_contains_is_shown_without_being_obeyed(
    started: Callable[..., Terminal], tmp_path: Path
) -> None:
    shipped = Path(__file__).parents[2] / "models" / "profiles"
    data = json.loads(next(iter(sorted(shipped.glob("*.json")))).read_text(encoding="utf-8"))
    data["verifier"]["file"] = EVIL
    (tmp_path / "p.json").write_text(json.dumps(data), encoding="utf-8")
    terminal = started("profiles", "show", str(tmp_path / "p.json"))
    assert SHOWN in terminal.text
    assert b"\x1b]0;" not in terminal.written
