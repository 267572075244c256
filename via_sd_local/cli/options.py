"""The command-line options of `Settings` and `SamplingParams`, shared by `complete` and the chat."""

from __future__ import annotations

import argparse
from typing import Any

from ..files import read_text
from ..sampling.params import SamplingParams
from ..session.settings import DRAFTERS, MODES, ROUTERS, Settings
from .completion import completes_models
from .placement_options import DRAFT, VERIFIER, add_placement, placement_from

DEFAULT_MODEL = "smollm2-135m"  # as in the registry, which no --help reads
THREADS_HELP = "threads per model (default: all logical cores that the process may use, or half of them from 8 on)"


def add_settings(parser: argparse.ArgumentParser, *, verifier: str) -> None:
    """Add the options of `Settings`; `verifier` names the default model."""
    group = parser.add_argument_group("models and modes")
    verifier_option = group.add_argument(
        "--verifier",
        metavar="MODEL",
        default=verifier,
        help="the large model: a name from `via-sd-local models list`, a .gguf file, hf:owner/repo, … "
        "(default: %(default)s)",
    )
    draft_option = group.add_argument(
        "--draft", metavar="MODEL", help="a smaller model with the same vocabulary, which drafts"
    )
    for action in (verifier_option, draft_option):
        completes_models(action)
    group.add_argument(
        "--drafter",
        choices=DRAFTERS,
        default="auto",
        help="what proposes drafts. model: the draft model; lookup: what followed the same tokens earlier in the text; "
        "self: the large model with the layers of --draft-mask skipped; lookup+…: lookup first, and the other drafter "
        "where it finds nothing (default: auto, the draft model if one is given)",
    )
    group.add_argument(
        "--draft-mask",
        metavar="LAYERS",
        help="the layers that the large model skips when it drafts for itself, e.g. 8-25 or a3,f3,8-25",
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="plain: no drafts; sd: the full model verifies drafts; exact: the slim tier corrects drafts before the "
        "full model verifies them; lenient: the full model lets near-best draft tokens through - lossy, the text may "
        "differ from the full model's; tiered: the slim tier also decides alone where it is confident - lossy; "
        "viasd: the method of the paper: the slim tier first, the rule paper:ALPHA1,ALPHA2, drafts of 5 - lossy; "
        "auto (default): the mode that the pair's routing profile recommends, lossless unless "
        "--max-deviation is above 0; without a profile sd with a drafter, else plain",
    )
    group.add_argument(
        "--mask",
        metavar="LAYERS",
        help="the layers that the slim tier skips, e.g. 12-17, or a3,f3 for the attention and the FFN of layer 3 "
        "(exact, tiered, viasd; default: the profile's mask)",
    )
    group.add_argument(
        "--thresholds",
        metavar="RULE",
        help="when the slim tier accepts or rewrites a draft token: joint:ACCEPT,REWRITE, confidence:…, ratio:… or "
        "paper:ALPHA1,ALPHA2 (exact, tiered; default: the profile's thresholds, else joint:0.5,0.5; "
        "viasd: paper:0.3,0.5)",
    )
    group.add_argument(
        "--max-deviation",
        metavar="SHARE",
        type=float,
        help="the share of tokens, 0 to 1, that may differ from the full model's choice. auto then runs tiered if the "
        "profile predicts a gain; tiered uses the profile's thresholds for this share and spends it where it gains "
        "most speed; lenient requires it (default: 0 in auto; in tiered the slim tier has no limit and the full model "
        "accepts no deviation)",
    )
    group.add_argument(
        "--router",
        choices=ROUTERS,
        help="the tier that sees a draft first in tiered: always the slim or the full one, or, draft by draft, the one "
        "that promises more tokens a second (default: cost)",
    )
    group.add_argument(
        "--audit-every",
        metavar="N",
        type=audit_interval,
        help="the most tokens that the slim tier decides between two audits by the full model; never: it audits only "
        "where a block reaches it anyway (tiered, viasd; default: 16)",
    )
    group.add_argument(
        "--write-through",
        action="store_true",
        help="keep what the slim tier decided: it also writes the keys and values of the attention that it skips, and "
        "no full pass computes these tokens again - faster, at some fidelity (tiered, viasd)",
    )
    group.add_argument(
        "--profile",
        metavar="PROFILE",
        default="auto",
        help="a routing profile: a file, or a name from `via-sd-local profiles list`; auto (default): the profile that "
        "matches the models; none: no profile",
    )
    group.add_argument(
        "--draft-tokens", metavar="N", type=int, help="tokens per draft (default: chosen from measured pass costs)"
    )
    group.add_argument(
        "--n-ctx",
        metavar="N",
        type=int,
        help="context length in tokens (default: 4096, or what the model was trained for, if that is less)",
    )
    group.add_argument("--threads", metavar="N", type=int, help=THREADS_HELP)
    group.add_argument(
        "--remeasure",
        action="store_true",
        help="time passes anew, in under 3 seconds, instead of using costs that were measured earlier",
    )
    add_placement(parser)
    add_ignore_memory(parser)


