"""A picture of the chat: a real run in a terminal emulator, as SVG on standard output and as text on standard error.

    python bench/chat_picture.py [--columns N] [--lines N] -- CHAT OPTIONS < docs/chat.txt > docs/chat.svg

Every line of standard input is typed once the prompt waits. Needs pexpect and pyte (`pip install '.[test]'`).
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from terminals import Terminal

TITLE = "python -m via_sd_local.chat"


def style_of(cell: Any) -> Style:
    """A cell's colours and attributes as rich's."""
    return Style(
        color=color(cell.fg), bgcolor=color(cell.bg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse
    )


def color(name: str) -> str | None:
    """A colour of pyte (a name or six hex digits) as rich's."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, re.sub(r"^bright(?=[a-z])", "bright_", name))


def picture(terminal: Terminal) -> list[Text]:
    """The rows that the program wrote, with their styles."""
    buffers = [*terminal.screen.history.top, *(terminal.screen.buffer[y] for y in range(len(terminal.rows)))]
    rows = []
    for buffer in buffers:
        row = Text(end="\n")
        cells = [buffer[x] for x in range(terminal.screen.columns)]
        for style, group in groupby(cells, style_of):
            row.append("".join(cell.data for cell in group), style)
        row.rstrip()
        rows.append(row)
    return rows


def main() -> int:
    """Run the chat, type, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("options", nargs="*", help="options of the chat")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for name in ("models", "costs"):  # not the history
            from via_sd_local.catalog.catalog import models_folder

            os.symlink(models_folder().parent / name, Path(home) / name)
        command = [sys.executable, "-m", "via_sd_local.chat", *args.options]
        terminal = Terminal(command, {"VIA_SD_HOME": home}, columns=args.columns, lines=args.lines)
        terminal.wait_for_prompt()
        for line in sys.stdin:
            rows = len(terminal.all_rows)
            terminal.send(line.rstrip("\n") + "\r")
            terminal.wait(lambda rows=rows: len(terminal.all_rows) > rows, "reaction")
            terminal.wait_for_prompt()
        rows = picture(terminal)
        terminal.close()
    console = Console(record=True, width=args.columns, file=io.StringIO(), force_terminal=True, color_system="256")
    for row in rows:
        console.print(row, soft_wrap=True)
    print(terminal.text, file=sys.stderr)
    svg = console.export_svg(title=TITLE, unique_id="chat")
    print(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # a picture loads nothing from elsewhere
    return 0


if __name__ == "__main__":
    sys.exit(main())
