"""Bars are drawn on terminals only; elsewhere stages are lines and bytes are silent."""

from __future__ import annotations

import io
import sys

import pytest

from via_sd_local.progress import StageBars, byte_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; not as a fixture, since pytest sets the stream anew before the test itself."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return terminal


def stages(*, shown: bool) -> None:
    with StageBars(shown=shown) as bars:
        bars.stage("answers", 4)
        bars.step(2)
        bars.set(3, "[b]three[/b]")
        bars.end("all of them")
        bars.stage("search", 10, "Ctrl-C ends it early")


def count(*, shown: bool) -> None:
    with byte_bar(2_000_000, "writing [x].gguf", shown) as bar:
        bar.advance(500_000)
        bar.set(1_000_000)


def test_a_pipe_gets_a_line_a_stage_and_no_byte_bar(capsys: pytest.CaptureFixture[str]) -> None:
    stages(shown=True)
    count(shown=True)
    assert capsys.readouterr().err == "answers …\n  all of them\nsearch: Ctrl-C ends it early\n"


def test_nothing_is_printed_if_not_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stages(shown=False)
    assert capsys.readouterr() == ("", "")
    terminal = on_terminal(monkeypatch)
    stages(shown=False)
    count(shown=False)
    assert terminal.getvalue() == ""


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    stages(shown=True)
    assert "answers" in terminal.getvalue()
    assert "all of them" in terminal.getvalue()
    assert "answers …" not in terminal.getvalue()


def test_bytes_are_counted_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    count(shown=True)
    assert "writing [x].gguf" in terminal.getvalue()
    assert "1.0/2.0 MB" in terminal.getvalue()
