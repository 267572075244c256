"""What the drop-in's constructor takes, and where it says no."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dropin
import numpy as np
import pytest
import tiny
import tiny_vocab
from dropin import PROMPT, Make, text_of

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp
from via_sd_local.dropin.pretrained import fetch
from via_sd_local.errors import ModelError

make = dropin.make
tiny_path = dropin.tiny_path

GREEDY: dict[str, Any] = {"max_tokens": 24, "temperature": 0}
LOSSLESS = [
    {"drafter": "lookup"},
    {"drafter": "lookup", "draft_tokens": 1},
    {"drafter": "lookup", "draft_tokens": 7},
    {"drafter": "lookup", "mode": "exact", "mask": "2-3", "draft_tokens": 3},
    {"drafter": "lookup", "mode": "sd", "max_deviation": None},
    {"draft": True},
    {"draft": True, "draft_tokens": 4, "draft_n_threads": 1},
    {"draft": True, "mode": "exact", "mask": "a2,f3", "thresholds": "ratio:0.7,0.3", "draft_tokens": 4},
    {"draft": True, "n_batch": 8, "n_ubatch": 4, "draft_tokens": 12},
]


@pytest.mark.parametrize("options", LOSSLESS, ids=str)
def test_every_lossless_way_to_draft_gives_the_plain_text(make: Make, tiny_path: Path, options: dict[str, Any]) -> None:
    options = dict(options)
    if options.pop("draft", False):
        options["draft_model_path"] = str(tiny_path)
    llm = make(**options)
    expected = text_of(make(n_batch=options.get("n_batch", 512))(PROMPT, **GREEDY))
    assert text_of(llm(PROMPT, **GREEDY)) == expected
    assert llm.last_stats["mode"] == options.get("mode", "sd")
    if "draft_model_path" in options:
        assert llm.last_stats["drafted"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode is 'fast'"),
        ({"drafter": "magic"}, "drafter is 'magic'"),
        ({"mode": "sd"}, "needs a drafter"),
        ({"drafter": "lookup", "draft_tokens": 0}, "draft_tokens is 0"),
        ({"drafter": "lookup", "max_deviation": 2.0, "mode": "tiered", "mask": "2"}, "max_deviation is 2"),
        ({"drafter": "lookup", "mode": "exact", "mask": "77"}, "77"),
        ({"drafter": "lookup", "profile": "none-such"}, "no profile 'none-such'"),
        ({"draft_model": len, "max_deviation": 0.1}, "needs a routing profile"),
        ({"drafter": "lookup", "draft_model": len}, "draft_model is a drafter"),
        ({"draft_tokens": 3}, "draft_tokens is given, but nothing drafts"),
        ({"draft_tokens": 3, "drafter": "none"}, "draft_tokens is given, but nothing drafts"),
        ({"draft_n_threads": 2}, "draft_n_threads is given, but there is no draft model"),
        ({"draft_n_threads": 2, "drafter": "lookup"}, "draft_n_threads is given, but there is no draft model"),
        ({"draft_n_gpu_layers": 2}, "draft_n_gpu_layers is given, but there is no draft model"),
    ],
)
def test_bad_options_are_refused_with_nothing_left_loaded(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, ModelError), match=message):
        make(**options)


@pytest.mark.parametrize("name", ["max_tokens", "temperature", "top_k", "mirostat_tau", "logprobs", "seed"])
def test_a_number_that_is_a_text_is_refused_by_its_name(make: Make, name: str) -> None:
    llm = make()
    with pytest.raises(TypeError, match=rf"^{name} is '5'; it must be a (whole )?number"):
        llm(PROMPT, **{name: "5"})
    assert llm(PROMPT, max_tokens=2.0, seed=np.int64(3))["usage"]["completion_tokens"] <= 2


def test_a_prompt_or_a_stop_in_bytes_is_not_taken_for_token_ids(make: Make) -> None:
    llm = make()
    for wrong in (b"some text", bytearray(b"x"), [1.5], [None]):
        with pytest.raises(TypeError, match="it must be a string or a list of token ids"):
            llm(wrong)
    for call in (llm.eval, lambda tokens: next(llm.generate(tokens))):
        for wrong in (b"some text", "some text", [1.5]):
            with pytest.raises(TypeError, match="a list of token ids"):
                call(wrong)
    for wrong in (b"x", [b"x"]):
        with pytest.raises(TypeError, match="stop contains b'x'"):
            llm(PROMPT, stop=wrong)
    assert llm(np.array([1, 5]), max_tokens=1)["usage"]["prompt_tokens"] == 2


def test_prompts_use_the_threads_of_the_answer_unless_others_are_given(make: Make, tiny_path: Path) -> None:
    llm = Llama(str(tiny_path), n_threads=1, n_ctx=64, verbose=False)
    assert (llm.context_params.n_threads, llm.context_params.n_threads_batch) == (1, 1)
    llm.close()
    llm = make(n_threads=1, n_threads_batch=2)
    assert (llm.context_params.n_threads, llm.context_params.n_threads_batch) == (1, 2)


def test_settings_that_are_none_are_the_defaults(make: Make) -> None:
    llm = make()
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "mirostat_mode", "mirostat_tau")
    missing: dict[str, Any] = dict.fromkeys(names)
    assert text_of(llm(PROMPT, seed=1, **missing)) == text_of(llm(PROMPT, seed=1))
    messages = [{"role": "user", "content": "hi"}]
    contents = [
        llm.create_chat_completion(messages, seed=1, max_tokens=9, **given)["choices"][0]["message"]["content"]
        for given in ({}, {**missing, "stop": None, "tools": None, "response_format": None})
    ]
    assert contents[0] == contents[1]


def test_a_bias_on_a_token_that_does_not_exist_has_no_effect(make: Make) -> None:
    llm = make()
    assert text_of(llm(PROMPT, **GREEDY, logit_bias={100_000: 5.0, "-1": 50.0})) == text_of(llm(PROMPT, **GREEDY))
    with pytest.raises(TypeError, match=r"logit_bias is .*must map token ids to numbers"):
        llm(PROMPT, logit_bias={"the": 1.0})


def test_numbers_that_are_not_whole_and_biases_that_are_no_table_are_refused(make: Make) -> None:
    llm = make()
    with pytest.raises(TypeError, match=r"top_k is 1\.5; it must be a whole number"):
        llm(PROMPT, max_tokens=1, temperature=1, top_k=1.5)
    with pytest.raises(TypeError, match="logit_bias is 5; it must map token ids to numbers"):
        llm(PROMPT, max_tokens=1, logit_bias=5)


def test_a_context_a_state_and_messages_of_wrong_types_are_named(make: Make) -> None:
    with pytest.raises(TypeError, match="n_ctx is '512'; it must be a whole number"):
        make(n_ctx="512")
    with pytest.raises(ValueError, match="n_ctx is -5; it must be a number of positions"):
        make(n_ctx=-5)
    llm = make()
    with pytest.raises(TypeError, match="state is 'x'; it must be what save_state returned"):
        llm.load_state("x")
    for messages in ("hi", ["hi"]):
        with pytest.raises(TypeError, match=r"messages is .*hi"):
            llm.create_chat_completion(messages)


def test_a_draft_of_another_vocabulary_is_refused(make: Make, tmp_path: Path) -> None:
    vocab = tiny_vocab.vocabulary(320).with_token(300, "other")
    other = tiny.write(tmp_path / "other.gguf", dropin.LLAMA, vocab=vocab)
    with pytest.raises(ModelError, match="token 300"):
        make(draft_model_path=str(other))


@pytest.mark.parametrize("kind", [str, Path])
def test_files_that_do_not_exist_are_named(make: Make, tmp_path: Path, tiny_path: Path, kind: Any) -> None:
    for error in (ValueError, ModelError):  # llama-cpp-python's, and ours
        with pytest.raises(error, match=r"^model_path: .*none\.gguf does not exist"):
            Llama(kind(tmp_path / "none.gguf"), verbose=False)
        with pytest.raises(error, match=r"^draft_model_path: .*none\.gguf does not exist"):
            make(draft_model_path=kind(tmp_path / "none.gguf"))
    for name in ("model_path", "draft_model_path"):
        with pytest.raises(TypeError, match=f"{name} is 5; it must be a path"):
            Llama(**{"model_path": str(tiny_path), name: 5})


@pytest.mark.parametrize("kind", [str, Path])
def test_a_tilde_is_the_home_folder_in_every_path(
    make: Make, tiny_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tiny_path.parent))
    path = kind("~/tiny.gguf")
    llm = make(path, draft_model_path=path)
    assert llm.model_path == str(tiny_path)
    assert text_of(llm(PROMPT, **GREEDY)) == text_of(make()(PROMPT, **GREEDY))
    with pytest.raises(ModelError, match=r"tiny\.gguf: this is no LoRA adapter"):
        make(lora_path=path)


def test_files_that_cannot_be_loaded_are_value_errors_with_a_reason(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not within the file bounds"):
        make(tiny.write_truncated(tmp_path / "cut.gguf", dropin.LLAMA))


def test_an_argument_that_nobody_knows_is_mentioned(make: Make) -> None:
    with pytest.warns(RuntimeWarning, match="does not know the argument 'n_contxt'"):
        make(n_contxt=512)
    make(f16_kv=True, device="cpu", rpc_servers=None)  # LangChain's and llama_cpp.server's wrappers pass these


def test_a_vocabulary_alone_can_tokenize(make: Make) -> None:
    llm = make(vocab_only=True)
    assert llm.detokenize(llm.tokenize(b"the sea")) == b"the sea"
    with pytest.raises(ModelError, match="does not generate text"):
        llm(PROMPT)


def test_log_probabilities_are_refused_where_the_slim_tier_decides(make: Make) -> None:
    llm = make(mode="tiered", drafter="lookup", mask="2-3", draft_tokens=3)
    for stream in (False, True):
        with pytest.raises(ValueError, match="logprobs are not available in mode tiered"):
            llm(PROMPT, logprobs=1, stream=stream)
    with pytest.raises(ValueError, match="logprobs are not available in mode tiered"):
        llm.create_chat_completion([{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=1)


@pytest.mark.parametrize("options", [{}, {"drafter": "lookup"}, {"drafter": "lookup", "mode": "exact", "mask": "2-3"}])
def test_log_probabilities_are_those_of_the_full_model_in_every_mode(make: Make, options: dict[str, Any]) -> None:
    llm = make(**options, **({"draft_tokens": 3} if options else {}))
    prompt = "the sea and the sea and the sea and the"
    found = llm(prompt, **GREEDY, logprobs=4, echo=True)["choices"][0]["logprobs"]
    held = llm.input_ids[: llm.last_stats["prompt_tokens"] + 24].tolist()
    reference = make(logits_all=True)
    reference.eval(held)
    logprobs = Llama.logits_to_logprobs(reference.scores[: len(held)])
    expected = [float(logprobs[i - 1, token]) for i, token in enumerate(held) if i > 1]
    assert found["token_logprobs"][0] is None
    assert found["token_logprobs"][1:] == pytest.approx(expected, abs=1e-2)
    assert all(1 <= len(top) <= 5 for top in found["top_logprobs"][1:])  # several bytes have one text, which is empty
    best = [float(np.max(row)) for row in logprobs[1 : len(held) - 1]]
    assert [max(top.values()) for top in found["top_logprobs"][1:]] == pytest.approx(best, abs=1e-2)


def test_a_prompt_alone_can_be_scored(make: Make) -> None:
    llm = make(n_batch=4)
    prompt = "the sea and the land"
    scored = llm(prompt, max_tokens=0, echo=True, logprobs=1, temperature=0)
    assert text_of(scored) == prompt
    assert scored["usage"]["completion_tokens"] == 0
    together = llm(prompt, max_tokens=2, echo=True, logprobs=1, temperature=0)
    n = len(scored["choices"][0]["logprobs"]["tokens"])
    assert n == len(llm.tokenize(prompt.encode())) - 1
    for name, values in scored["choices"][0]["logprobs"].items():
        assert values == together["choices"][0]["logprobs"][name][:n]


def test_offsets_of_log_probabilities_are_places_in_the_text(make: Make) -> None:
    llm = make()
    for echo in (False, True):
        response = llm(**dropin.says(llm, "naïve 日本 text"), echo=echo, logprobs=0)
        columns = response["choices"][0]["logprobs"]
        whole = PROMPT + "naïve 日本 text"
        for text, offset in zip(columns["tokens"], columns["text_offset"], strict=True):
            assert whole[offset:].startswith(text.lstrip() if offset == 0 else text)
        assert columns["text_offset"][-1] == len(whole) - 1


def test_log_probabilities_of_what_a_stop_cuts_off_are_left_out_with_and_without_a_stream(make: Make) -> None:
    llm = make()
    arguments = {**dropin.says(llm, "abcdef"), "stop": ["de"], "logprobs": 0}
    whole = llm(**arguments)["choices"][0]["logprobs"]["tokens"]
    streamed = [
        token
        for chunk in llm(**arguments, stream=True)
        if chunk["choices"][0]["logprobs"]
        for token in chunk["choices"][0]["logprobs"]["tokens"]
    ]
    assert whole == streamed == ["a", "b", "c"]


def test_the_signatures_begin_as_the_original_ones() -> None:
    original = import_llama_cpp("llama").Llama
    for name in ("create_completion", "generate", "from_pretrained"):
        theirs = inspect.signature(getattr(original, name)).parameters
        ours = inspect.signature(getattr(Llama, name)).parameters
        assert list(ours)[: len(theirs) - 1] == list(theirs)[: len(theirs) - 1]
        for parameter in theirs.values():
            if parameter.name in ours and parameter.default not in (parameter.empty, []):
                assert ours[parameter.name].default == parameter.default


def test_models_come_from_the_hub_by_name_or_pattern(
    make: Make, tiny_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Callable[[Any], Any]
) -> None:
    files = {"owner/big": ["a-Q4_0.gguf", "a-Q8_0.gguf"], "owner/small": ["sub/b.gguf"]}
    fetched: list[tuple[str, str]] = []

    def download(repo: str, file: str, **_options: Any) -> str:
        fetched.append((repo, file))
        return str(tiny_path)

    monkeypatch.setattr("via_sd_local.catalog.hub.why_unreachable", lambda: None)
    monkeypatch.setattr("huggingface_hub.list_repo_files", lambda repo: files[repo])
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    common: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False, "draft_tokens": 3}
    llm = keep(
        Llama.from_pretrained(
            "owner/big", "*Q4_0.gguf", draft_repo_id="owner/small", draft_filename="*b.gguf", **common
        )
    )
    assert fetched == [("owner/small", "sub/b.gguf"), ("owner/big", "a-Q4_0.gguf")]
    assert llm(PROMPT, **GREEDY)["usage"]["via_sd"]["drafted"] > 0
    with pytest.raises(ValueError, match="2 files match"):
        Llama.from_pretrained("owner/big", "*.gguf")
    with pytest.raises(ValueError, match="no file matches"):
        Llama.from_pretrained("owner/big", "*Q5*")
    with pytest.raises(ValueError, match="draft_filename"):
        Llama.from_pretrained("owner/big", "*Q4_0.gguf", draft_repo_id="owner/small")

    def offline(_repo: str) -> list[str]:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.list_repo_files", offline)
    with pytest.raises(ModelError, match="no network"):
        Llama.from_pretrained("owner/big", "a-Q4_0.gguf")


@pytest.mark.parametrize("where", ["cache", "cache_dir", "local_dir"])
@pytest.mark.parametrize("pattern", ["sub/b.gguf", "*.gguf", "sub/b.g*"])
def test_offline_what_the_same_call_fetched_is_used_without_a_wait(
    where: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0" * 40
    repo = tmp_path / "models--owner--m"
    folder = tmp_path / "files" if where == "local_dir" else repo / "snapshots" / commit
    options = {} if where == "cache" else {where: folder if where == "local_dir" else tmp_path}
    (folder / "sub").mkdir(parents=True)
    for file in ("sub/b.gguf", "config.json", "mmproj.bin"):
        (folder / file).touch()
    if where == "local_dir":
        (folder / ".cache").mkdir()
        (folder / ".cache" / "b.gguf").touch()
    else:
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text(commit)
    if where == "cache":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("via_sd_local.catalog.hub.why_unreachable", lambda: "no network")
    for name in ("list_repo_files", "hf_hub_download"):  # each would try for 20 seconds
        monkeypatch.setattr(f"huggingface_hub.{name}", lambda *_args, **_options: pytest.fail("asked"))
    assert fetch("owner/m", pattern, **options) == str(folder / "sub" / "b.gguf")
    assert fetch("owner/m", pattern, ["*.json"], **options) == str(folder / "sub" / "b.gguf")
    with pytest.raises(ModelError, match=r"owner/m cannot be listed \(no network\), and \*\.txt was not downloaded"):
        fetch("owner/m", pattern, ["*.txt"], **options)
    with pytest.raises(ValueError, match="2 files match"):
        fetch("owner/m", "[mc]*", **options)
    with pytest.raises(ModelError, match="b was not downloaded"):
        fetch("owner/other", "b", **dict.fromkeys(options, tmp_path / "none"))


def test_importing_the_package_loads_neither_llama_cpp_nor_numpy() -> None:
    code = "import sys, via_sd_local; print(sorted({'llama_cpp', 'numpy', 'jinja2'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_install_makes_every_import_of_llama_cpp_ours() -> None:
    code = (
        "import via_sd_local; via_sd_local.install(); via_sd_local.install()\n"
        "from llama_cpp import Llama, LlamaGrammar\n"
        "import llama_cpp.llama\n"
        "assert Llama is via_sd_local.Llama is llama_cpp.llama.Llama, Llama\n"
        "print(Llama.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "via_sd_local.dropin.llama\n"


def test_verbose_shows_llama_cpps_log_and_quiet_shows_nothing(tiny_path: Path) -> None:
    for verbose in (True, False):
        code = (
            "from via_sd_local import Llama\n"
            f"llm = Llama({str(tiny_path)!r}, n_ctx=256, n_threads=1, n_threads_batch=1, verbose={verbose})\n"
            "llm('a', max_tokens=1)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == ""
        assert ("llama_model_loader" in done.stderr) == verbose
        assert verbose or done.stderr == ""
