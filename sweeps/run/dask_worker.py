"""What is sent to a Dask worker: a function whose module loads nothing heavy, since rules of the
memory controller come before the kernels."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from hwmodel.specs.controller_rule import announce


def attempt_sent(plugins: Sequence[tuple[str, str]], sent: bytes) -> list[Any]:
    """Do tasks one after another, which may be of classes of plug-ins (file, text): their Outcomes.
    They are sent as bytes, since neither the scheduler nor a worker that has just come knows their
    modules. Raises DescriptionError where the worker has kernels already, without a rule that is
    among them."""
    announce(plugins)
    from sweeps.plan.plugged import register  # heavy
    from sweeps.run.outcome import attempt

    for file, text in plugins:
        register(file, text)
    work, tasks = pickle.loads(sent)
    return [attempt(work, at, task) for at, task in tasks]
