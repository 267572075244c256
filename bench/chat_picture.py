"""Draw the chat: run it in a terminal emulator, and print an SVG to standard output and the text to standard error.

    python bench/chat_picture.py [--columns N] [--lines N] -- CHAT OPTIONS < docs/chat.txt > docs/chat.svg

Each line of standard input is typed when the prompt is ready. Needs pexpect and pyte (`pip install '.[test]'`).
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
    """Convert a cell's colours and attributes to a rich style."""
    return Style(
        color=color(cell.fg), bgcolor=color(cell.bg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse
    )


def color(name: str) -> str | None:
    """Convert a pyte colour (a name or six hex digits) to rich's."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, re.sub(r"^bright(?=[a-z])", "bright_", name))


def picture(terminal: Terminal) -> list[Text]:
    """Return the rows that the program wrote, with their styles."""
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
    """Run the chat, type the input, draw the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("options", nargs="*", help="options for the chat")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for name in ("models", "costs"):  # the history stays out
            from via_sd_local.catalog.lookup import models_folder

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
    print(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # the picture loads no fonts
    return 0


if __name__ == "__main__":
    sys.exit(main())
