"""Strategies on toys whose best mask is known, without any model."""

from __future__ import annotations

import numpy as np
import pytest

from via_sd_local.calibration.dimr import guided, strategies
from via_sd_local.calibration.dimr.guided import Guided
from via_sd_local.calibration.dimr.objective import Score
from via_sd_local.calibration.dimr.search import SearchBudget, SearchResult, make_strategy, search
from via_sd_local.calibration.dimr.space import FrontPoint, Space, Trial, front_of
from via_sd_local.calibration.dimr.speed import Shares, speed_worth
from via_sd_local.calibration.dimr.strategies import Paper, Random
from via_sd_local.calibration.dimr.surrogate import Surrogate
from via_sd_local.calibration.plan import ACQUISITIONS, PaperSearch
from via_sd_local.mask import LayerMask

N_LAYER, PLANTED = 16, 14
WORTH = speed_worth(Shares.equal(N_LAYER))


class Toy:
    """Skipped sublayers add vectors; the loss is the length of their sum, so sublayers interact."""

    def __init__(self, seed: int = 0, refused: frozenset[int] = frozenset()) -> None:
        rng = np.random.default_rng([99, seed])  # not the stream of any strategy
        self.space = Space(N_LAYER, 1, 31)
        self.planted = set(rng.choice(32, PLANTED, replace=False).tolist())
        lengths = np.array([0.03 if i in self.planted else rng.uniform(0.2, 0.5) for i in range(32)])
        directions = rng.standard_normal((32, 24))
        self.vectors = directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths[:, None]
        self.refused = refused
        self.calls = 0

    def __call__(self, mask: LayerMask) -> Score:
        self.calls += 1
        chosen = self.space.sublayers(mask)
        if chosen & self.refused:
            raise ValueError("refused")
        loss = float((self.vectors[sorted(chosen)].sum(axis=0) ** 2).sum())
        return Score(kl=loss, relu=loss, softplus=loss + 1, agreement=float(np.exp(-loss)), tokens=100)

    def search(self, name: str, evaluations: int = 120, seed: int = 0, **options: object) -> SearchResult:
        return search(self, N_LAYER, SearchBudget(evaluations), worth=WORTH, strategy=name, seed=seed, **options)


def test_guided_finds_the_planted_mask_and_random_masks_are_far_from_it():
    for seed in range(2):
        toy = Toy(seed)
        best = toy(toy.space.mask(toy.planted)).kl
        found = {name: toy.search(name, skip_ratio=PLANTED / 32, seed=seed) for name in ("guided", "paper", "random")}
        assert toy.space.sublayers(found["guided"].mask) == toy.planted
        assert found["guided"].score.kl == pytest.approx(best)
        assert best <= found["paper"].score.kl < found["random"].score.kl
        assert found["random"].score.kl > 5 * best


def test_guided_finds_it_without_being_told_how_many():
    toy = Toy()
    result = toy.search("guided", 160)
    assert toy.space.sublayers(result.mask) <= toy.planted
    assert len(result.mask) >= PLANTED - 2
    point = next(point for point in result.front if len(point.mask) == PLANTED)
    assert point.score.kl <= 1.1 * toy(toy.space.mask(toy.planted)).kl


