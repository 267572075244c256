"""Every command and the API take the profile that fits the models, and refuse one that does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import commands
import profiles_made
import pytest
from commands import Run, assert_refused
from profiles_made import SECONDS, level

from via_sd_local import Llama
from via_sd_local.engine import measure
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.gate import JointRule
from via_sd_local.engine.policy import Mode
from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.profiles import store as profiles
from via_sd_local.profiles.machine import machine
from via_sd_local.profiles.profile import CostTable
from via_sd_local.runtime.fingerprint import Fingerprint
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings

answer, files, run = commands.answer, commands.files, commands.run
LEVELS = (level(0.02, "sd", "joint:0.9,0.9", 28.0), level(0.05, "tiered", "joint:0,0", 35.0))


@pytest.fixture
def put(files: Path, profiles_folder: Path) -> Callable[..., Path]:
    """`put("name.json", lossless="exact")` is a profile of llama.gguf with the draft template.gguf."""

    def make(name: str, **changes: Any) -> Path:
        pair = {
            "verifier": Fingerprint.of(files / "llama.gguf"),
            "draft": Fingerprint.of(files / "template.gguf"),
            "levels": LEVELS,
        }
        return profiles_made.put(profiles_folder, name, **(pair | changes))

    return make


@pytest.fixture
def mode(answer: Run, files: Path) -> Callable[..., str]:
    """The mode that `complete` runs in with these options and the draft template.gguf."""

    def call(*options: object, draft: str = "template.gguf") -> str:
        result = answer("--json", "--draft", files / draft, *options)
        assert result.status == 0, result.err
        return str(json.loads(result.out)["stats"]["mode"])

    return call


def test_complete_takes_the_profile_by_itself(mode: Callable[..., str], put: Callable[..., Path]) -> None:
    assert mode() == "sd"
    put("x.json", lossless="plain")
    assert mode() == "plain"
    assert mode("--max-deviation", 0.02) == "plain"  # the level says sd, but without a gain in tiered
    assert mode("--max-deviation", 0.05) == "tiered"
    assert mode("--profile", "none") == "sd"
    assert mode("--mode", "sd") == "sd"


def test_a_model_file_that_was_renamed_keeps_its_profile(
    mode: Callable[..., str], put: Callable[..., Path], files: Path, tmp_path: Path
) -> None:
    put("x.json", lossless="plain")
    moved = shutil.copy(files / "template.gguf", tmp_path / "moved.gguf")
    assert mode(draft=str(moved)) == "plain"


def test_the_chat_takes_the_profile_too(put: Callable[..., Path], files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same way: the session."""
    put("x.json")
    settings = Settings(
        str(files / "template.gguf"), draft=str(files / "llama.gguf"), max_deviation=0.05, threads=1, draft_tokens=3
    )
    with pytest.warns(RuntimeWarning, match="max_deviation 0.05 is not made use of, as there is no profile"):
        Session(settings).close()  # the pair the other way round
    settings = Settings(
        str(files / "llama.gguf"), draft=str(files / "template.gguf"), max_deviation=0.05, threads=1, draft_tokens=3
    )
    with Session(settings) as session:
        assert session.engine.policy.mode is Mode.TIERED
        assert session.engine.policy.rule == JointRule(0, 0)
        assert session.engine.policy.max_deviation == 0.05
        assert session.engine.verifier.mask == LayerMask.parse("2-3", 6)
        assert session.route.match is not None
        assert session.route.match.pair
        assert session.route.why == "tiered: fastest within 0.05 by the profile"


def test_the_api_takes_the_profile_too_by_itself_by_path_and_by_name(
    put: Callable[..., Path], files: Path, profiles_folder: Path, tmp_path: Path
) -> None:
    options = {"draft_model_path": str(files / "template.gguf"), "max_deviation": 0.05, "n_threads": 1, "n_ctx": 128}

    def run(**more: Any) -> dict[str, Any]:
        with closing(Llama(str(files / "llama.gguf"), verbose=False, draft_tokens=3, **options, **more)) as llm:
            stats: dict[str, Any] = llm("the sea", max_tokens=8, temperature=0)["usage"]["via_sd"]
            return stats

    path = put("x.json")
    assert run()["mode"] == "tiered"
    elsewhere = path.rename(tmp_path / "mine.json")
    with pytest.warns(RuntimeWarning, match="there is no profile of the pair"):
        assert run()["mode"] == "sd"
    assert run(profile=str(elsewhere))["mode"] == "tiered"
    put("named.json", levels=(level(0.05, "sd", None),), lossless="plain")
    with pytest.warns(RuntimeWarning, match="nothing drafts"):
        assert run(profile="named")["mode"] == "plain"
    other = put("other.json", verifier=profiles_made.VERIFIER)
    with pytest.raises(ModelError, match=r"other\.json: this profile is of another verifier than llama\.gguf"):
        run(profile=str(other))
    with pytest.raises(ModelError, match="there is no profile 'nonesuch'"):
        run(profile="nonesuch")


