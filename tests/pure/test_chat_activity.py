"""The line that says what is being done."""

from __future__ import annotations

import io
import threading
import time

from via_sd_local.chat.activity import Activity


def lines(written: str) -> list[str]:
    """What was on the row, one after the other."""
    return written.split("\r\x1b[K")[1:]


def test_the_line_is_replaced_and_removed() -> None:
    out = io.StringIO()
    activity = Activity(out)
    activity.show("loading big.gguf", 80, spins=False)
    activity.show("reading 900 tokens", 80, spins=False)
    assert threading.active_count() == 1  # llama.cpp hears Ctrl-C
    activity.clear()
    activity.clear()
    assert lines(out.getvalue()) == ["⠋ loading big.gguf …", "", "⠋ reading 900 tokens …", ""]


def test_the_spinner_turns_until_the_line_is_removed() -> None:
    out = io.StringIO()
    activity = Activity(out)
    activity.show("measuring", 80, spins=True)
    while len(lines(out.getvalue())) < 4:
        time.sleep(0.01)
    activity.clear()
    shown = lines(out.getvalue())
    assert shown[:4] == ["⠋ measuring …", "⠙ measuring …", "⠹ measuring …", "⠸ measuring …"]
    assert shown[-1] == ""
    assert threading.active_count() == 1


def test_the_line_never_wraps() -> None:
    out = io.StringIO()
    Activity(out).show("loading " + "文" * 40, 20, spins=False)
    assert lines(out.getvalue()) == ["⠋ loading 文文文文"]
