"""Do turns repeat their sessions, end where the context is full, and have streams of their own?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import WorkloadSpec

LAW: dict[str, Any] = {
    "mean_turns": 4.0, "message_tokens": {"median": 20.0, "sigma": 0.8},
    "output_tokens": {"median": 30.0, "sigma": 0.8}, "pause_s": {"mean_s": 3.0},
    "context_tokens": 900,
}  # fmt: skip
OPENINGS: dict[str, Any] = {
    "system": {"count": 2, "tokens": {"median": 70.0, "sigma": 0.1}},
    "documents": {"count": 5, "tokens": {"median": 100.0, "sigma": 0.5}, "zipf": 1.0},
}


def spec(arrivals: Any = None, rest: Any = None, **law: Any) -> WorkloadSpec:
    data = {
        "name": "talks", "summary": "-", "lengths": {"sessions": {**LAW, **law}},
        "arrivals": arrivals or {"process": "poisson"}, **(rest or {}),
    }  # fmt: skip
    return WorkloadSpec.model_validate(data)


def drawn(count: int = 2000, seed: int = 1, arrivals: Any = None, **law: Any) -> Requests:
    return generate(spec(arrivals, **law), count, 2.0, seed)


def test_a_prompt_is_all_that_came_before_and_a_message() -> None:
    found = drawn(**OPENINGS)
    before = found.turn_before
    after = np.flatnonzero(before >= 0)
    whole = (found.prompt_tokens + found.output_tokens)[before[after]]
    message = found.prompt_tokens[after] - whole
    assert (message >= 1).all() and np.median(message) == pytest.approx(20, rel=0.1)
    assert np.median(found.output_tokens) == pytest.approx(30, rel=0.1)
    assert (found.prompt_tokens + found.output_tokens <= 900).all()
    assert found.think_s[after].mean() == pytest.approx(3, rel=0.1)
    assert np.isnan(found.think_s[before < 0]).all()
    assert (found.prefix_id[after] == found.prefix_id[before[after]]).all()
    # the rate is that of turns, whatever the sessions
    assert len(found) / found.arrival_s[before < 0][-1] == pytest.approx(2.0, rel=0.15)
    turns = np.bincount(drawn(6000, context_tokens=10**6).session)[:-1]
    assert turns.mean() == pytest.approx(4, rel=0.1)
    assert (turns == 1).mean() == pytest.approx(0.25, abs=0.03)


def test_documents_lie_behind_system_prompts_and_popular_ones_come_more_often() -> None:
    found = drawn(6000, mean_turns=1.0, **OPENINGS)
    assert found.tree is not None and found.tree[:, 0].tolist() == [-1, -1, 0, 1, 0, 1, 0]
    (system, end), (document, tokens) = found.prefixes(0)
    assert system == found.tree[document, 0] and end == found.tree[document, 1] < tokens
    assert tokens == found.prefix_tokens[0] < found.prompt_tokens[0]
    often = np.bincount(found.prefix_id)[2:]
    assert often[0] / often[4] == pytest.approx(5, rel=0.2)
    assert drawn(9, system=OPENINGS["system"]).prefixes(0)[0][0] in (0, 1)
    alone = drawn(9, documents=OPENINGS["documents"])
    assert alone.tree is not None and set(alone.tree[:, 0]) == {-1}
    assert drawn(9).prefixes(0) == ()


def test_more_requests_and_other_arrivals_leave_the_sessions_as_they_were() -> None:
    few, many = drawn(200), drawn(400)
    for session in range(few.session.max()):  # but for the last one, which may be cut
        rows, more = few.session == session, many.session == session
        assert few.prompt_tokens[rows].tolist() == many.prompt_tokens[more].tolist()
    other = drawn(200, arrivals={"process": "closed", "clients": 3})
    assert sorted(other.prompt_tokens) == sorted(few.prompt_tokens)
    assert sorted(drawn(200, seed=2).prompt_tokens) != sorted(few.prompt_tokens)


def test_clients_hold_a_session_each() -> None:
    found = drawn(300, arrivals={"process": "closed", "clients": 7, "think_s": 9.0})
    first = found.turn_before < 0
    assert np.isnan(found.think_s).sum() == 7 and set(found.session[:7]) == set(range(7))
    assert (found.think_s[first][7:] == 9.0).all()
    assert (np.diff(found.session[first]) > 0).all()


def test_a_slice_keeps_sessions_and_the_tree() -> None:
    found = drawn(100, **OPENINGS)
    part = found[:40]
    assert part.session.tolist() == found.session[:40].tolist()
    assert part.prefixes(39) == found.prefixes(39)


def test_turns_that_do_not_follow_are_refused() -> None:
    two: dict[str, Any] = {"session": np.zeros(2, np.int64), "think_s": np.array([np.nan, 1.0])}
    times, output = np.zeros(2), np.full(2, 5)
    assert Requests(times, np.array([10, 15]), output, **two).turn_before.tolist() == [-1, 0]
    with pytest.raises(ValueError, match="begin with all of the one before"):
        Requests(times, np.array([10, 14]), output, **two)
    with pytest.raises(ValueError, match="think_s must be given"):
        Requests(times, np.array([10, 15]), output, session=np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="smaller id"):
        Requests(times, output, output, np.zeros(2, np.int64), output, tree=np.array([[0, 1]]))
