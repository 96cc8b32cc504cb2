"""Does a router keep a session on its card, and send a prompt where most of it was given before?"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.requests.requests import Requests
from policies.serving.cluster import Manager
from policies.serving.cluster_options import ClusterSpec


def stream(
    prefix: list[int], session: list[int], prompt: int = 1000, shared: int = 500
) -> Requests:
    """Requests behind system prompts of `shared` tokens; -1: of no session, or behind none."""
    count, ids = len(prefix), np.array(prefix)
    turns = np.array(session)
    later = np.array([session[:at].count(turn) * (turn >= 0) for at, turn in enumerate(session)])
    return Requests(
        np.arange(count, dtype=np.float64), np.full(count, prompt) + 1200 * later,
        np.full(count, 10), prefix_id=ids, prefix_tokens=np.where(ids >= 0, shared, 0),
        session=turns, think_s=np.where(later > 0, 0.0, np.nan),
    )  # fmt: skip


def placed(requests: Requests, placement: str, cards: int = 4, **options: Any) -> list[int]:
    """The card of each, where none has ended before the next arrives."""
    chosen = ClusterSpec.model_validate({"cards": cards, "placement": placement, **options})
    manager = Manager(chosen, requests, np.full(len(requests), 10.0))
    return [manager.place(request, 0.0) for request in range(len(requests))]


def test_a_session_that_lost_its_card_begins_on_the_emptiest_and_stays_there() -> None:
    requests = stream([-1] * 5, [0, 1, 0, 0, 0])
    chosen = ClusterSpec.model_validate({"cards": 3, "placement": "session"})
    manager = Manager(chosen, requests, np.full(5, 10.0))
    assert [manager.place(0, 0.0), manager.place(1, 0.0)] == [0, 1]
    manager.serves(0, False)
    assert manager.place(2, 0.0) == 2
    manager.serves(0, True)
    assert [manager.place(3, 0.0), manager.place(4, 0.0)] == [2, 2]


def test_a_prompt_goes_where_more_of_it_than_the_threshold_was_given() -> None:
    """Half of each prompt is the system prompt of one of two."""
    requests = stream([0, 1, 0, 1, 0, 1], [-1] * 6)
    assert placed(requests, "prefix") == [0, 1, 0, 1, 0, 1]
    # too little of it: to the cards that were given least
    assert placed(requests, "prefix", cache_threshold=0.5) == [0, 1, 2, 3, 0, 1]


def test_uneven_loads_go_before_what_was_given() -> None:
    requests = stream([0] * 8, [-1] * 8)
    assert placed(requests, "prefix", 2) == [0] * 8
    few = {"balance_abs_threshold": 2, "balance_rel_threshold": 1.0}
    # three more on card 0: the emptiest gets one, and what it was given last it is given again
    assert placed(requests, "prefix", 2, **few) == [0, 0, 0, 1, 1, 1, 1, 1]


def test_a_card_that_failed_is_known_to_be_empty() -> None:
    requests = stream([0] * 4, [-1] * 4)
    chosen = ClusterSpec.model_validate({"cards": 2, "placement": "prefix"})
    manager = Manager(chosen, requests, np.full(4, 10.0))
    assert manager.place(0, 0.0) == 0
    manager.serves(0, False)
    assert manager.place(1, 0.0) == 1
    manager.serves(0, True)
    assert [manager.place(2, 0.0), manager.place(3, 0.0)] == [1, 1]
