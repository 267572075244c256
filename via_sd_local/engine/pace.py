"""The length of each draft, and the tier that sees it first: whatever promises most tokens a second.

The promise is the expected number of emitted tokens, by the running acceptance rate, over the measured costs of passes.
Nothing is assumed about the machine, so the best length falls on the steps of its kernels by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .acceptance_rate import AcceptanceRate, Share, ShareByConfidence
from .costs import Costs
from .experience import Experience
from .probing import ProbeSchedule
from .race import Race

LONGEST = 31  # tokens of a draft
_FIRST_PROBE, _RAREST_PROBE = 16, 64  # decisions between probes while drafting is off
_MARGIN = 1.02  # drafting must promise this much more than no drafting, since estimates are noisy
_WRONG = 0.15  # prior share of wrong draft tokens
_SLIM_PROBE = 24  # decisions for the full tier between probes of the slim one
_UNKNOWN = 3  # tokens of a draft before any cost is known


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is drafted: the best block, of a draft and the verifier's own token, does not pay.

    `cost` is that of drafting and checking it, in units of a full pass over one token, or of what another drafter needs
    for one token; `yields` is the number of tokens to expect of it.
    """

    block: int
    cost: float
    yields: float

    def __str__(self) -> str:
        what = f"a block of {self.block} costs {self.cost:.1f} × one token"  # noqa: RUF001
        return f"{what} and yields {self.yields:.1f} tokens"


