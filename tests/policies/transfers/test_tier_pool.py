"""Does a tier give up the blocks that its policy says, and none that is in use?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.transfers.eviction import EVICTION, BlockKey
from policies.transfers.tier_pool import TierPool


def key(at: int, owner: str = "session") -> BlockKey:
    return ((owner, at), 0)


def filled(eviction: str, keys: list[BlockKey]) -> TierPool:
    pool = TierPool(len(keys), eviction)
    for each in keys:
        assert pool.put([each], [])
    pool.came(keys)
    return pool


def gone(pool: TierPool, keys: list[BlockKey]) -> list[int]:
    """Which of `keys` go, in turn, as new blocks come."""
    found: list[int] = []
    for new in range(100, 100 + len(keys)):
        if not pool.put([key(new)], []):
            break
        pool.came([key(new)])
        found += [at for at, each in enumerate(keys) if each not in pool and at not in found]
    return found


def test_lru_gives_up_what_was_asked_for_longest_ago_and_the_last_block_first() -> None:
    text = [(("session", 1), at) for at in range(3)]
    pool = filled("lru", [key(0), *text])
    pool.accessed(text)
    assert gone(pool, [key(0), *text]) == [0, 3, 2, 1]


def test_arc_keeps_what_was_asked_for_again() -> None:
    keys = [key(at) for at in range(4)]
    pool = filled("arc", keys)
    pool.accessed(keys[:2])
    assert gone(pool, keys) == [2, 3]  # then the new ones, which were asked for once


def test_arc_gives_more_room_to_the_new_when_what_it_gave_up_comes_again() -> None:
    keys = [key(at) for at in range(4)]
    pool = filled("arc", keys)
    pool.accessed(keys[:2])
    assert pool.put([key(9)], [])  # for the third
    pool.came([key(9)])
    for _ in range(4):
        pool.accessed([keys[2]])  # a ghost
    assert pool.put([keys[2]], [])
    assert [each in pool for each in keys] == [True, False, True, True]


@pytest.mark.parametrize(("eviction", "order"), [("priority", [1, 3, 0]), ("pinned", [0, 1, 3])])
def test_shared_prefixes_outlive_what_is_a_request_s_own(eviction: str, order: list[int]) -> None:
    owners = ("session", "own", "prefix", "own")
    keys = [key(at, owner) for at, owner in enumerate(owners)]
    pool = filled(eviction, keys)
    assert gone(pool, keys) == order


@given(
    st.sampled_from(sorted(EVICTION)),
    st.lists(
        st.tuples(
            st.sampled_from(["put", "came", "lost", "ask", "use", "leave"]), st.integers(0, 12)
        ),
        max_size=60,
    ),
)
def test_no_block_is_two_keys_and_none_in_use_is_given_up(
    eviction: str, plan: list[tuple[str, int]]
) -> None:
    pool = TierPool(5, eviction)
    coming: set[BlockKey] = set()
    used: list[BlockKey] = []
    here: set[BlockKey] = set()
    for what, at in plan:
        each = key(at, ("prefix", "session", "own")[at % 3])
        if what == "put" and each not in pool:
            before = {k for k in here | coming if k in pool}
            if pool.put([each], []):
                coming.add(each)
                assert not [k for k in before if k not in pool and (k in coming or k in used)]
            else:
                assert before == {k for k in here | coming if k in pool}
        elif what == "ask":
            pool.accessed([each])
        elif what in ("came", "lost") and each in coming:
            coming.remove(each)
            (pool.came if what == "came" else pool.lost)([each])
            here.add(each)
            assert pool.ready(each) == (what == "came")
        elif what == "use" and pool.ready(each):
            used.append(each)
            pool.use([each])
        elif what == "leave" and each in used:
            used.remove(each)
            pool.leave([each])
        held = [k for k in here | coming if k in pool]
        ids = pool.ids(held)
        assert len(set(ids)) == len(ids) == len(pool) <= 5
        assert all(0 <= each < 5 for each in ids)
