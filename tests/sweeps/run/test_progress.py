"""Is progress a bar on a terminal, and lines elsewhere?"""

from __future__ import annotations

import pytest

from sweeps.run.progress import Progress


@pytest.mark.parametrize("terminal", [True, False])
def test_the_count_its_note_and_what_is_said_are_shown(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    progress = Progress(terminal=terminal)
    with progress.stage("points", 3, 1) as done:
        done()
        progress.say("failed: [base] x: y")
        done("12 left [a]")
    progress.say("after")
    out, err = capsys.readouterr()
    assert out == "" and "failed: [base] x: y\n" in err and err.endswith("after\n")
    assert "3/3" in err and "points" in err and "12 left [a]" in err
    assert terminal or "points 3/3 [####################]" in err


def test_nothing_is_shown_where_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(terminal=True).stage("points", 2, 2):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_over_soon_says_nothing_and_the_rest_how_long_it_takes(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert list(Progress(terminal).through("patterns")("abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    clock = iter(range(0, 500, 10))
    monkeypatch.setattr("sweeps.run.progress.time.monotonic", lambda: float(next(clock)))
    assert list(Progress(terminal).through("patterns")("abc", 3)) == ["a", "b", "c"]
    assert "3/3" in capsys.readouterr().err


def test_what_takes_minutes_says_so_after_its_first_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.5, 3.0, 4.5])
    monkeypatch.setattr("sweeps.run.progress.time.monotonic", lambda: next(clock))
    with Progress(False).stage("points", 100) as done:
        for _ in range(3):
            done()
    assert capsys.readouterr().err.splitlines() == [
        "points 2/100 [                    ] 40.0 a minute, 0:03 gone, 2:27 left"
    ]


def test_the_time_left_is_said_of_the_stages_that_follow_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.5, 3.0, 4.5])
    monkeypatch.setattr("sweeps.run.progress.time.monotonic", lambda: next(clock))
    with Progress(False).stage("capacity", 10, after=50) as done:
        for _ in range(3):
            done()
    told = capsys.readouterr().err.splitlines()[0]
    assert told.endswith("0:03 gone, 1:27 left with what follows")
