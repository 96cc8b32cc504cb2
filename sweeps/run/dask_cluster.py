"""Workers of a Dask cluster: processes on one machine or many that have bankwise installed.

A task whose worker dies is given to another by the scheduler, as often as it allows.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Generator, Sequence
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.counted_runs import RUNS
from policies.serving.plugins import LOADED
from sweeps.run.dask_worker import attempt_sent
from sweeps.run.outcome import Outcome, Work

CONNECT_S = 10
"""How long a scheduler may take to answer (assumed)."""


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
        plugins = [(plugin.file, plugin.text) for plugin in LOADED.values()]
        futures = {
            client.submit(attempt_sent, plugins, pickle.dumps((work, task)), at, pure=False): at
            for at, task in enumerate(tasks)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                yield _outcome(future, futures[future])
        finally:
            client.cancel(list(futures))


def _outcome(future: Any, index: int) -> Outcome:
    error = future.exception()
    if error is None:
        found: Outcome = future.result()
        RUNS.update(found.runs)
        return found
    if isinstance(error, DescriptionError):  # any other worker may say the same
        return Outcome(index, error=f"on its worker: {error}; or start the workers anew")
    return Outcome(index, error=f"its worker failed: {error}", lost=True)
