"""Is a question put to a gap answered once, with loads of its own, and counted?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.run import kept_simulations
from sweeps.run.next_run import ask_next
from sweeps.run.progress import Progress, ProgressStep
from sweeps.run.sweep_run import run_sweep

SWEEP: dict[str, Any] = {
    "kind": "sweep", "name": "two", "summary": "beyond the better one's capacity",
    "base": {
        "device": "mlu370-x4", "model": "llama-3.1-8b", "workload": "constant", "requests": 30,
        "replications": 2, "load": {"relative": 1.5},
        "serving": {
            "kv_tokens": 8000, "weights": "w4a16",
            "memory": {"fidelity": "analytic", "efficiency": 0.8},
        },
    },
    "axes": {"serving.policy": ["static", "paged"]},
    "compare": "serving.policy",
}  # fmt: skip


class Counted(Progress):
    """Keeps of each stage its name, total, what was done before, and steps."""

    def __init__(self) -> None:
        super().__init__(terminal=False)
        self.stages: list[list[Any]] = []

    @contextmanager
    def stage(
        self, name: str, total: int, done: int = 0, late_s: float = 0.0, after: int = 0
    ) -> Iterator[ProgressStep]:
        self.stages.append([name, total, done, 0])

        def step(note: str = "") -> None:
            self.stages[-1][3] += 1

        yield step

    def of(self, name: str) -> list[tuple[int, int, int]]:
        """(total, done before, steps) of the stages of a name."""
        return [(total, done, steps) for each, total, done, steps in self.stages if each == name]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "two-1"
    run_sweep(load_sweep(SWEEP), path, False, 1, Progress(terminal=False))
    return path


@pytest.fixture
def run(simulated: Path, tmp_path: Path) -> Path:
    """A copy, of which nothing has been asked yet."""
    return Path(shutil.copytree(simulated, tmp_path / simulated.name))


def test_questions_are_simulated_once_at_loads_of_their_own(run: Path) -> None:
    first, again, more = Counted(), Counted(), Counted()
    found = ask_next(run, "paged,static", ["seed"], 1, first)
    assert not found.failures
    (gap,) = found.answers
    assert (gap.winner, gap.loser) == ("paged", "static")
    assert all(reply.gap is not None and reply.gap.count == 2 for reply in gap.replies)
    seeds = 4 * len(gap.replies)  # of two sides in two replications
    assert first.of("capacity") == first.of("counterfactuals") == [(seeds, 0, seeds)]
    known = (run / "explain/results.jsonl").read_bytes()
    assert ask_next(run, "paged,static", ["seed"], 1, again).answers == found.answers
    assert not again.stages and (run / "explain/results.jsonl").read_bytes() == known
    both = ask_next(run, "paged,static", ["seed", "limit"], 1, more).answers[0]
    limits = 4 * sum(reply.question == "limit" and reply.gap is not None for reply in both.replies)
    assert limits and more.of("counterfactuals") == [(seeds + limits, seeds, limits)]
    ((total, before, steps),) = more.of("capacity")
    assert before == seeds and steps == total - seeds >= limits
    kept = json.loads((run / "explain/next.json").read_text())
    assert {reply["question"] for each in kept["answers"] for reply in each["replies"]} == {
        "seed", "limit",
    }  # fmt: skip


def test_the_gap_of_the_report_is_asked_about_where_none_is_named(run: Path) -> None:
    (found,) = ask_next(run, "", ["seed"], 1, Progress(terminal=False)).answers
    assert (found.winner, found.loser) == ("paged", "static")


@pytest.mark.parametrize("at_fault", [False, True])
def test_a_simulation_that_fails_leaves_its_question_open_and_is_said_unless_it_was_asked_for(
    at_fault: bool, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(task: Any) -> Any:
        raise (DescriptionError if at_fault else ZeroDivisionError)("by hand")

    monkeypatch.setattr(kept_simulations, "measure", fails)
    monkeypatch.setattr(kept_simulations, "rehearse", lambda *_: None)
    found = ask_next(run, "paged,static", ["seed"], 1, Progress(terminal=False))
    (answer,) = found.answers
    assert all(each.gap is None and "by hand" in each.why for each in answer.replies)
    assert bool(found.failures) != at_fault
    assert capsys.readouterr().err.count("failed: ") == len(found.failures)
