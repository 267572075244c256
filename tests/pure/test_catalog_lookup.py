"""Names to files without network: the registry, and how a name is looked up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pulls
import pytest
from pulls import CONTENT, FILE, HUB, put_in_hub_cache

from via_sd_local.catalog import inventory, lookup, puller, registry
from via_sd_local.errors import ModelError

entry, models, no_network, use = pulls.entry, pulls.models, pulls.no_network, pulls.use


# the registry


def test_the_registry_that_ships_is_valid_and_names_its_default() -> None:
    shipped = registry.registry()
    assert shipped.default == lookup.default_name() == "smollm2-135m"
    assert list(shipped.models) == ["smollm2-135m", "gemma-3-270m"]
    for model in shipped.models.values():
        kinds = [type(source) for source in model.sources]
        assert kinds == [registry.HubSource, registry.WheelSource]
    assert [len(model.sources[1].wheels) for model in shipped.models.values()] == [1, 4]
    members = [wheel.member[-6:] for wheel in shipped.models["gemma-3-270m"].sources[1].wheels]
    assert members == ["part00", "part01", "part02", "part03"]


def test_the_registry_is_looked_for_in_the_package_before_the_checkout() -> None:
    package = Path(registry.__file__).parent.parent
    assert (
        package / "models" / "registry.json",
        package.parent / "models" / "registry.json",
    ) == registry.REGISTRY_PATHS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "B" * 64}, "models.toy.sha256 is 'BBBB"),
        ({"sha256": "b" * 63}, "models.toy.sha256"),
        ({"size": -1}, "models.toy.size is -1, not a number of bytes"),
        ({"size": True}, "models.toy.size is True"),
        ({"file": "../toy.gguf"}, "models.toy.file is '../toy.gguf'"),
        ({"license": None}, "models.toy.license is None"),
        ({"licence": "x"}, "models.toy.licence is 'x', not known"),
        ({"sources": []}, "models.toy.sources is"),
        ({"sources": [HUB | {"kind": "ftp"}]}, r"models.toy.sources\[0\].kind is 'ftp', not hub or wheels"),
        ({"sources": [HUB | {"repo": "owner"}]}, r"sources\[0\].repo is 'owner'"),
        ({"sources": [HUB | {"wheels": []}]}, r"sources\[0\].wheels is \[\], not known"),
        ({"sources": [{"kind": "wheels", "wheels": [{"distribution": "a b"}]}]}, r"wheels\[0\].distribution is 'a b'"),
    ],
)
def test_a_wrong_registry_entry_is_named_with_its_value(
    entry: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "registry.json"
    path.write_text(json.dumps({"default": "toy", "models": {"toy": entry | {"sources": [HUB]} | change}}))
    with pytest.raises(ModelError, match=message):
        registry.load(path)


def test_a_default_or_a_file_name_that_does_not_fit_is_refused(entry: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    toy = entry | {"sources": [HUB]}
    path.write_text(json.dumps({"default": "toys", "models": {"toy": toy}}))
    with pytest.raises(ModelError, match="default is 'toys', not one of toy"):
        registry.load(path)
    path.write_text(json.dumps({"default": "a", "models": {"a": toy, "b": toy}}))
    with pytest.raises(ModelError, match=r"models.a.file is 'toy.gguf'"):
        registry.load(path)
    path.write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        registry.load(path)


def test_a_made_model_is_checked_like_the_others(entry: dict[str, Any], tmp_path: Path) -> None:
    made = {"description": "x", "license": "y", "file": "made.gguf", "size": 1, "command": "make it"}
    toy = entry | {"sources": [HUB]}
    path = tmp_path / "registry.json"

    def load(**entries: Any) -> registry.Registry:
        path.write_text(json.dumps({"default": "toy", "models": {"toy": toy}, "made": entries}))
        return registry.load(path)

    assert load(other=made).made == {"other": registry.MadeModel("other", "x", "y", "made.gguf", 1, "make it")}
    for entries, message in (
        ({"other": made | {"file": FILE}}, "file is 'toy.gguf', not a file name that no other"),
        ({"toy": made}, "made is 'toy', not a name that no other model has"),
        ({"other": made | {"sources": []}}, r"made.other.sources is \[\], not known"),
        ({"other": made | {"command": ""}}, "made.other.command is ''"),
    ):
        with pytest.raises(ModelError, match=message):
            load(**entries)


def test_no_registry_at_all_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY_PATHS", (tmp_path / "a", tmp_path / "b"))
    registry.registry.cache_clear()
    with pytest.raises(ModelError, match=f"{tmp_path / 'a'} or {tmp_path / 'b'}"):
        registry.registry()


def test_the_registry_is_read_once(use: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    load = registry.load
    monkeypatch.setattr(registry, "load", lambda path: (reads.append(path), load(path))[1])
    for _ in range(3):
        with pytest.raises(ModelError, match="toy is not on this machine"):
            lookup.resolve("toy")
        with pytest.raises(ModelError, match="no model is called 'toi'; did you mean toy"):
            lookup.resolve("toi")
    assert len(reads) == 1


# look-up


def test_the_models_folder_follows_the_variable_and_else_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIA_SD_HOME", "~/models-here")
    assert lookup.models_folder() == Path.home() / "models-here" / "models"
    monkeypatch.setenv("VIA_SD_HOME", "")
    assert lookup.models_folder() == platformdirs.user_cache_path("via-sd-local", appauthor=False) / "models"


def test_an_existing_path_resolves_to_itself(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "any file"
    path.write_bytes(b"x")
    assert lookup.resolve(str(path)) == path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert lookup.resolve("~/any file") == path


def test_a_registry_name_resolves_to_its_whole_file(models: Path, use: Callable[..., None]) -> None:
    with pytest.raises(ModelError, match=r"toy is not on this machine .*`via-sd-local models pull toy`"):
        lookup.resolve("toy")
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="has 5999 bytes, and toy has 6000; run `via-sd-local models pull toy`"):
        lookup.resolve("toy")
    (models / FILE).write_bytes(CONTENT)
    assert lookup.resolve("toy") == models / FILE


def test_a_file_put_into_the_models_folder_resolves_by_its_file_name(models: Path, use: Callable[..., None]) -> None:
    models.mkdir(parents=True)
    (models / "mine.gguf").write_bytes(b"x")
    assert lookup.resolve("mine.gguf") == models / "mine.gguf"


def test_a_hub_reference_resolves_from_the_hub_cache(models: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"not in the hub cache; run `via-sd-local models pull hf:owner/toys/q4/toy.gguf`"
    ):
        lookup.resolve("hf:owner/toys/q4/toy.gguf")
    on_main = put_in_hub_cache(tmp_path / "hub")
    on_other = put_in_hub_cache(tmp_path / "hub", revision="b" * 40, branch="v2.0")
    assert lookup.resolve("hf:owner/toys/q4/toy.gguf") == on_main
    assert lookup.resolve("hf:owner/toys@v2.0/q4/toy.gguf") == on_other
    assert lookup.resolve(f"hf:owner/toys@{'b' * 40}/q4/toy.gguf") == on_other


@pytest.mark.parametrize("name", ["hf:toy.gguf", "hf:owner/toys/toy.bin", "hf:owner/toys@/toy.gguf", "hf:owner/toys:"])
def test_a_malformed_hub_reference_shows_the_form(models: Path, name: str) -> None:
    with pytest.raises(ModelError, match="is not a hub file: write hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER"):
        lookup.resolve(name)


def test_a_repository_name_that_the_hub_forbids_is_a_model_error(models: Path) -> None:
    with pytest.raises(ModelError, match="'owner/a--b' is not a hub repository"):
        lookup.resolve("hf:owner/a--b/toy.gguf")


def test_an_unknown_name_is_told_the_known_ones_and_the_closest(models: Path) -> None:
    with pytest.raises(ModelError) as caught:
        lookup.resolve("smolm2-135m")
    assert str(caught.value) == (
        "no model is called 'smolm2-135m'; did you mean smollm2-135m? known are smollm2-135m, gemma-3-270m, "
        "smollm2-135m-q4_0, or give a path or hf:OWNER/REPO"
    )
    with pytest.raises(ModelError, match="no model is called 'zzz'; known are"):
        puller.pull("zzz")


@pytest.mark.parametrize("name", ["absent.gguf", "./absent", "~/absent", "some/absent"])
def test_what_looks_like_a_path_is_said_not_to_exist(models: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"^{name} does not exist; check the path$"):
        lookup.resolve(name)


def test_a_folder_and_impossible_paths_are_model_errors(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"the folder {tmp_path} has no GGUF file"):
        lookup.resolve(str(tmp_path))
    for name in ("", "x" * 5000, "a\0b", "~nobody-of-this-name/x"):
        with pytest.raises(ModelError):
            lookup.resolve(name)


def test_the_listing_has_absent_present_and_own_files(models: Path, use: Callable[..., None]) -> None:
    absent = inventory.CatalogEntry("toy", "A toy", "CC0-1.0", 6000, None)
    assert inventory.listing() == [absent]
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    (models / "mine.gguf").write_bytes(b"four")
    (models / ".toy.gguf.1-2.part").write_bytes(b"partial")
    own = inventory.CatalogEntry("mine.gguf", "not in the registry", "unknown", 4, models / "mine.gguf")
    assert inventory.listing() == [absent, own]
    (models / FILE).write_bytes(CONTENT)
    assert inventory.listing()[0].path == models / FILE


def test_a_folder_with_one_model_stands_for_it(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    for name in ("model.gguf", "mmproj-model.gguf", "README.md"):
        (folder / name).touch()
    assert lookup.resolve(str(folder)) == folder / "model.gguf"
    (folder / "model2.gguf").touch()
    with pytest.raises(ModelError, match=r"the folder .* has 2 GGUF files; name one of model\.gguf, model2\.gguf"):
        lookup.resolve(str(folder))
    for number in (1, 2):
        (tmp_path / f"big-0000{number}-of-00002.gguf").touch()
    assert lookup.resolve(str(tmp_path)) == tmp_path / "big-00001-of-00002.gguf"
    assert lookup.resolve(str(tmp_path / "big-00002-of-00002.gguf")) == tmp_path / "big-00001-of-00002.gguf"


def test_models_of_ollama_resolve_by_their_names(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ollama"
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    (folder / "blobs").mkdir(parents=True)
    for place in ("registry.ollama.ai/library/llama3.2/1b", "registry.ollama.ai/me/mine/latest", "hf.co/own/m/Q4_K_M"):
        digest = "sha256:" + pulls.sha256(place.encode())
        layers = [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0"},
            {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
        ]
        manifest = folder / "manifests" / place
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"layers": layers}))
        (folder / "blobs" / digest.replace(":", "-")).write_text(place)
    assert lookup.resolve("llama3.2:1b").read_text().endswith("llama3.2/1b")
    assert lookup.resolve("ollama:llama3.2:1b").read_text().endswith("llama3.2/1b")
    assert lookup.resolve("me/mine").read_text().endswith("mine/latest")
    assert lookup.resolve("hf.co/own/m:Q4_K_M").read_text().endswith("m/Q4_K_M")
    assert lookup.resolve(str(next((folder / "blobs").iterdir()))).parent == folder / "blobs"
    for name in ("llama3.2", "llama3.2:../1b", "../llama3.2"):
        with pytest.raises(ModelError):
            lookup.resolve(name)
    (folder / "manifests" / "registry.ollama.ai" / "library" / "llama3.2" / "1b").write_text("[" * 100_000)
    with pytest.raises(ModelError, match=r"no model is called 'llama3\.2:1b'"):
        lookup.resolve("llama3.2:1b")


def test_models_of_lm_studio_resolve_by_publisher_and_name(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".lmstudio" / "models" / "publisher" / "toy-GGUF"
    folder.mkdir(parents=True)
    (folder / "toy-Q4_K_M.gguf").touch()
    assert lookup.resolve("publisher/toy-GGUF") == folder / "toy-Q4_K_M.gguf"
    assert lookup.resolve("publisher/toy-GGUF/toy-Q4_K_M.gguf") == folder / "toy-Q4_K_M.gguf"
    with pytest.raises(ModelError, match="publisher/other does not exist"):
        lookup.resolve("publisher/other")
