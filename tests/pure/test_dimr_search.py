"""The loop around a strategy: budgets, the log, interruptions, and what disks do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from test_dimr_strategies import N_LAYER, PLANTED, WORTH, Quick, Toy

from via_sd_local.calibration.dimr import trial_log
from via_sd_local.calibration.dimr.objective import Score
from via_sd_local.calibration.dimr.search import SearchBudget, SearchProgress, SearchResult, search
from via_sd_local.calibration.dimr.speed import Shares, speed_worth
from via_sd_local.calibration.plan import STRATEGIES
from via_sd_local.engine.costs import Costs
from via_sd_local.mask import LayerMask


def run(evaluate=None, evaluations: int = 60, **options) -> SearchResult:
    options = {"worth": WORTH, "skip_ratio": PLANTED / 32} | options
    return search(evaluate or Toy(), N_LAYER, SearchBudget(evaluations), **options)


class Stop:
    """A toy that is interrupted, or dies, at its n-th evaluation."""

    def __init__(self, n: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.toy, self.n, self.error = Toy(), n, error

    def __call__(self, mask: LayerMask) -> Score:
        if self.toy.calls == self.n:
            raise self.error
        return self.toy(mask)


class Clock:
    """Each look at it is a second later."""

    def __init__(self, step: float = 1.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


#
# resuming
#


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("at", [0, 5, 33, 47])
def test_a_search_that_died_goes_on_as_if_it_had_not(strategy, at, tmp_path):
    whole = run(strategy=strategy)
    log = tmp_path / "log.jsonl"
    with pytest.raises(ZeroDivisionError):
        run(Stop(at, ZeroDivisionError), strategy=strategy, log=log)
    toy = Toy()
    resumed = run(toy, strategy=strategy, log=log)
    assert resumed.trials == whole.trials
    assert (resumed.mask, resumed.front) == (whole.mask, whole.front)
    assert toy.calls == whole.evaluations - at


@pytest.mark.parametrize("at", [5, 40])
def test_a_search_with_quick_scores_goes_on_too_and_only_with_them(at, tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(quick_score=Quick(Toy()))
    stop = Stop(at, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        run(stop, quick_score=Quick(stop), log=log)
    toy = Toy()
    quick = Quick(toy)
    quick.masks = [None] * min(at, 32)  # what it is off by depends on how many came before
    resumed = run(toy, quick_score=quick, log=log)
    assert resumed.trials == whole.trials
    assert toy.calls == whole.evaluations - at
    with pytest.raises(ValueError, match="its quick is True"):
        run(log=log)


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_evaluated_again(cut, tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(log=log)
    content = log.read_bytes()
    log.write_bytes(content[:-cut])
    toy = Toy()
    assert run(toy, log=log).trials == whole.trials
    assert toy.calls == 1
    assert [json.loads(line)["mask"] for line in log.read_text().splitlines()[1:]] == [
        str(trial.mask) for trial in whole.trials
    ]


def test_what_follows_the_last_whole_line_is_cut_off(tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(log=log)
    content = log.read_bytes()
    log.write_bytes(content + b'{"mask": "' + b"x" * 500)
    assert run(log=log).trials == whole.trials
    assert log.read_bytes() == content


def test_a_torn_header_starts_over(tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(log=log)
    log.write_bytes(log.read_bytes()[:20])
    toy = Toy()
    assert run(toy, log=log).trials == whole.trials
    assert toy.calls == 60


def test_lines_after_a_broken_one_are_lost_with_a_warning(tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(log=log)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[51] = b'{"mask": "12-99", "score": null, "seconds": 1}\n'
    log.write_bytes(b"".join(lines))
    toy = Toy()
    with pytest.warns(RuntimeWarning, match="the last 10 lines cannot be read"):
        resumed = run(toy, log=log)
    assert resumed.trials == whole.trials
    assert toy.calls == 10


def test_a_finished_search_is_only_read(tmp_path):
    log = tmp_path / "log.jsonl"
    whole = run(log=log)
    toy = Toy()
    again = run(toy, log=log)
    assert toy.calls == 0
    assert (again.mask, again.trials) == (whole.mask, whole.trials)
    assert again.seconds >= whole.seconds - 0.1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"strategy": "random"}, "its strategy is 'guided', not 'random'"),
        ({"objective": "relu"}, "its objective is 'kl'"),
        ({"skip_ratio": 0.2}, r"its sublayers is \[14, 14\], not \[6, 6\]"),
        ({"evaluations": 61}, "its evaluations is 60"),
        ({"about": {"model": "b"}}, "its model is 'a', not 'b'"),
        ({"about": {"model": "a", "text": "x"}}, "its text is None"),
    ],
)
def test_the_log_of_another_search_is_refused_and_kept(options, says, tmp_path):
    log = tmp_path / "log.jsonl"
    run(log=log, about={"model": "a"})
    before = log.read_bytes()
    with pytest.raises(ValueError, match=rf"log\.jsonl: this is not the log of this search: {says}"):
        run(log=log, **({"about": {"model": "a"}} | options))
    assert log.read_bytes() == before


def test_another_file_is_not_taken_for_a_log(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    with pytest.raises(ValueError, match="this is not the log of this search"):
        run(log=path)
    assert path.read_text() == "my notes\n"


def test_every_trial_is_on_disk_before_the_next_begins(tmp_path):
    log = tmp_path / "log.jsonl"
    toy = Toy()

    def evaluate(mask: LayerMask) -> Score:
        assert len(log.read_text().splitlines()) == 1 + toy.calls
        return toy(mask)

    run(evaluate, log=log)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_process_loses_nothing(tmp_path):
    """Killed with no chance to clean up, in the middle of an evaluation."""
    log = tmp_path / "log.jsonl"
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_dimr_search import Stop, run
        class Kill(Stop):
            def __call__(self, mask):
                if self.toy.calls == self.n:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__call__(mask)
        run(Kill(25), log=Path({str(log)!r}))
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert died.returncode == -signal.SIGKILL
    toy = Toy()
    assert run(toy, log=log).trials == run().trials
    assert toy.calls == 35


#
# budgets and Ctrl-C
#


def test_ctrl_c_keeps_the_best_so_far():
    result = run(Stop(50))
    assert result.interrupted
    assert result.evaluations == 50
    assert (
        result.mask
        == min((trial for trial in result.trials if len(trial.mask) == PLANTED), key=lambda trial: trial.score.kl).mask
    )
    assert not run().interrupted


def test_ctrl_c_before_anything_was_found_ends_the_search():
    with pytest.raises(KeyboardInterrupt):
        run(Stop(3))


def test_minutes_end_a_search_and_count_what_a_resumed_one_spent(tmp_path):
    log = tmp_path / "log.jsonl"
    options = {"worth": WORTH, "skip_ratio": 0.4, "log": log, "strategy": "random"}
    with pytest.raises(ZeroDivisionError):
        search(Stop(10, ZeroDivisionError), N_LAYER, SearchBudget(minutes=1), clock=Clock(), **options)
    done = len(log.read_text().splitlines()) - 1
    toy = Toy()
    result = search(toy, N_LAYER, SearchBudget(minutes=1), clock=Clock(), **options)
    assert done == 10
    assert 60 <= result.seconds <= 63
    whole = search(Toy(), N_LAYER, SearchBudget(minutes=1), clock=Clock(), **{**options, "log": None})
    assert abs(result.evaluations - whole.evaluations) <= 2
    assert result.evaluations == done + toy.calls


def test_a_budget_in_minutes_is_planned_by_the_first_trial_also_when_resumed(tmp_path):
    def go(evaluate, log):
        options = {"worth": WORTH, "skip_ratio": 0.4, "log": log}
        return search(evaluate, N_LAYER, SearchBudget(minutes=2), clock=Clock(), **options)

    whole = go(Toy(), None)
    with pytest.raises(ZeroDivisionError):
        go(Stop(20, ZeroDivisionError), tmp_path / "log.jsonl")
    resumed = go(Toy(), tmp_path / "log.jsonl")
    n = min(len(whole.trials), len(resumed.trials))
    assert n > 25
    assert resumed.trials[:n] == whole.trials[:n]


def test_a_budget_that_ends_too_early_says_so():
    with pytest.raises(ValueError, match=r"after 1 evaluations there is no mask with 14 to 14 skipped"):
        run(evaluations=1)


def test_progress_tells_the_best_so_far():
    seen: list[SearchProgress] = []
    result = run(progress=seen.append)
    assert [one.evaluations for one in seen] == list(range(1, 61))
    losses = [one.best.score.kl for one in seen if one.best is not None]
    assert losses == sorted(losses, reverse=True)
    assert seen[-1].best.mask == result.mask


def test_the_mask_is_the_fronts_point_that_is_worth_most():
    result = run(evaluations=100, skip_ratio=None)
    worths = [WORTH(point.mask, point.score) for point in result.front]
    assert WORTH(result.mask, result.score) == max(worths)
    shy = run(evaluations=100, skip_ratio=None, worth=lambda mask, score: score.agreement)
    assert len(shy.mask) < len(result.mask)


#
# disks
#


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits")
def test_a_full_disk_costs_one_warning_and_nothing_in_memory(tmp_path):
    log = tmp_path / "log.jsonl"
    program = f"""
        import resource, signal, sys, warnings
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_dimr_search import run
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = run(log=Path({str(log)!r}))
        print(len(caught), len(result.trials), str(result.mask))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert done == ["1", "60", str(run().mask)]
    assert log.stat().st_size == 3000
    toy = Toy()
    assert run(toy, log=log).trials == run().trials
    assert 30 < toy.calls < 60


