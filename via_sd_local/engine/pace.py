"""How many tokens to draft: as many as promise the most tokens a second, none where drafting loses.

The promise is measured cost times running acceptance. Nothing is assumed about the machine: the best length falls on
the steps of its kernels by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from .costs import Costs
from .race import Race

LONGEST = 31  # tokens of a draft
_EDGES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)  # of the confidence classes
_FORGET = 0.985  # what an older observation weighs beside a newer one
_PRIOR = 6.0  # observations that the prior is worth
_FIRST_PROBE, _RAREST_PROBE = 16, 64  # tokens between tries while drafting is off
_MARGIN = 1.02  # drafting must promise this much more than not drafting: estimates are noisy
_WRONG = 0.15  # of a draft's tokens, before any was seen
_SLIM_PROBE = 24  # blocks for the full tier between tries of the slim one
_UNKNOWN = 3  # tokens of a draft before any cost is known


class Share:
    """A running share with exponential forgetting, from a prior."""

    def __init__(self, prior: float) -> None:
        self._hits, self._all = prior * _PRIOR, _PRIOR

    def observe(self, hit: bool) -> None:
        self._hits = _FORGET * self._hits + hit
        self._all = _FORGET * self._all + 1

    @property
    def value(self) -> float:
        return self._hits / self._all


class ByConfidence:
    """Running shares, one for each class of confidence."""

    def __init__(self, prior: Callable[[float], float]) -> None:
        """`prior` of the middle of a class."""
        self._shares = [Share(prior((low + high) / 2)) for low, high in pairwise((0.0, *_EDGES, 1.0))]

    def __getitem__(self, confidence: float) -> Share:
        return self._shares[bisect_right(_EDGES, confidence)]


class Acceptance:
    """How often draft tokens are accepted, given that the ones before them were: overall and by confidence."""

    def __init__(self, forgiven: float = 0.0) -> None:
        """`forgiven` is the share of wrong tokens that are expected to be let through."""

        def prior(right: float) -> float:
            return right + forgiven * (1 - right)

        self._overall = Share(prior(0.6))
        self._classes = ByConfidence(prior)

    def observe(self, confidences: Sequence[float], drafted: int, accepted: int) -> None:
        """A draft of so many tokens (with confidences or none) had so many accepted."""
        for position in range(min(drafted, accepted + 1)):
            right = position < accepted
            self._overall.observe(right)
            if position < len(confidences):
                self._classes[confidences[position]].observe(right)

    @property
    def mean(self) -> float:
        """Of any draft token."""
        return self._overall.value

    def of(self, confidence: float) -> float:
        """Of a draft token with this confidence."""
        return self._classes[confidence].value


class Pace:
    """Decides the length of each draft for a verifier and a drafter, and which tier sees it first; goes on learning.

    A route is the tier that sees a draft first: `full`, or `slim`, from which some blocks go on to a resumed full pass.
    A free drafter runs no passes (prompt lookup).
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
        """`routes` are those that the mode allows; `max_deviation` is what its budget lets through."""
        self.costs = costs
        self.acceptance = {route: Acceptance(min(1.0, max_deviation / _WRONG)) for route in routes}
        self.escalation = Share(0.3)  # of blocks that the slim tier saw first and sent on to the full one
        self.bonus = Share(0.5)  # of the other ones, those that it ended with a token of its own
        self.full_first = 0  # blocks that went to the full tier at once, where the slim one was possible
        self.off = 0  # decisions not to draft
        self.probes = 0  # drafts made while drafting was off
        self._race = Race(sorted(routes))  # of mode exact
        self._escalations = ByConfidence(lambda confidence: 1 - confidence)  # by a draft's least confidence
        self._free = free
        self._longest = longest
        self._route = routes[-1]  # that the last draft should go; the next one is planned for it
        self._rate = 0.0  # tokens a second that it promises
        self._since_probe = 0
        self._probe_after = _FIRST_PROBE
        self._probing = False
        self._confident = False  # the drafter says how sure it is, so that `wants_more` ends its drafts

    @property
    def knows(self) -> bool:
        """Whether costs are known well enough to plan."""
        return self.costs.knows("full") and (self._free or self.costs.knows("draft"))

    def length(self, room: int, otherwise: float = 0.0) -> int:
        """The tokens to draft next, at most `room`; 0: none.

        For a drafter with confidences it is an upper limit: `wants_more` decides token by token. `otherwise` is what
        another drafter promises, in tokens a second.
        """
        if room < 1 or not self.knows:
            return min(max(room, 0), _UNKNOWN)
        plain = max(1 / self.costs.of("full", 1), otherwise)
        rate, best = self._best(room)
        self._probing = False
        if rate > plain * _MARGIN:
            self._rate, self._probe_after, self._since_probe = rate, _FIRST_PROBE, 0
            return min(room, self._longest) if self._confident else best
        self._rate = plain
        self._since_probe += 1
        if self._since_probe < self._probe_after:
            self.off += 1
            return 0
        self._since_probe, self._probe_after = 0, min(2 * self._probe_after, _RAREST_PROBE)
        self._probing = True
        self.probes += 1
        return best

    def promised(self, room: int) -> float:
        """The most tokens a second that a draft of at most `room` tokens promises; 0 while that is not known."""
        return self._best(room)[0] if room > 0 and self.knows else 0.0

    def _best(self, room: int) -> tuple[float, int]:
        """The best rate on the current route, and its length."""
        return max((self.promise(n, self._route), n) for n in range(1, min(room, self._longest) + 1))

    def wants_more(self, confidences: Sequence[float]) -> bool:
        """Whether to lengthen a draft with these confidences: what more tokens cost must pay at the current rate."""
        if not self.knows or self._probing:
            return True
        n, acceptance = len(confidences), self.acceptance[self._route]
        alive = 1.0
        for confidence in confidences:
            alive *= acceptance.of(confidence)
        now, gain = self._checking(self._route, n), 0.0
        for more in range(1, self._longest - n + 1):
            alive *= acceptance.mean
            gain += alive
            if gain >= (self._drafting(more) + self._checking(self._route, n + more) - now) * self._rate:
                return True
        return False

    def slim_first(self, confidences: Sequence[float], drafted: int, pending: int) -> bool:
        """Whether to show a draft to the slim tier first, or to the full one at once: what pays more at this rate.

        `pending` cells were computed by the slim tier only; a full pass computes them again. Now and then the slim tier
        is asked where it seems to pay less, to learn.
        """
        if self._rate == 0 or not (self.costs.knows("slim") and self.costs.knows("resume")):
            return True
        share = self._escalations[min(confidences)].value if confidences else self.escalation.value
        value = {
            route: self._expected(route, confidences, drafted, share) / self._rate
            - self._checking(route, drafted, pending, share)
            for route in self.acceptance
        }
        self._route = "slim" if value["slim"] >= value["full"] else "full"
        if self._route == "slim":
            return True
        self.full_first += 1
        return self.full_first % _SLIM_PROBE == 0

    def mends_first(self) -> bool:
        """For mode exact, where the full tier confirms in any case: whether the slim one is to mend this draft first.

        By what both routes yielded so far; for the better one the next draft is planned, too.
        """
        self._route = self._race.best
        return self._race.choose() == "slim"

    @property
    def mends_on(self) -> bool:
        """Whether the slim tier may mend more drafts before the full one confirms; not while it is only being tried."""
        return self._race.best == "slim"

    def observe_yield(self, route: str, tokens: int, seconds: float) -> None:
        """What a block of mode exact that went this route emitted, and what its passes cost."""
        self._race.observe(route, tokens, seconds)

    def observe(self, route: str, confidences: Sequence[float], drafted: int, accepted: int) -> None:
        """How many tokens of the last draft, which went this route, were accepted."""
        self.acceptance[route].observe(confidences, drafted, accepted)
        self._confident = bool(confidences)

    def observe_slim(self, confidences: Sequence[float], escalated: bool, bonus: bool) -> None:
        """Whether a draft that the slim tier saw first went on to the full one; if not, whether it added a token."""
        self.escalation.observe(escalated)
        if not escalated:
            self.bonus.observe(bonus)
        if confidences:
            self._escalations[min(confidences)].observe(escalated)

    def promise(self, n: int, route: str) -> float:
        """Expected tokens a second with drafts of n tokens that go this route."""
        first = 0.0 if self._free else self.costs.of("draft", 2)  # the first pass also takes the verifier's own token
        return self._expected(route, [], n) / (first + self._drafting(n - 1) + self._checking(route, n))

    def _expected(
        self, route: str, confidences: Sequence[float], drafted: int, escalated: float | None = None
    ) -> float:
        """Tokens that a block with such a draft emits."""
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
        return 0.0 if self._free else n * self.costs.of("draft", 1)

    def _checking(self, route: str, n: int, pending: int = 0, escalated: float | None = None) -> float:
        """Seconds to check n draft tokens and the one before them, with what the slim tier leaves for later.

        What it leaves makes the next full pass longer. That is charged where it arises, so not again to who runs it.
        """
        if route == "full" or not self.costs.knows("slim"):
            return self.costs.of("full", pending + n + 1) - pending * self._debt
        share = self.escalation.value if escalated is None else escalated
        now = self.costs.confirming(pending + n + 1) - pending * self._debt
        return self.costs.of("slim", n + 1) + share * now + (1 - share) * (n + 1) * self._debt

    @property
    def _debt(self) -> float:
        """Seconds by which a token that waits makes the full pass longer that follows a slim one."""
        return max(0.0, self.costs.confirming(17) - self.costs.confirming(1)) / 16