class Quick:
    """A toy's quick score: off by up to a fifth."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.masks = toy, []

    def __call__(self, mask: LayerMask) -> Score:
        self.masks.append(mask)
        score = self.toy(mask)
        off = np.random.default_rng(len(self.masks)).uniform(0.8, 1.2)
        return Score(score.kl * off, score.relu * off, score.softplus, score.agreement, 20)


def test_sublayers_alone_are_put_in_order_by_quick_scores_and_nothing_else_is():
    toy = Toy()
    quick = Quick(toy)
    result = toy.search("guided", quick_score=quick, quick_cost=0.2)
    assert quick.masks == [toy.space.mask([i]) for i in range(32)]
    assert [trial.quick for trial in result.trials] == [True] * 32 + [False] * (120 - 32)
    assert all(point.score.tokens == 100 for point in result.front)
    assert toy.space.sublayers(result.mask) <= toy.planted
    assert len(result.mask) >= PLANTED - 2
    others = [toy.search(name, 40, quick_score=(none := Quick(toy))) and none.masks for name in ("paper", "random")]
    assert others == [[], []]


def test_a_quick_score_of_a_mask_is_not_taken_for_its_whole_one():
    """With one sublayer skipped, the mask that is wanted is scored alone first, on a part of the text."""
    toy = Toy()
    result = toy.search("guided", 60, skip_ratio=1 / 32, quick_score=Quick(toy))
    assert len(result.mask) == 1
    assert result.score.tokens == 100


def test_quick_scores_cost_less_of_a_plan():
    made = [Guided(Space.of(N_LAYER), worth=WORTH, evaluations=30, quick_cost=cost) for cost in (1.0, 0.25)]
    assert [len(strategy.ask()) for strategy in made] == [4, 1]
    with pytest.raises(ValueError, match="quick_cost is 0"):
        Guided(Space.of(N_LAYER), worth=WORTH, evaluations=30, quick_cost=0)


def test_gaps_in_the_front_are_filled():
    """Growth takes steps of two and more here; pictures and choices want every number."""
    result = Toy().search("guided", 120)
    counts = [len(point.mask) for point in result.front]
    assert counts == list(range(counts[0], counts[-1] + 1))
    assert counts[-1] >= PLANTED + 2


def test_exchange_mends_what_sublayers_alone_got_wrong(monkeypatch):
    """Two sublayers that are cheap alone and dear together: greedy growth by single scores would take both."""
    toy = Toy()
    a, b = sorted(set(range(32)) - toy.planted)[:2]
    toy.vectors[a], toy.vectors[b] = np.eye(24)[0] * 0.01, np.eye(24)[0] * 0.01
    plain = toy.__call__

    def trap(mask: LayerMask) -> Score:
        score = plain(mask)
        dear = {a, b} & toy.space.sublayers(mask)
        loss = score.kl + (3.0 if len(dear) and len(mask) > 4 else 0.0)
        return Score(loss, loss, loss, float(np.exp(-loss)), 100)

    result = search(trap, N_LAYER, SearchBudget(150), worth=WORTH, skip_ratio=PLANTED / 32)
    assert not {a, b} & toy.space.sublayers(result.mask)


def test_few_evaluations_still_give_a_mask_better_than_chance():
    toy = Toy()
    few = toy.search("guided", 24, skip_ratio=PLANTED / 32)
    chance = [toy(Space(N_LAYER, PLANTED, PLANTED).draw(np.random.default_rng(i))).kl for i in range(50)]
    assert few.evaluations == 24
    assert few.score.kl < np.median(chance)


@pytest.mark.parametrize("name", ["guided", "paper", "random"])
def test_the_same_seed_and_budget_give_the_same_search_another_seed_another_one(name):
    first, again = (Toy().search(name, 70, seed=3) for _ in range(2))
    assert first.trials == again.trials
    assert first.mask == again.mask
    assert Toy().search(name, 70, seed=4).trials != first.trials


@pytest.mark.parametrize("name", ["guided", "paper", "random"])
def test_asking_changes_nothing(name):
    toy = Toy()
    space = Space.of(N_LAYER)
    strategy = make_strategy(name, space, seed=1, objective="kl", worth=WORTH, plan=60)
    for _ in range(60):
        asked = strategy.ask()
        assert strategy.ask() == asked
        strategy.tell(asked, toy(asked))


@pytest.mark.parametrize("name", ["guided", "paper", "random"])
def test_proposals_are_new_and_skip_as_many_as_wanted(name):
    toy = Toy()
    space = Space.of(N_LAYER, 0.4)
    strategy = make_strategy(name, space, seed=1, objective="kl", worth=WORTH, plan=80)
    asked = []
    for _ in range(80):
        asked.append(strategy.ask())
        strategy.tell(asked[-1], toy(asked[-1]))
    assert len(set(asked)) == 80
    wanted = [mask for mask in asked if space.holds(mask)]
    assert len(wanted) >= (80 if name != "guided" else 30)
    assert all(type(layer) is int for mask in asked for layer in (*mask.attn, *mask.ffn))


@pytest.mark.parametrize("name", ["guided", "paper", "random"])
def test_refused_masks_are_left_out(name):
    toy = Toy(refused=frozenset({0, 1, 7}))
    result = toy.search(name, 100)
    assert any(trial.score is None for trial in result.trials)
    assert not toy.space.sublayers(result.mask) & toy.refused
    if name == "guided":  # it learns from the first refusal
        later = result.trials[40:]
        assert not any(toy.space.sublayers(trial.mask) & toy.refused for trial in later)


def test_bayesian_proposals_are_better_than_random_ones():
    toy = Toy()
    space = Space(N_LAYER, 12, 12)
    strategy = Paper(space, seed=0, objective="kl", worth=WORTH, theta=5)
    losses: dict[bool, list[float]] = {True: [], False: []}
    for i in range(100):
        mask = strategy.ask()
        score = toy(mask)
        strategy.tell(mask, score)
        losses[i % 5 == 4].append(score.kl)
    assert np.mean(losses[True][5:]) < 0.5 * np.mean(losses[False])


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_every_theta_th_proposal_is_bayesian_by_either_acquisition(acquisition, monkeypatch):
    toy, theta, asked = Toy(), 3, []
    gains = strategies._gains
    monkeypatch.setattr(strategies, "_gains", lambda *given: asked.append(given[3]) or gains(*given))
    space = Space(N_LAYER, 12, 12)
    strategy = Paper(space, objective="relu", worth=WORTH, theta=theta, acquisition=acquisition)
    losses: dict[bool, list[float]] = {True: [], False: []}
    for i in range(24):
        mask = strategy.ask()
        strategy.tell(mask, toy(mask))
        losses[i % theta == theta - 1].append(toy(mask).relu)
    assert asked == [acquisition] * 7  # one time there are too few trials for a fit
    assert np.mean(losses[True][1:]) < np.mean(losses[False])


def test_the_first_and_the_last_layer_can_be_kept():
    ends = {0, 1, 30, 31}
    options = PaperSearch(keep_ends=True, theta=6)
    result = Toy().search("paper", 13, paper=options, skip_ratio=0.5)
    assert not any(Space(N_LAYER, 1, 28).sublayers(trial.mask) & ends for trial in result.trials)
    assert len(result.mask) == 16
    assert any(Space(N_LAYER, 1, 28).sublayers(trial.mask) & ends for trial in Toy().search("random", 13).trials)
    with pytest.raises(ValueError, match=r"masks would skip 30 to 30 sublayers; of 32, .* 4 kept"):
        Toy().search("paper", 5, paper=options, skip_ratio=0.94)


def test_the_cost_alone_decides_on_request():
    """With a free skip ratio the worth decides, here the number of skipped sublayers; by cost, the cheapest mask."""
    masks = {}
    for by_cost in (False, True):
        options = {"strategy": "paper", "objective": "relu", "paper": PaperSearch(by_cost=by_cost, theta=99)}
        result = search(Toy(), N_LAYER, SearchBudget(40), worth=lambda mask, _: len(mask), **options)
        masks[by_cost] = result.mask
    assert len(masks[False]) == max(len(point.mask) for point in result.front)
    assert result.score.relu == min(point.score.relu for point in result.front)
    assert len(masks[True]) < len(masks[False])


def test_a_small_space_is_exhausted_and_the_search_ends():
    space = Space(1, 1, 1)
    for strategy in (Random(space), Paper(space, worth=WORTH), Guided(space, worth=WORTH, evaluations=10)):
        masks = set()
        while (mask := strategy.ask()) is not None:
            masks.add(str(mask))
            strategy.tell(mask, Score(1, 1, 1, 0.5, 9))
        assert masks == {"a0", "f0"}


def test_a_surrogate_learns_what_sublayers_cost_beside_others():
    rng = np.random.default_rng(0)
    single = rng.uniform(0.01, 0.02, 20)
    bits = (rng.random((200, 20)) < 0.5).astype(float)
    extra = np.zeros(20)
    extra[3], extra[4] = 0.5, -0.3
    losses = np.exp(np.log(bits @ single) + bits @ extra)
    weights = Surrogate(single, bits, losses.tolist()).weights({0, 1, 2})
    assert weights.argmax() == 3
    assert weights.argmin() == 4
    draws = [Surrogate(single, bits[:3], losses[:3].tolist()).weights({0}, np.random.default_rng(i)) for i in range(50)]
    assert np.std([draw[3] for draw in draws]) > 0.05  # unknown: drawn widely
    single[7] = np.inf
    assert Surrogate(single, bits[:0], []).weights(set()).argmax() == 7


def test_a_plan_decides_how_sublayers_are_grouped():
    space = Space.of(N_LAYER)
    assert len(Guided(space, worth=WORTH, evaluations=200)._groups) == 32
    assert len(Guided(space, worth=WORTH, evaluations=50)._groups) == 16
    assert len(Guided(space, worth=WORTH, evaluations=1)._groups) == 1


#
# spaces and fronts
#


def test_ratios_become_numbers_of_sublayers():
    assert Space.of(54) == Space(54, 6, 64)
    assert Space.of(54, 0.4444) == Space(54, 48, 48)
    assert Space.of(2, 0.01) == Space(2, 1, 1)
    assert Space.of(2, 0.99) == Space(2, 3, 3)
    for ratio in (0, 1, -0.1, float("nan")):
        with pytest.raises(ValueError, match="skip_ratio is"):
            Space.of(10, ratio)
    with pytest.raises(ValueError, match="3 to 2 sublayers"):
        Space(10, 3, 2)


def test_sublayers_bits_and_masks_are_three_names_of_one_thing():
    space = Space(3, 1, 5)
    mask = LayerMask.parse("a0,f1,2", 3)
    assert space.sublayers(mask) == {0, 3, 4, 5}
    assert space.mask({0, 3, 4, 5}) == mask
    assert space.bits([mask]).tolist() == [[1, 0, 0, 1, 1, 1]]


def test_random_masks_have_every_wanted_number():
    space = Space(5, 2, 4)
    rng = np.random.default_rng(0)
    assert {len(space.draw(rng)) for _ in range(100)} == {2, 3, 4}


def test_a_front_keeps_the_best_of_each_number():
    def trial(mask: str, loss: float | None) -> Trial:
        score = None if loss is None else Score(loss, 9, 9, 0, 1)
        return Trial(LayerMask.parse(mask, 4), score)

    trials = [trial("1", 0.5), trial("2", 0.3), trial("3", None), trial("1-2", 0.2), trial("0-3", 0.1), trial("a1", 0)]
    front = front_of(trials, Space(4, 2, 4), "kl")
    assert [(str(point.mask), point.score.kl) for point in front] == [("2", 0.3), ("1-2", 0.2)]
    again = front_of([*front, trial("0", 0.1)], Space(4, 2, 4), "kl")
    assert [str(point.mask) for point in again] == ["0", "1-2"]
    assert all(type(point) is FrontPoint for point in again)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Paper(Space.of(4), worth=WORTH, theta=0),
        lambda: Guided(Space.of(4), worth=WORTH, evaluations=0),
        lambda: search(Toy(), N_LAYER, SearchBudget(1), worth=WORTH, strategy="best"),
        lambda: search(Toy(), N_LAYER, SearchBudget(1), worth=WORTH, objective="loss"),
        lambda: SearchBudget(),
        lambda: SearchBudget(0),
        lambda: SearchBudget(minutes=0),
        lambda: SearchBudget(minutes=float("nan")),
    ],
)
def test_impossible_requests_are_refused(make):
    with pytest.raises(ValueError, match=r"theta is 0|has 0 eval|strategy is|objective is|needs"):
        make()


def test_hopeless_masks_are_not_grown_further():
    class Bad(Toy):
        def __call__(self, mask: LayerMask) -> Score:
            bad = 0.2 if len(mask) > 3 else 0.9
            return Score(1 - bad, 1, 1, bad, 9)

    result = Bad().search("guided", 200)
    grown = [len(trial.mask) for trial in result.trials[32:]]
    first = next(i for i, count in enumerate(grown) if count > 3)
    assert max(grown[: first + guided._MOST_CANDIDATES]) <= 10
