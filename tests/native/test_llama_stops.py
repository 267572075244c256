"""What others got wrong with stops: the first listed one cut, parts of them in streams, tails of drafts kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import borrowed_vocab
import dropin
import pytest
from dropin import PROMPT, Make, drafting, ids, joined, says, text_of, tokens_of

from via_sd_local import Llama

make = dropin.make
tiny_path = dropin.tiny_path

N_PROMPT = 5  # tokens of PROMPT, BOS included
STOPS = [
    ("one two three", ["two"], "one "),
    ("one two three", ["three", "two"], "one "),  # the earliest in the text, not the first in the list
    ("one two three", ["e t", "two"], "on"),
    ("a b abc abd", ["abd"], "a b abc "),  # a beginning of the stop that comes to nothing
    ("aaab", ["aab"], "a"),
    ("no stop here", ["stops"], "no stop here"),
    ("ends with st", ["stop"], "ends with st"),  # what was held back is shown at the end
    ("🙂 日本 🙃", ["🙃"], "🙂 日本 "),
    ("stop at once", ["s"], ""),
]


@pytest.mark.parametrize(("answer", "stops", "shown"), STOPS)
@pytest.mark.parametrize("drafted", [0, 3, 7])
def test_the_earliest_stop_wins_and_streams_never_show_any_of_it(
    make: Make, answer: str, stops: list[str], shown: str, drafted: int
) -> None:
    options = {"drafter": drafting(answer, N_PROMPT), "draft_tokens": drafted} if drafted else {}
    llm = make(**options)
    whole = llm(**says(llm, answer), stop=stops)
    assert text_of(whole) == shown
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert joined(llm(**says(llm, answer), stop=stops, stream=True)) == shown


@pytest.mark.parametrize("drafted", [0, 4, 9])
def test_a_stop_inside_a_draft_drops_the_rest_of_it_before_it_is_committed(make: Make, drafted: int) -> None:
    answer = "one. two. three."
    options = {"drafter": drafting(answer, N_PROMPT), "draft_tokens": drafted} if drafted else {}
    llm = make(**options)
    usage = llm(**says(llm, answer), stop=[". t"])["usage"]
    assert usage["completion_tokens"] == len("one. t")
    assert llm.last_stats["completion_tokens"] == len("one. t")
    assert ids(llm)[N_PROMPT:] in (tokens_of("one. t"), tokens_of("one. "))  # the last one may not be in the cache yet
    assert text_of(llm(**says(llm, answer))) == answer


def test_token_ids_stop_too_and_are_not_part_of_the_text(make: Make) -> None:
    llm = make(drafter=drafting("one two", N_PROMPT), draft_tokens=5)
    for stop in (tokens_of("t")[0], tokens_of("t"), ["nothing", *tokens_of("t")]):
        response = llm(**says(llm, "one two"), stop=stop)
        assert text_of(response) == "one "
        assert (response["usage"]["completion_tokens"], response["choices"][0]["finish_reason"]) == (4, "stop")


def test_stops_that_are_neither_texts_nor_tokens_are_refused(make: Make) -> None:
    llm = make()
    with pytest.raises(TypeError, match=r"stop contains 1\.5"):
        llm(PROMPT, stop=[1.5])
    assert text_of(llm(**says(llm, "abc"), stop=[""])) == "abc"  # chat formats without an end token pass this


#
# real tokens, of several characters
#

KEEPER = "The lighthouse keeper saw a ship, and waved. The ship waved back."
REAL = [
    (KEEPER, ["ship, and", "keeper s"], "The lighthouse "),  # each begins and ends inside a word
    (KEEPER, ["eper sa"], "The lighthouse ke"),
    (KEEPER, ["aved. Th", "hip, a", "ack"], "The lighthouse keeper saw a s"),
    (KEEPER, ["eeper", "keeper saw a ship"], "The lighthouse "),  # complete later, but it begins first
    (KEEPER, ["eeper", "keeper saw a boat"], "The lighthouse k"),  # it comes to nothing
    (KEEPER, ["back. And", "waved back"], "The lighthouse keeper saw a ship, and waved. The ship "),
    (
        KEEPER,
        ["ved back", "waved back, too"],
        "The lighthouse keeper saw a ship, and waved. The ship wa",
    ),  # ... at the end
    (KEEPER, ["waved forth"], KEEPER),
    ("naïve 日本語 🙂🙃 end", ["🙃 e", "語 🙂"], "naïve 日本"),
]


@pytest.fixture(scope="module")
def real_path(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with SmolLM2's vocabulary."""
    return borrowed_vocab.write(tmp_path_factory.mktemp("stops") / "real.gguf", smollm2_path)