def test_mask_and_thresholds_come_from_the_profile(answer: Run, files: Path, put: Callable[..., Path]) -> None:
    options = ("--draft", files / "template.gguf", "--mode", "tiered", "--json")
    put("x.json", levels=(level(0.02, "sd", "joint:0,0", 28.0),))
    got = answer(*options).json
    by_hand = answer(*options, "--profile", "none", "--mask", "2-3", "--thresholds", "joint:0,0").json
    assert got["text"] == by_hand["text"]
    assert got["stats"]["regions"] == by_hand["stats"]["regions"]
    assert got["stats"]["regions"]["C"] == 0  # not so with the default thresholds
    assert answer(*options, "--thresholds", "joint:1,1").json["stats"]["regions"]["C"] > 0


def test_a_named_profile_of_another_model_is_refused_with_what_differs(
    answer: Run, files: Path, put: Callable[..., Path]
) -> None:
    """Fault F4."""
    mine = Fingerprint.of(files / "llama.gguf")
    types = dict(mine.tensor_types)
    _, count = types.popitem()
    other = Fingerprint("q8.gguf", mine.architecture, mine.n_layer, mine.size + 7, types | {"q8_0": count}, "0" * 32)
    path = put("other.json", verifier=other)
    result = answer("--draft", files / "template.gguf", "--profile", path, "--max-deviation", 0.05)
    assert_refused(
        result, f"{path}: this profile is of another verifier than llama.gguf: it is of q8.gguf with tensors"
    )
    assert f"{mine.size + 7} bytes, not {mine.size}" in result.err
    assert "Calibrate llama.gguf itself" in result.err
    by_name = answer("--draft", files / "template.gguf", "--profile", "other", "--max-deviation", 0.05)
    assert by_name.err == result.err


def test_a_profile_of_another_quantisation_is_not_taken_by_itself(
    mode: Callable[..., str], files: Path, put: Callable[..., Path]
) -> None:
    """Fault F4: also not when only the weights differ, so that sizes are equal."""
    mine = Fingerprint.of(files / "llama.gguf")
    other = Fingerprint(mine.file, mine.architecture, mine.n_layer, mine.size, mine.tensor_types, "0" * 32)
    put("x.json", verifier=other, lossless="plain")
    assert mode() == "sd"


