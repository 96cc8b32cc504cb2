"""Workers of a Dask cluster: processes on one machine or many that have bankwise installed.

A task whose worker dies is given to another by the scheduler, as often as it allows.
"""

from __future__ import annotations

import math
import pickle
import re
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.counted_runs import RUNS
from policies.serving.plugins import LOADED
from sweeps.run.dask_worker import attempt_sent
from sweeps.run.outcome import Outcome, Work

CONNECT_S = 10
"""How long a scheduler may take to answer (assumed)."""
BUNDLE_S = 0.25
"""What tasks that travel together take (assumed): beside it, a turn through the scheduler is
little, and what a dead worker costs as well."""
COUNT_S = 1.0
"""How often workers are counted (assumed)."""


def execute_on(address: str, work: Work, tasks: Sequence[Any]) -> Generator[Outcome, None, None]:
    """Do every task on the scheduler's workers and yield outcomes as they come.

    Raises DescriptionError if Dask is not installed or nothing answers at the address.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise DescriptionError(
            "needs Dask: install the extra `cluster` of bankwise", "--cluster"
        ) from None
    if not re.search(r":\d+/?$", address):
        raise DescriptionError(f"expected HOST:PORT; got {address!r}", "--cluster")
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DescriptionError(f"no scheduler at {address}: {error}", "--cluster") from None
    with client:
        yield from _Bundles(client, work, tasks).outcomes(as_completed)


class _Bundles:
    """Tasks on their way: several travel together where each takes milliseconds, so that the
    scheduler is asked a few times a second, and one by one where they take longer."""

    def __init__(self, client: Any, work: Work, tasks: Sequence[Any]) -> None:
        self._client, self._work, self._tasks = client, work, tasks
        self._plugins = [(plugin.file, plugin.text) for plugin in LOADED.values()]
        self._waiting = deque(range(len(tasks)))
        self._alone: set[int] = set()
        """Of a bundle whose workers died: it is not known by which of them."""
        self._sent: dict[Any, list[int]] = {}
        """Bundles that are not back, by future."""
        self._done, self._wall_s = 0, 0.0
        """Tasks that are back, and what they took together."""
        self._threads, self._counted_s = 1, -math.inf

    def outcomes(self, as_completed: Any) -> Generator[Outcome, None, None]:
        """As bundles come back. as_completed: Dask's."""
        coming = as_completed(self._send(), loop=self._client.loop)
        try:
            for future in coming:
                tasks = self._sent.pop(future)
                found = _found(future, tasks)
                if len(tasks) > 1 and found[0].lost:
                    self._alone.update(tasks)
                    self._waiting.extendleft(reversed(tasks))
                    found = []
                took = [outcome.wall_s for outcome in found if outcome.error is None]
                self._done, self._wall_s = self._done + len(took), self._wall_s + sum(took)
                coming.update(self._send())
                yield from found
        finally:
            self._client.cancel(list(self._sent))

    def _send(self) -> list[Any]:
        """Bundles for workers that have nothing more to do than they are doing."""
        if time.monotonic() - self._counted_s > COUNT_S:  # workers come and go
            self._threads = max(sum(self._client.nthreads().values()), 1)
            self._counted_s = time.monotonic()
        sent = []
        while self._waiting and len(self._sent) < 2 * self._threads:
            bundle = self._bundle()
            tasks = [(at, self._tasks[at]) for at in bundle]
            future = self._client.submit(
                attempt_sent, self._plugins, pickle.dumps((self._work, tasks)), pure=False
            )
            self._sent[future] = bundle
            sent.append(future)
        return sent

    def _bundle(self) -> list[int]:
        """The next tasks: as many as will take BUNDLE_S, by those that are back, and no more than
        leave each worker its share of the rest."""
        share = len(self._waiting) // (2 * self._threads)
        fit = BUNDLE_S * self._done / max(self._wall_s, 1e-9)
        bundle = [self._waiting.popleft()]
        while len(bundle) < min(fit, share) and not self._alone.intersection(
            (bundle[0], self._waiting[0])
        ):
            bundle.append(self._waiting.popleft())
        return bundle


def _found(future: Any, tasks: list[int]) -> list[Outcome]:
    """What became of the tasks of a bundle that is back."""
    error = future.exception()
    if error is None:
        found: list[Outcome] = future.result()
        for outcome in found:
            RUNS.update(outcome.runs)
        return found
    if isinstance(error, DescriptionError):  # any other worker may say the same
        why = f"on its worker: {error}; or start the workers anew"
        return [Outcome(at, error=why) for at in tasks]
    return [Outcome(at, error=f"its worker failed: {error}", lost=True) for at in tasks]
