"""Workers of a Dask cluster: processes on one machine or many that have bankwise installed.

A task whose worker dies is given to another by the scheduler, as often as it allows.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.plugins import LOADED, register
from sweeps.run.outcome import Outcome, Work, attempt

CONNECT_S = 30
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
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DescriptionError(f"no scheduler at {address}: {error}", "--cluster") from None
    with client:
        _plug(client)
        futures = {
            client.submit(attempt, work, index, task, pure=False): index
            for index, task in enumerate(tasks)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                yield _outcome(future, futures[future])
        finally:
            client.cancel(list(futures))


def _plug(client: Any) -> None:
    """Register the plug-ins that are loaded here on every worker, also on those that come later."""
    from distributed import WorkerPlugin

    class Plugged(WorkerPlugin):
        name = "bankwise-plugins"
        loaded = [(plugin.file, plugin.text) for plugin in LOADED.values()]

        def setup(self, worker: Any) -> None:
            for each in self.loaded:
                register(*each)

    if LOADED:
        client.register_plugin(Plugged())


def _outcome(future: Any, index: int) -> Outcome:
    error = future.exception()
    if error is None:
        found: Outcome = future.result()
        return found
    return Outcome(index, error=f"its worker failed: {error}", lost=True)