class Pace:
    """Plans the drafts of one drafter for a verifier, and learns from what becomes of them.

    A route is the tier that sees a draft first: `full`, or `slim`, which sends some blocks on to a resumed full pass.
    """

    def __init__(
        self,
        costs: Costs,
        *,
        routes: Sequence[str] = ("full",),
        free: bool = False,
        longest: int = LONGEST,
        max_deviation: float = 0.0,
    ) -> None:
        """Plan with `costs`, which goes on learning elsewhere.

        `routes` are the routes that the mode allows, `free` says that the drafter runs no passes (prompt lookup), and
        `max_deviation` is the share of tokens that the mode's budget permits to deviate.
        """
        self.costs = costs
        self.acceptance = {route: AcceptanceRate(min(1.0, max_deviation / _WRONG)) for route in routes}
        self.escalation = Share(0.3)  # of blocks that the slim tier saw first, those that went on to the full one
        self.bonus = Share(0.5)  # of the others, those that the slim tier ended with a token of its own
        self.off = 0  # decisions not to draft
        self.probes = 0  # drafts while drafting was off
        self._race = Race(sorted(routes))  # of mode exact
        self._escalations = ShareByConfidence(lambda confidence: 1 - confidence)  # by a draft's least confidence
        self._free = free
        self._longest = longest
        self._route = routes[-1]  # of the last draft; the next one is planned for it
        self._rate = 0.0  # tokens a second that this route promises
        self._draft_probes = ProbeSchedule(_FIRST_PROBE, _RAREST_PROBE)
        self._slim_probes = ProbeSchedule(_SLIM_PROBE)
        self.planned = _UNKNOWN  # best number of tokens of the last draft, before any of them was drafted
        self.refusal: Refusal | None = None  # of the last decision, a probe included; None if it was to draft
        self._probing = False
        self._confident = False  # whether the drafter gives confidences, so that `wants_more` ends its drafts

    @property
    def experience(self) -> Experience:
        """What was learned so far, but for the costs of passes."""
        return Experience(
            {route: rate.learned for route, rate in self.acceptance.items()},
            self.escalation.tally,
            self._escalations.tallies,
            self.bonus.tally,
            self._race.yields,
        )

    def recall(self, experience: Experience) -> None:
        """Start from what was learned in an earlier process, in place of the priors."""
        for route, rate in self.acceptance.items():
            if route in experience.acceptance:
                rate.recall(experience.acceptance[route])
        self.escalation.recall(experience.escalation)
        self._escalations.recall(experience.escalations)
        self.bonus.recall(experience.bonus)
        self._race.recall(experience.yields)

    @property
    def knows(self) -> bool:
        """Whether the costs of the passes are known well enough to plan."""
        return self.costs.knows("full") and (self._free or self.costs.knows("draft"))

    def next_length(self, room: int, otherwise: float = 0.0) -> int:
        """Choose the number of tokens to draft next, from 0 to `room`, and count the choice.

        For a drafter with confidences it is an upper limit: `wants_more` decides token by token. `otherwise` is the
        rate that another drafter promises, in tokens a second.
        """
        self.planned = min(max(room, 0), _UNKNOWN)
        self.refusal = None
        if room < 1 or not self.knows:
            return self.planned
        plain = max(1 / self.costs.of("full", 1), otherwise)
        rate, best = self._best(room)
        self.planned = best
        self._probing = False
        if rate > plain * _MARGIN:
            self._rate = rate
            self._draft_probes.reset()
            return min(room, self._limit) if self._confident else best
        self._rate = plain
        yields = self._expected(self._route, [], best)
        self.refusal = Refusal(best + 1, yields / rate * plain, yields)
        if not self._draft_probes.decide():
            self.off += 1
            return 0
        self._probing = True
        self.probes += 1
        return best

    def promised(self, room: int) -> float:
        """Return the highest rate that a draft of at most `room` tokens promises, in tokens a second; 0 if unknown."""
        return self._best(room)[0] if room > 0 and self.knows else 0.0

    def _best(self, room: int) -> tuple[float, int]:
        """Return the best rate on the current route, in tokens a second, and its length."""
        return max((self.promise(n, self._route), n) for n in range(1, min(room, self._limit) + 1))

    @property
    def _limit(self) -> int:
        """The most tokens of a draft; where larger passes were never timed, drafts grow by doubling as they are."""
        return min(self._longest, max(_UNKNOWN, 2 * self.costs.largest("full") - 1))

    def wants_more(self, confidences: Sequence[float]) -> bool:
        """Return whether a draft with these confidences should go on: the cost of more tokens must pay at this rate."""
        if not self.knows or self._probing:
            return True
        n, acceptance = len(confidences), self.acceptance[self._route]
        alive = 1.0
        for confidence in confidences:
            alive *= acceptance.of(confidence)
        now, gain = self._verifying(self._route, n), 0.0
        for more in range(1, self._limit - n + 1):
            alive *= acceptance.mean
            gain += alive
            if gain >= (self._drafting(more) + self._verifying(self._route, n + more) - now) * self._rate:
                return True
        return False

    def choose_route(self, confidences: Sequence[float], drafted: int, pending: int) -> str:
        """Choose the tier that sees a draft first, `slim` or `full`, and count the choice.

        `pending` positions were computed by the slim tier only, so a full pass computes them again. Now and then the
        slim tier is tried although it seems to pay less. The next draft is planned for the better route.
        """
        if self._rate == 0 or not (self.costs.knows("slim") and self.costs.knows("resume")):
            return "slim"
        share = self._escalations[min(confidences)].value if confidences else self.escalation.value
        value = {
            route: self._expected(route, confidences, drafted, share) / self._rate
            - self._verifying(route, drafted, pending, share)
            for route in self.acceptance
        }
        self._route = "slim" if value["slim"] >= value["full"] else "full"
        if self._route == "full" and self._slim_probes.decide():
            return "slim"
        return self._route

    def choose_by_yield(self) -> str:
        """Choose the route of a draft in mode exact, by the yields of both routes so far, and count the choice.

        The next draft is planned for the better route.
        """
        self._route = self._race.best
        return self._race.next_choice()

    @property
    def repeats_slim(self) -> bool:
        """Whether the slim tier may mend further drafts before the full one confirms; not while it is only probed."""
        return self._race.best == "slim"

    def observe_yield(self, route: str, tokens: int, seconds: float) -> None:
        """Learn the emitted tokens and the seconds of passes of a block of mode exact that went this route."""
        self._race.observe(route, tokens, seconds)

    def observe(self, route: str, confidences: Sequence[float], drafted: int, accepted: int) -> None:
        """Learn that the first `accepted` of `drafted` tokens were accepted on this route."""
        self.acceptance[route].observe(confidences, drafted, accepted)
        self._confident = bool(confidences)

    def observe_slim(self, confidences: Sequence[float], escalated: bool, bonus: bool) -> None:
        """Learn whether a draft that the slim tier saw first escalated; if not, whether the tier added a token."""
        self.escalation.observe(escalated)
        if not escalated:
            self.bonus.observe(bonus)
        if confidences:
            self._escalations[min(confidences)].observe(escalated)

    def promise(self, n: int, route: str) -> float:
        """Return the expected tokens a second with drafts of `n` tokens that go this route."""
        first = 0.0 if self._free else self.costs.of("draft", 2)  # the first pass also takes the verifier's own token
        return self._expected(route, [], n) / (first + self._drafting(n - 1) + self._verifying(route, n))

    def _expected(
        self, route: str, confidences: Sequence[float], drafted: int, escalated: float | None = None
    ) -> float:
        """Return the expected number of tokens that a block with such a draft emits."""
        acceptance = self.acceptance[route]
        total, alive = 0.0, 1.0
        for position in range(drafted):
            alive *= acceptance.of(confidences[position]) if position < len(confidences) else acceptance.mean
            total += alive
        if route == "full":
            return total + 1
        share = self.escalation.value if escalated is None else escalated
        return total + share + (1 - share) * self.bonus.value

    def _drafting(self, n: int) -> float:
        """Return the seconds to draft `n` tokens after the first one."""
        return 0.0 if self._free else n * self.costs.of("draft", 1)

    def _verifying(self, route: str, n: int, pending: int = 0, escalated: float | None = None) -> float:
        """Return the seconds to verify `n` draft tokens and the token before them.

        Each token that waits for the full model is charged once, when the slim tier leaves it behind, at the marginal
        cost of one more token in the next full pass; that pass is charged for its new tokens only.
        """
        if route == "full" or not self.costs.knows("slim"):
            return self.costs.of("full", pending + n + 1) - pending * self._debt
        share = self.escalation.value if escalated is None else escalated
        now = self.costs.confirming(pending + n + 1) - pending * self._debt
        return self.costs.of("slim", n + 1) + share * now + (1 - share) * (n + 1) * self._debt

    @property
    def _debt(self) -> float:
        """The seconds that one more pending token adds to the next full pass."""
        return max(0.0, self.costs.confirming(17) - self.costs.confirming(1)) / 16
