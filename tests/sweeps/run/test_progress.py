"""Is progress a bar on a terminal, and lines elsewhere?"""

from __future__ import annotations

import sys
import threading

import pytest

from sweeps.run.progress import Progress, duration


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


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [0, 30])
@pytest.mark.parametrize("each_s", [0.5, 2.0, 2.5, 4.0, 10.0, 14.0])
@pytest.mark.parametrize(("total", "done"), [(3, 0), (17, 1), (33, 3)])
def test_lines_come_every_ten_seconds_of_minutes_after_two_steps_and_at_the_end(
    total: int, done: int, each_s: float, after: int, late: bool,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """At the end of what most often is over soon only behind another line."""
    now_s = [0.0]
    monkeypatch.setattr("sweeps.run.progress.time.monotonic", lambda: now_s[0])
    expected: list[str] = []
    last_s = 0.0
    with Progress(False).stage("points", total, done, 2.0 * late, after) as step:
        for count in range(done + 1, total + 1):
            now_s[0] += each_s
            step("a note" * (count == total))
            left_s = (total - count + after) * each_s
            first = count - done == 2 and left_s > 60
            end = count == total and (expected or not late)
            if now_s[0] - last_s >= 10 or first or end:
                last_s = now_s[0]
                bar = f"{'#' * (20 * count // total):<20}"
                follows = " with what follows" * bool(after) + ", a note" * (count == total)
                expected.append(
                    f"points {count}/{total} [{bar}] {60 / each_s:.1f} a minute, "
                    f"{duration(now_s[0])} gone, {duration(left_s)} left{follows}"
                )
    assert capsys.readouterr().err.splitlines() == expected


@pytest.mark.parametrize(("seconds", "told"), [(0, "0:00"), (59.6, "1:00"), (75, "1:15"),
                                               (3600, "1:00:00"), (36305, "10:05:05")])  # fmt: skip
def test_how_is_a_duration_told(seconds: float, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize("late_s", [0.0, 2.0])
def test_a_bar_tells_the_time_left_of_all_and_leaves_streams_and_threads_alone(
    late_s: float, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COLUMNS", "120"), ("FORCE_COLOR", "1"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)  # as on a terminal
    now_s = [0.0]
    monkeypatch.setattr("sweeps.run.progress.time.monotonic", lambda: now_s[0])
    before, progress = (sys.stdout, sys.stderr, threading.active_count()), Progress(True)
    with progress.stage("capacity", 10, 2, late_s, after=50) as step:
        assert ("2/10" in capsys.readouterr().err) == (not late_s)
        for at_s, note, told in (
            (1.5, "", "3/10 1:26 left with what follows"),
            (2.0, "", "4/10 0:56 left with what follows"),
            (4.0, "own", "5/10 own"),
        ):
            now_s[0] = at_s
            step(note)
            err = capsys.readouterr().err
            assert all((word in err) == (at_s >= late_s) for word in told.split())
            assert not note or "left" not in err
        assert (sys.stdout, sys.stderr, threading.active_count()) == before
        progress.say("[b] said")
        assert "[b] said" in capsys.readouterr().err
    assert progress._bars is None
    with progress.stage("soon", 4, late_s=9.0) as step:
        step()
    assert "soon" not in capsys.readouterr().err
