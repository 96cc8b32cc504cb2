"""The kinds of experiment that a sweep can have as its `base`, told apart by its `measure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sweeps.experiments import experiment, kv_read
from sweeps.experiments.experiment import Described, ExperimentSpec, Task
from sweeps.experiments.kv_read import KvReadSpec
from sweeps.papers.odma import odma_paper
from sweeps.papers.odma.odma_paper import OdmaPaperSpec


class Kind(NamedTuple):
    """A kind of experiment."""

    spec: type[Described]
    measure: Callable[[Task], dict[str, Any]]
    """One replication: metrics by name. Raises DescriptionError."""
    rehearsals: Callable[[Iterable[Any]], list[Any]]
    """Small experiments that show what cannot work at all, and compile the kernels."""
    policy: tuple[str, str]
    """Where the KV policy stands; `policy` is short for it."""


KINDS = {
    "serving": Kind(
        ExperimentSpec, experiment.run_task, experiment.rehearsals, ("serving", "policy")
    ),
    "kv_read": Kind(KvReadSpec, kv_read.read_kv, kv_read.rehearsals, ("batch", "policy")),
    "odma_paper": Kind(
        OdmaPaperSpec, odma_paper.measure, odma_paper.rehearsals, ("serving", "policy")
    ),
}


def measure(task: Task) -> dict[str, Any]:
    """One replication of an experiment of any kind. Raises DescriptionError."""
    for kind in KINDS.values():
        if type(task.experiment) is kind.spec:
            return kind.measure(task)
    raise TypeError(f"no kind of experiment: {type(task.experiment).__name__}")