def cut_as(llm: Llama, text: str) -> Iterable[list[int]]:
    """A text as its usual tokens, as those of pieces of three characters, and as those of single characters."""
    for length in (len(text), 3, 1):
        parts = [text[begin : begin + length] for begin in range(0, len(text), length)]
        yield [token for part in parts for token in llm.tokenize(part.encode(), add_bos=False)]


@pytest.mark.parametrize("drafted", [0, 2, 6])
def test_stops_that_span_real_tokens_cut_where_the_first_begins_however_the_text_is_cut_and_drafted(
    make: Make, real_path: Path, drafted: int
) -> None:
    plain = make(real_path)
    n_prompt = len(plain.tokenize(PROMPT.encode(), add_bos=True, special=True))
    for answer in dict.fromkeys(answer for answer, _, _ in REAL):
        for tokens in cut_as(plain, answer):
            options = {"drafter": drafting(tokens, n_prompt), "draft_tokens": drafted} if drafted else {}
            llm = make(real_path, **options) if drafted else plain
            for _, stops, shown in (case for case in REAL if case[0] == answer):
                for order in (stops, stops[::-1]):
                    whole = llm(**says(llm, tokens), stop=order)
                    assert text_of(whole) == shown, (tokens, order)
                    assert whole["choices"][0]["finish_reason"] == "stop"
                    chunks = list(llm(**says(llm, tokens), stop=order, stream=True))
                    assert joined(iter(chunks)) == shown
                    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
                if drafted:
                    assert llm.last_stats["accepted"] > 0
            if llm is not plain:
                llm.close()


def test_the_cases_above_are_of_stops_that_no_token_has_or_ends_with(make: Make, real_path: Path) -> None:
    llm = make(real_path)
    tokens = llm.tokenize(KEEPER.encode(), add_bos=False)
    pieces = [llm.detokenize([token]).decode() for token in tokens]
    assert "".join(pieces) == KEEPER
    assert max(map(len, pieces)) > 4
    edges = {len("".join(pieces[:i])) for i in range(len(pieces))}
    for _, stops, _ in REAL[:3]:
        for stop in stops[:2]:
            begin = KEEPER.index(stop)
            assert not {begin, begin + len(stop)} <= edges


def test_a_stop_that_waited_for_an_earlier_one_is_the_reason_also_where_tokens_run_out(
    make: Make, real_path: Path
) -> None:
    llm = make(real_path)
    tokens = llm.tokenize(KEEPER.encode(), add_bos=False)
    n = next(n for n in range(len(tokens)) if llm.detokenize(tokens[:n]).decode().endswith("keeper saw"))
    arguments = {**says(llm, tokens), "max_tokens": n, "stop": ["eeper", "keeper saw a ship"]}
    whole = llm(**arguments)
    assert (text_of(whole), whole["choices"][0]["finish_reason"]) == ("The lighthouse k", "stop")
    assert whole["usage"]["completion_tokens"] == n
    unstopped = llm(**{**arguments, "stop": ["keeper saw a ship"]})
    assert (text_of(unstopped), unstopped["choices"][0]["finish_reason"]) == ("The lighthouse keeper saw", "length")
