"""Workers of a Dask cluster: processes on one machine or many that have bankwise installed.

A task whose worker dies is given to another by the scheduler, as often as it allows.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Generator, Sequence
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.plugins import LOADED, register
from sweeps.run.outcome import Outcome, Work, attempt

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
            client.submit(_attempt, plugins, pickle.dumps((work, task)), index, pure=False): index
            for index, task in enumerate(tasks)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                yield _outcome(future, futures[future])
        finally:
            client.cancel(list(futures))


def _attempt(plugins: list[tuple[str, str]], sent: bytes, index: int) -> Outcome:
    """On a worker: do a task, which may be of classes of plug-ins. It is sent as bytes, since
    neither the scheduler nor a worker that has just come knows their modules."""
    for file, text in plugins:
        register(file, text)
    work, task = pickle.loads(sent)
    return attempt(work, index, task)


def _outcome(future: Any, index: int) -> Outcome:
    error = future.exception()
    if error is None:
        found: Outcome = future.result()
        return found
    return Outcome(index, error=f"its worker failed: {error}", lost=True)
