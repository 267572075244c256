"""The report on the last answer that `/stats` shows: counters as words and rates; pure text."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.policy import Mode
from ..engine.stats import Stats
from ..engine.steps import Tier
from .columns import columns
from .deviation_text import deviation_text

_NAMES = {"draft": "draft passes", "slim": "slim passes", "full": "full passes", "resume": "resumed passes"}


def report(
    stats: Stats, shares: Mapping[Tier, float], n_ctx: int, why_no_drafts: str | None = None, width: int = 100
) -> list[str]:
    """Return a few lines about an answer: its speed, its prompt, its drafts, and the passes that it took.

    `shares` is each tier's share of the answer's tokens, `n_ctx` the size of the context in tokens, `why_no_drafts` the
    reason if nothing was drafted, and `width` the number of columns.
    """
    rows = [("answer", _answer(stats)), ("prompt", _prompt(stats))]
    rows.append(("context", f"{stats.prompt_tokens + stats.completion_tokens} of {n_ctx} tokens"))
    if stats.mode != "plain":
        rows.append(("drafts", _drafts(stats) or f"none: {why_no_drafts or 'nothing was proposed'}"))
        if _drafts(stats) and stats.why_off:
            rows.append(("drafting off", stats.why_off))
        if len(stats.drafts) > 1:
            rows += [(f"  {name}", _accepted(*_sums(stats, name))) for name in stats.drafts]
    if Mode(stats.mode).trusts_slim_tier:
        rows.append(("tiers", ", ".join(f"{tier.value} {share:.0%}" for tier, share in shares.items()) or "no tokens"))
        rows.append(("audits", _audits(stats)))
    if Mode(stats.mode).is_lossy:
        rows.append(("lossy", deviation_text(stats)))
    for kind, name in _NAMES.items():
        count = stats.passes[kind]
        if count.calls:
            each = f"{1000 * count.seconds / count.calls:.1f} ms and {count.tokens / count.calls:.1f} tokens each"
            rows.append((name, f"{count.calls}, {each}"))
    return columns(rows, width)


def _answer(stats: Stats) -> str:
    text = f"{_tokens(stats.completion_tokens)} in {max(stats.seconds - stats.prefill_seconds, 0):.1f} s"
    speed = stats.tokens_per_second
    return text if speed is None else f"{text}, {speed:.1f} tokens/s, mode {stats.mode}"


def _prompt(stats: Stats) -> str:
    new = stats.prompt_tokens - stats.reused_tokens
    known = f", {stats.reused_tokens} of them known from earlier turns" if stats.reused_tokens else ""
    speed = f" ({new / stats.prefill_seconds:.0f} tokens/s)" if stats.prefill_seconds > 0 else ""
    return f"{_tokens(stats.prompt_tokens)}{known}; {new} read in {stats.prefill_seconds:.1f} s{speed}"


def _drafts(stats: Stats) -> str | None:
    number = sum(counts.total() for counts in stats.drafts.values())
    if not number:
        return None
    block = stats.acceptance_length
    per_block = f"; {block:.1f} tokens a block" if block is not None else ""
    return f"{number}, {stats.drafted / number:.1f} tokens each; {_accepted(stats.drafted, stats.accepted)}{per_block}"


def _sums(stats: Stats, drafter: str) -> tuple[int, int]:
    """Return the tokens that a drafter drafted, and those of them that were accepted."""
    counts = stats.drafts[drafter]
    return sum(drafted * n for (drafted, _), n in counts.items()), sum(kept * n for (_, kept), n in counts.items())


def _accepted(drafted: int, accepted: int) -> str:
    return f"{accepted / drafted:.0%} of {_tokens(drafted)} accepted"


def _audits(stats: Stats) -> str:
    seen = stats.audited["A"] + stats.audited["B"]
    if not seen:
        return "none yet"
    deviations = stats.deviations["A"] + stats.deviations["B"]
    return f"{_tokens(seen)} of the slim tier seen by the full model; {deviations:.3g} of them are not its choice"


def _tokens(number: int) -> str:
    return f"{number} token{'' if number == 1 else 's'}"