def add_ignore_memory(parser: argparse.ArgumentParser) -> None:
    """Add --ignore-memory."""
    parser.add_argument(
        "--ignore-memory", action="store_true", help="load the models even if they seem not to fit into main memory"
    )


def add_sampling(parser: argparse.ArgumentParser, *, recommended: bool = False) -> None:
    """Add the options of `SamplingParams`, and --max-tokens.

    With `recommended`, what is not given is as recommended for the model.
    """
    note = "What is not given is as recommended for the model, if anything is." if recommended else None
    group = parser.add_argument_group("sampling", note)

    def default(text: str) -> str:
        return "default: as recommended" if recommended else f"default: {text}"

    group.add_argument(
        "--temperature", metavar="T", type=float, help=f"sampling temperature; 0 is greedy ({default('0')})"
    )
    group.add_argument(
        "--top-k", metavar="N", type=int, help=f"sample from the N most probable tokens; 0: all ({default('0')})"
    )
    group.add_argument(
        "--top-p",
        metavar="P",
        type=float,
        help=f"sample from the smallest set of tokens with total probability P; 1: all ({default('1')})",
    )
    group.add_argument(
        "--min-p",
        metavar="P",
        type=float,
        help=f"drop tokens below P times the probability of the best ({default('0')})",
    )
    group.add_argument(
        "--typical-p",
        metavar="P",
        type=float,
        help="locally typical sampling with probability mass P (default: 1, off)",
    )
    group.add_argument(
        "--repeat-penalty",
        metavar="X",
        type=float,
        help=f"divide the logits of repeated tokens by X; 1: off ({default('1')})",
    )
    group.add_argument(
        "--frequency-penalty",
        metavar="X",
        type=float,
        help="subtract X from a logit for every occurrence of its token (default: 0)",
    )
    group.add_argument(
        "--presence-penalty",
        metavar="X",
        type=float,
        help="subtract X from the logits of tokens that occurred (default: 0)",
    )
    group.add_argument(
        "--mirostat", metavar="V", type=int, choices=(0, 1, 2), help=f"Mirostat version ({default('0')})"
    )
    group.add_argument("--grammar-file", metavar="FILE", help="a file with a GBNF grammar that the answer must follow")
    group.add_argument(
        "--json-schema-file", metavar="FILE", help="a file with a JSON schema that the answer must follow"
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="seed of the random numbers; makes sampling reproducible (default: random)",
    )
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=token_count,
        default=512,
        help="maximum length of the answer in tokens; -1: to the end of the context (default: 512)",
    )


def given_sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling parameters that are given, by their names in `SamplingParams`.

    Raises ModelError for a file that cannot be read.
    """
    values = {
        "temperature": args.temperature,
        "top_k": args.top_k,
        "top_p": args.top_p,
        "min_p": args.min_p,
        "typical_p": args.typical_p,
        "repeat_penalty": args.repeat_penalty,
        "frequency_penalty": args.frequency_penalty,
        "presence_penalty": args.presence_penalty,
        "mirostat_mode": args.mirostat,
        "grammar": read_text(args.grammar_file, "grammar") if args.grammar_file else None,
        "json_schema": read_text(args.json_schema_file, "JSON schema") if args.json_schema_file else None,
        "seed": args.seed,
    }
    return {name: value for name, value in values.items() if value is not None}


def sampling_from(args: argparse.Namespace) -> SamplingParams:
    """Return the sampling parameters; raises ValueError for a bad value, ModelError for an unreadable file."""
    return SamplingParams(**given_sampling(args))


def token_count(text: str) -> int | None:
    """Parse a number of tokens; -1 becomes None (no limit). argparse names this function in its messages."""
    number = int(text)
    if number < -1:
        raise argparse.ArgumentTypeError(f"{number} is neither a number of tokens nor -1 (to the end of the context)")
    return None if number == -1 else number


def audit_interval(text: str) -> int | str:
    """Parse a number of tokens, or never. argparse names this function in its messages."""
    if text == "never":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of tokens, at least 1, nor never")
    return int(text)


def settings_from(args: argparse.Namespace) -> Settings:
    """Return the settings; raises ValueError if the options contradict each other."""
    return Settings(
        verifier=args.verifier,
        draft=args.draft,
        drafter=args.drafter,
        draft_mask=args.draft_mask,
        mode=args.mode,
        profile=None if args.profile == "none" else args.profile,
        mask=args.mask,
        thresholds=args.thresholds,
        max_deviation=args.max_deviation,
        draft_tokens=args.draft_tokens,
        router=args.router,
        audit_every=args.audit_every,
        write_through=args.write_through,
        n_ctx=args.n_ctx,
        threads=args.threads,
        placement=placement_from(args, VERIFIER),
        draft_placement=placement_from(args, DRAFT),
        check_memory=not args.ignore_memory,
        remeasure=args.remeasure,
    )