def test_the_users_own_profiles_come_before_those_of_the_package(
    mode: Callable[..., str], put: Callable[..., Path], profiles_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    monkeypatch.setattr(profiles, "SHIPPED", (tmp_path / "absent", shipped))
    put("a.json", lossless="plain").rename(shipped / "a.json")
    assert mode() == "plain"
    put("z.json", lossless="sd")
    assert mode() == "sd"


def test_the_profile_with_the_same_draft_comes_first(
    mode: Callable[..., str], put: Callable[..., Path], files: Path
) -> None:
    put("a.json", draft=None, levels=(), lossless="plain")
    assert mode() == "sd"  # its mask would do, its speeds are not of this pair
    put("b.json", lossless="plain")
    assert mode() == "plain"
    assert mode(draft="llama.gguf") == "sd"


def test_a_broken_profile_is_left_out_with_a_warning(
    answer: Run, files: Path, put: Callable[..., Path], profiles_folder: Path
) -> None:
    put("x.json", lossless="plain")
    broken = profiles_folder / "a.json"
    broken.write_text('{"version": 1', encoding="utf-8")
    result = answer("--draft", files / "template.gguf", "--json")
    assert json.loads(result.out)["stats"]["mode"] == "plain"
    assert result.err.startswith(f"warning: a profile is left out: {broken}: not a profile")
    first, second = result.err.splitlines()
    assert broken.name in first
    assert "nothing drafts" in second
    assert_refused(answer("--draft", files / "template.gguf", "--profile", broken, "--mode", "exact"), "not a profile")


def test_costs_of_this_machine_are_not_measured_again(
    put: Callable[..., Path], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def spy(*_: object) -> Costs:
        measured.append(1)
        table = Costs()
        for kind, row in SECONDS.items():
            for size, seconds in row.items():
                table.observe(kind, int(size), seconds)
        return table

    monkeypatch.setattr(measure, "measure", spy)

    def costs(threads: int) -> Any:
        draft = str(files / "template.gguf")
        with Session(Settings(str(files / "llama.gguf"), draft=draft, max_deviation=0.05, threads=threads)) as session:
            assert session.engine.pace is not None
            return session.engine.pace.costs.to_json()

    put("x.json", costs=(CostTable(machine(), 1, {"full": {"1": 0.5}}),))
    assert costs(1) == {"full": {"1": 0.5}}
    assert measured == []
    costs(2)
    assert measured == [1]
    put("x.json", costs=(CostTable("another machine", 1, {"full": {"1": 0.5}}),))
    assert costs(1)["full"]["1"] == 0.01
    assert measured == [1, 1]


def test_exact_is_the_fastest_only_where_it_was_measured(mode: Callable[..., str], put: Callable[..., Path]) -> None:
    put("x.json", lossless="exact", costs=(CostTable(machine(), 1, SECONDS),))
    assert mode() == "exact"
    put("x.json", lossless="exact", costs=(CostTable("another machine", 1, SECONDS),))
    assert mode() == "sd"


def test_without_any_profile_no_model_is_hashed(
    mode: Callable[..., str], put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("x.json", verifier=profiles_made.VERIFIER)  # of another size

    def hashed(_path: Path) -> Fingerprint:
        raise AssertionError("a file was read for nothing")

    monkeypatch.setattr(Fingerprint, "of", hashed)
    assert mode() == "sd"


def test_profiles_are_listed_and_shown(run: Run, put: Callable[..., Path]) -> None:
    assert run("profiles", "list").out == "no profiles yet; `via-sd-local calibrate` creates one\n"
    path = put("x.json")
    assert run("profiles", "list").out == f"x  [sd; tiered from max_deviation 0.05 on]  {path}\n"
    (row,) = json.loads(run("profiles", "list", "--json").out)
    assert (row["name"], row["verifier"], row["levels"]) == ("x", "llama.gguf", {"0.02": "sd", "0.05": "tiered"})
    shown = run("profiles", "show", "x").out
    assert shown == run("profiles", "show", path).out
    for text in (
        "the slim tier skips 2-3 (4 of 12 sublayers)",
        "the draft agrees with the full model on 81.0 % of them",
        "criterion Δ(u) is +0.100 nats per token, above 0",
        "predicted tokens per second on a machine, 1 thread:",
        "tiered, at most 5 %       35.0   lossy: 1.0 % of 600 tokens deviate (slim tier: 2, at most 4.5 % at "
        "95 % confidence); joint:0,0",
        "Recommended: sd, which is lossless.",
        "With --max-deviation 0.05 or more: tiered, which is lossy; 17 % faster at 5 %.",
    ):
        assert text in shown
    assert run("profiles", "show", "x", "--json").json == json.loads(path.read_text())


def test_a_profile_that_is_not_there_is_an_error(run: Run) -> None:
    assert_refused(run("profiles", "show", "nonesuch"), "there is no profile 'nonesuch'; `via-sd-local profiles list`")
    with pytest.raises(ModelError, match=r"there is no profile '\.\./x'"):
        profiles.path_of("../x")


def test_a_slim_tier_that_does_not_pay_is_said_in_words(run: Run, put: Callable[..., Path]) -> None:
    put("x.json", lossless="plain", levels=(level(0.01, "plain", None), level(0.02, "plain", "joint:0.9,0.9", 9.0)))
    shown = run("profiles", "show", "x").out
    assert "The slim tier does not pay here: no mode that uses it is faster" in shown
    assert "Recommended: plain, which is lossless.\n" in shown
    assert "tiered, at most 1 %          -   too little evidence: 100 tokens, and at least 298 are needed" in shown
