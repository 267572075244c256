"""Labels and texts in two columns."""

from __future__ import annotations

from via_sd_local.chat.columns import columns


def test_texts_continue_under_themselves_and_words_stay_whole() -> None:
    rows = [("model", "one two three four five six"), ("a longer label", "/a/path/without/any/space/in/it"), ("x", "")]
    assert columns(rows, 36) == [
        "model           one two three four",
        "                five six",
        "a longer label  /a/path/without/any/space/in/it",
        "x",
    ]
