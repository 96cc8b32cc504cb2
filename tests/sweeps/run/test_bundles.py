"""Do tasks that travel to a cluster in bundles come back once each, whatever becomes of them?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.serving.counted_runs import RUNS
from sweeps.run import dask_cluster
from sweeps.run.dask_cluster import BUNDLE_S, _Bundles


def squared(number: int) -> int:
    RUNS["plain"] += 1
    return number * number


class Future:
    def __init__(self, error: Exception | None, found: list[Any]) -> None:
        self.error, self.found = error, found

    def exception(self) -> Exception | None:
        return self.error

    def result(self) -> list[Any]:
        return self.found


class Cluster:
    """A Dask client and its `as_completed`: bundles come back in any order, take what they are told
    to, and end where one of theirs is deadly or a worker refuses it."""

    loop = None

    def __init__(self, rng: np.random.Generator, each_s: float) -> None:
        self.rng, self.each_s = rng, each_s
        self.threads, self.now_s = int(rng.integers(1, 4)), 0.0
        self.deadly, self.refused = set[int](), set[int]()
        self.coming: list[Future] = []
        self.sent: list[list[int]] = []
        self.cancelled: list[Any] = []
        self.back = 0

    def nthreads(self) -> dict[str, int]:
        return {"a": self.threads, "b": 0}

    def submit(self, work: Any, plugins: Any, sent: bytes, pure: bool) -> Future:
        before = RUNS.copy()
        found = [replace(each, wall_s=self.each_s) for each in work(plugins, sent)]
        RUNS.clear()
        RUNS.update(before)  # they run elsewhere
        numbers = [each.index for each in found]
        self.sent.append(numbers)
        error: Exception | None = None
        if self.deadly.intersection(numbers):
            error = RuntimeError("killed")
        elif self.refused.intersection(numbers):
            error = DescriptionError("has kernels already")
        return Future(error, found)

    def as_completed(self, futures: list[Future], loop: Any) -> Cluster:
        self.coming += futures
        return self

    def update(self, futures: list[Future]) -> None:
        self.coming += futures

    def __iter__(self) -> Iterator[Future]:
        while self.coming:
            assert len(self.coming) <= 2 * self.threads
            self.now_s += self.each_s
            yield self.coming.pop(int(self.rng.integers(len(self.coming))))

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled += futures


@pytest.mark.parametrize("seed", range(40))
def test_each_task_comes_back_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 120))
    cluster = Cluster(rng, float(rng.choice([0.001, 0.02, 0.1, 1.0])))
    cluster.deadly = set(rng.choice(many, int(rng.integers(3))).tolist())
    cluster.refused = set(rng.choice(many, int(rng.integers(3))).tolist())
    monkeypatch.setattr(dask_cluster.time, "monotonic", lambda: cluster.now_s)
    before = RUNS.copy()
    found = [*_Bundles(cluster, squared, range(many)).outcomes(cluster.as_completed)]
    assert sorted(each.index for each in found) == list(range(many))
    fine = [each for each in found if each.error is None]
    assert all(each.value == each.index**2 for each in fine)
    assert RUNS - before == Counter(plain=len(fine))
    lost = {each.index for each in found if each.lost}
    assert lost == cluster.deadly and cluster.cancelled == []
    for each in found:
        if each.lost:
            assert each.error == "its worker failed: killed"
        elif each.error is not None:
            assert each.error == "on its worker: has kernels already; or start the workers anew"
    # of a bundle that ended its worker each goes alone after it, and no other is sent twice
    times = Counter(at for bundle in cluster.sent for at in bundle)
    again = [b for b in cluster.sent if len(b) > 1 and cluster.deadly.intersection(b)]
    assert {at for at, count in times.items() if count > 1} == {at for b in again for at in b}
    for bundle in again:
        after = cluster.sent[cluster.sent.index(bundle) + 1 :]
        assert all([at] in after for at in bundle)


@pytest.mark.parametrize("each_s", [0.001, 0.02, 0.2, 1.0])
def test_bundles_take_a_moment_and_leave_each_worker_its_share(
    each_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(np.random.default_rng(1), each_s)
    cluster.threads = 2
    monkeypatch.setattr(dask_cluster.time, "monotonic", lambda: cluster.now_s)
    assert len([*_Bundles(cluster, squared, range(400)).outcomes(cluster.as_completed)]) == 400
    left = 400
    for place, bundle in enumerate(cluster.sent):
        most = max(1, min(left // 4, math.ceil(BUNDLE_S / each_s)))
        assert len(bundle) == (1 if place < 4 else most)  # nothing is known of the first four
        left -= len(bundle)
    assert [at for bundle in cluster.sent for at in bundle] == list(range(400))


def test_workers_are_counted_again_and_what_is_on_its_way_is_called_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(np.random.default_rng(1), 0.4)
    cluster.threads = 1
    monkeypatch.setattr(dask_cluster.time, "monotonic", lambda: cluster.now_s)
    outcomes = _Bundles(cluster, squared, range(50)).outcomes(cluster.as_completed)
    next(outcomes)
    assert len(cluster.coming) == 2
    cluster.threads = 3
    next(outcomes)
    assert len(cluster.coming) == 2  # not a second has passed
    next(outcomes)
    assert len(cluster.coming) == 6
    outcomes.close()
    assert cluster.cancelled and {*cluster.cancelled} == {*cluster.coming}
