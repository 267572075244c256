"""Every argument of the constructor means what it means for llama-cpp-python's own class, in a process of its own."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import borrowed_vocab
import constructor_cases
import dropin
import lora
import numpy as np
import pytest
import tiny
from constructor_cases import CONSTRUCTIONS, Construction, outcome
from dropin import Make, text_of

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp
from via_sd_local.errors import ModelError

llama_cpp = import_llama_cpp("llama")
make = dropin.make
tiny_path = dropin.tiny_path

SMALL = tiny.spec("llama", n_embd=128)  # heads of 32 numbers, which a quantised cache needs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Path:
    made = tmp_path_factory.mktemp("constructor")
    template = {"tokenizer.chat_template": dropin.TEMPLATE}
    tiny.write(made / "llama.gguf", SMALL, overrides=template)
    tiny.write(made / "gemma3.gguf", tiny.spec("gemma3"))
    marks = dict.fromkeys((f"tokenizer.ggml.fim_{mark}_token_id" for mark in ("pre", "suf", "mid")), 0)
    tiny.write(made / "infill.gguf", SMALL, overrides=marks)  # the original takes token 0 for every mark
    borrowed_vocab.write(made / "real.gguf", smollm2_path)
    lora.write(made / "lora.gguf", made / "llama.gguf")
    return made


@pytest.fixture(scope="module")
def reference(folder: Path) -> dict[str, Any]:
    task = json.dumps({"folder": str(folder), "cases": [case.name for case in CONSTRUCTIONS]})
    script = str(constructor_cases.__file__)
    done = subprocess.run([sys.executable, script], input=task, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


NUMBERS = ("logits", "scores", "embedding")


@pytest.mark.parametrize("case", CONSTRUCTIONS, ids=lambda case: case.name)
def test_a_constructor_argument_does_what_it_does_in_the_original(
    case: Construction, folder: Path, reference: dict[str, Any]
) -> None:
    theirs, ours = (
        dict(reference[case.name]),
        json.loads(json.dumps(outcome(case, llama_cpp, Llama, folder), default=float)),
    )
    if "error" in theirs:
        assert theirs["error"] in ours.get("kinds", ()), (ours, theirs)
        assert theirs["said"].rpartition(" ")[2] in ours["said"]  # the file; ours also names the argument
        return
    assert ours.keys() == theirs.keys(), ours
    for name in NUMBERS:
        if name in theirs:
            np.testing.assert_allclose(ours.pop(name), theirs.pop(name), atol=1e-4, rtol=0)
    assert ours == theirs


def test_the_cases_tell_arguments_apart(reference: dict[str, Any]) -> None:
    """An argument that changes nothing would be the same in any class."""
    logits = {name: tuple(found["logits"]) for name, found in reference.items() if "logits" in found}
    for name in (
        "linear scaling",
        "another base",
        "another scale",
        "YaRN",
        "YaRN's extrapolation",
        "YaRN's attention",
        "YaRN's corrections",
        "a quantised cache",
        "a LoRA adapter",
        "a LoRA adapter, scaled",
        "overrides",
    ):
        assert logits[name] != logits["defaults"], name
    texts = {name: found["text"] for name, found in reference.items() if "text" in found}
    assert texts["a short window of penalties"] != texts["a long window of penalties"]
    assert texts["infilling"] != texts["infilling, suffix first"]
    assert texts["a tokenizer"] == texts["a real vocabulary"].upper()


def test_every_argument_of_the_constructor_occurs_in_some_case() -> None:
    known = set(inspect.signature(llama_cpp.Llama.__init__).parameters) - {"self", "model_path", "kwargs"}
    assert known - {name for case in CONSTRUCTIONS for name in case.options} == set()


#
# LoRA and the tiers
#


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "exact", "mask": "1-2,f4", "draft_tokens": 3},
        {"mode": "sd", "drafter": "self", "draft_mask": "1-3", "draft_tokens": 3},
        {"mode": "tiered", "mask": "1-2", "draft_tokens": 3, "thresholds": "joint:1,1"},
    ],
    ids=lambda options: options["mode"],
)
def test_an_adapter_holds_in_every_tier(make: Make, folder: Path, options: dict[str, Any]) -> None:
    """Lossless modes give the adapted model's text; a tiered one, whose slim tier never decides, does, too."""
    common: dict[str, Any] = {"path": folder / "llama.gguf", "lora_path": str(folder / "lora.gguf")}
    call: dict[str, Any] = {"max_tokens": 40, "temperature": 0.0, "logit_bias": {dropin.EOS: -1000}}
    prompt = constructor_cases.TEXT
    bare = text_of(make(folder / "llama.gguf")(prompt, **call))
    adapted = text_of(make(**common)(prompt, **call))
    assert adapted != bare
    if "drafter" not in options:
        common["draft_model_path"] = str(folder / "llama.gguf")
    llm = make(**common, **options)
    assert text_of(llm(prompt, **call)) == adapted
    assert llm.last_stats["drafted"] > 0


def test_a_real_model_with_an_adapter_computes_the_same_in_all_modes(
    make: Make, smollm2_path: Path, tmp_path: Path
) -> None:
    path = str(lora.write(tmp_path / "lora.gguf", smollm2_path, strength=0.1))
    prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"
    bare = make(smollm2_path)
    adapted = make(smollm2_path, lora_path=path)
    draft = str(smollm2_path)
    exact = make(smollm2_path, lora_path=path, mode="exact", mask="12-13", draft_model_path=draft, draft_tokens=3)
    row = {}
    for name, llm in {"bare": bare, "adapted": adapted, "exact": exact}.items():
        llm(prompt, max_tokens=16, temperature=0)
        llm.reset()
        llm.eval(llm.tokenize(prompt.encode()))
        row[name] = llm.scores[-1].copy()
    assert abs(row["adapted"] - row["bare"]).max() > 1
    assert abs(row["adapted"] - row["exact"]).max() < 1e-3
    passes = exact.last_stats["passes"]
    assert passes["slim"]["tokens"] > 0
    assert passes["resume"]["tokens"] > 0


def test_what_is_no_adapter_of_the_model_is_refused(make: Make, folder: Path, tmp_path: Path) -> None:
    """The original takes a null pointer for an adapter, and crashes at the first token."""
    other = lora.write(tmp_path / "other.gguf", folder / "gemma3.gguf")
    for path in (tmp_path / "absent.gguf", folder / "llama.gguf", tiny.write_text(tmp_path / "text.gguf"), other):
        with pytest.raises(ModelError, match=rf"{path.name}: this is no LoRA adapter of llama\.gguf: ."):
            make(folder / "llama.gguf", lora_path=str(path))


#
# images
#


def test_handlers_of_images_say_that_this_build_has_no_library_for_them(tmp_path: Path) -> None:
    formats = import_llama_cpp("llama_chat_format")
    clip = tmp_path / "clip.gguf"
    clip.touch()
    for handler in (formats.Llava15ChatHandler, formats.Qwen25VLChatHandler, formats.MTMDChatHandler):
        with pytest.raises(ImportError, match=r"this build .* has no multimodal library \(mtmd\)"):
            handler(clip_model_path=str(clip))
