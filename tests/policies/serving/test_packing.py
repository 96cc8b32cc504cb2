"""Does packing fill the memory left with the longest that fits, and starve nobody?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.policies.small import mixed, requests, run

PACKED = {"packing": "decreasing_first_fit"}


def test_the_longest_that_fits_goes_first() -> None:
    # 512 slots; each reserves prompt + predicted output, exactly: 10 + 90, 200, 300, 80 ...
    outputs = [90, 200, 300, 80, 50]
    result = run(
        512, requests(np.zeros(5), 10, outputs), policy={"name": "oracle"}, engine=PACKED
    )  # fmt: skip
    first = np.argsort(result.first_token_s, kind="stable")
    # 309 + 99 + 89 slots of 512: the 209 of the second does not fit beside the first
    together = result.first_token_s == result.first_token_s.min()
    assert np.flatnonzero(together).tolist() == [0, 2, 3]
    assert first[-1] in (1, 4)


def test_the_head_of_the_line_is_overtaken_so_often_and_no_more() -> None:
    # the shortest prediction first in line, and longer ones without end
    outputs = [5, *([40] * 200)]
    result = run(
        512, requests(np.zeros(201), 20, outputs), policy={"name": "oracle"},
        engine={**PACKED, "max_num_seqs": 8},
    )  # fmt: skip
    assert int((result.first_token_s < result.first_token_s[0]).sum()) <= 8


@pytest.mark.parametrize("name", ["v0", "v1"])
def test_nobody_joins_a_static_batch_before_all_of_it_has_ended(name: str) -> None:
    engine = {
        "name": name, "max_model_len": 1024, "max_num_seqs": 8, "max_num_batched_tokens": 8192,
        "batching": "static",
    }  # fmt: skip
    stream = mixed(60, rate=300.0)
    found = run(4096, stream, engine=engine)
    first = np.unique(np.round(found.first_token_s, 9))
    assert 60 / 8 <= len(first) < 30
    for begin, after in pairwise(first):
        mine = np.isclose(found.first_token_s, begin)
        assert mine.sum() <= 8
        assert found.finish_s[mine].max() <= after
    assert (
        found.finish_s == run(4096, stream, engine=engine, advance_together=False).finish_s
    ).all()