def test_a_disk_that_fills_up_on_the_way_leaves_a_log_to_resume_from(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    real, written = trial_log._write_line, []

    def write(file, line: bytes) -> None:
        written.append(line)
        if len(written) == 31:
            file.write(line[:10])
            raise OSError(28, "No space left on device")
        real(file, line)

    monkeypatch.setattr(trial_log, "_write_line", write)
    with pytest.warns(RuntimeWarning, match="No space left on device") as caught:
        result = run(log=path)
    assert len(caught) == 1
    assert len(written) == 31
    assert result.trials == run().trials
    monkeypatch.undo()
    toy = Toy()
    assert run(toy, log=path).trials == result.trials
    assert toy.calls == 60 - 29


@pytest.mark.parametrize("place", ["file/log.jsonl", "folder"])
def test_a_log_that_cannot_be_made_costs_one_warning_or_a_clear_error(place, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    log = tmp_path / place
    if place == "folder":
        with pytest.raises(ValueError, match="the search's log is to be a file"):
            run(log=log)
    else:
        with pytest.raises(ValueError, match="the search's log cannot be read: Not a directory"):
            run(log=log)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_costs_one_warning(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.warns(RuntimeWarning, match="cannot be logged"):
        assert run(log=tmp_path / "log.jsonl").evaluations == 60


def test_a_folder_that_refuses_files_costs_one_warning(tmp_path, monkeypatch):
    real = Path.open

    def refuse(path, mode="r", *args, **options):
        if mode == "rb":
            return real(path, mode, *args, **options)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.warns(RuntimeWarning, match=r"cannot be logged \(Permission denied\)") as caught:
        assert run(log=tmp_path / "log.jsonl").evaluations == 60
    assert len(caught) == 1


def test_a_log_in_a_new_folder_is_made(tmp_path):
    log = tmp_path / "a" / "b" / "log.jsonl"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(log=log)
    assert len(log.read_text().splitlines()) == 61


#
# worth
#


def test_shares_are_of_the_bytes_that_a_pass_reads(smollm2_path, tmp_path):
    shares = Shares.of(smollm2_path)
    assert len(shares.attn) == len(shares.ffn) == 30
    assert 0.1 < 1 - sum(shares.attn) - sum(shares.ffn) < 0.4  # the tied head of a small model
    assert all(2 < ffn / attn < 4 for attn, ffn in zip(shares.attn, shares.ffn, strict=True))
    mask = LayerMask.parse("a3,f4,7", 30)
    assert shares.skipped(mask) == pytest.approx(shares.attn[3] + shares.ffn[4] + shares.attn[7] + shares.ffn[7])
    assert shares.below(2) == pytest.approx(sum(shares.attn[:2]) + sum(shares.ffn[:2]))


@pytest.mark.native
def test_of_experts_those_count_that_a_token_uses(tmp_path):
    import tiny

    dense = Shares.of(tiny.write(tmp_path / "dense.gguf", tiny.spec("llama")))
    experts = Shares.of(tiny.write(tmp_path / "moe.gguf", tiny.spec("llama-moe")))
    ratio = {name: shares.ffn[0] / shares.attn[0] for name, shares in (("dense", dense), ("moe", experts))}
    assert 1.8 < ratio["moe"] / ratio["dense"] < 2.2  # two of four are used


def test_worth_prefers_a_late_hole_of_the_same_size():
    shares = Shares.equal(10)
    worth = speed_worth(shares, Costs({"full": {1: 1.0, 16: 1.0}, "draft": {1: 0.1}}))
    score = Score(0.1, 0.1, 0.1, 0.9, 100)
    assert worth(LayerMask.parse("7-9", 10), score) > worth(LayerMask.parse("1-3", 10), score)
    assert worth(LayerMask(10), score) > 0
