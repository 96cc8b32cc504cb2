"""Workers: tasks in, outcomes out in any order; a dead worker costs one task, or a second attempt.

Those on this machine are forked after the parent has compiled the kernels, ignore Ctrl-C (the
parent decides) and end with their parent, however it ends. One whose task takes more than the
limits in force is ended (`sweeps.run.task_limits`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.counted_runs import RUNS
from policies.serving.plugins import LOADED, Plugin
from sweeps.plan.plugged import register
from sweeps.run.outcome import Outcome, Work, attempt
from sweeps.run.task_limits import LOOK_S, TaskLimits, in_force

_ORPHAN_CHECK_S = 0.5


def worker_count(jobs: int | None, cluster: str | None = None) -> int:
    """How many processes work here: `jobs`, or one a core. Raises DescriptionError."""
    if jobs is not None and cluster is not None:
        raise DescriptionError("does not go with --cluster", "--jobs")
    if jobs is not None and jobs < 1:
        raise DescriptionError(f"expected 1 or more; got {jobs}", "--jobs")
    return jobs or _cores()


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def execute(
    work: Work, tasks: Sequence[Any], jobs: int, cluster: str | None = None, retries: int = 0,
    limits: TaskLimits | None = None,
) -> Generator[Outcome, None, None]:  # fmt: skip
    """Do every task on `jobs` workers here, or on those of a Dask scheduler, and yield outcomes as
    they come.

    `jobs` 1 works in this process, where there are no limits. Closing the iterator, or Ctrl-C, ends
    the workers here at once.
    retries: how often a task is begun again whose worker here died.
    limits: what a task may take here; None: those in force.
    Raises DescriptionError if there is no such scheduler.
    """
    if cluster is not None:
        from sweeps.run.dask_cluster import execute_on  # heavy: distributed

        yield from execute_on(cluster, work, tasks)
        return
    limits = in_force() if limits is None else limits
    if min(jobs, len(tasks)) <= 1 and limits == TaskLimits():
        for index, task in enumerate(tasks):
            yield attempt(work, index, task)
        return
    pool = _Pool(work, min(jobs, len(tasks)), limits)
    try:
        yield from pool.outcomes(tasks, retries)
    finally:
        pool.close()


class _Worker:
    def __init__(self, context: BaseContext, work: Work, inherited: list[Connection]) -> None:
        self.connection, theirs = context.Pipe()
        self.busy_with: int | None = None
        self.began_s = 0.0
        ends = [*inherited, self.connection] if context.get_start_method() == "fork" else []
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(work, theirs, ends, os.getpid(), list(LOADED.values())),
            daemon=True,
        )
        self.process.start()
        theirs.close()


class _Pool:
    def __init__(self, work: Work, size: int, limits: TaskLimits) -> None:
        method = "fork" if sys.platform.startswith("linux") else "spawn"
        self.context = multiprocessing.get_context(method)
        self.work, self.limits = work, limits
        self.workers: list[_Worker] = []
        for _ in range(size):
            self._hire()

    def _hire(self) -> None:
        ends = [worker.connection for worker in self.workers]
        self.workers.append(_Worker(self.context, self.work, ends))

    def _replace(self, worker: _Worker) -> None:
        worker.process.join()
        self.workers.remove(worker)
        self._hire()

    def outcomes(self, tasks: Sequence[Any], retries: int) -> Generator[Outcome, None, None]:
        waiting = deque(enumerate(tasks))
        spare = [retries] * len(tasks)
        left = len(tasks)
        while left:
            for worker in list(self.workers):
                if worker.busy_with is None and waiting:
                    try:
                        worker.connection.send(waiting[0])
                    except (BrokenPipeError, ConnectionResetError):  # killed while it was idle
                        self._replace(worker)
                        continue
                    worker.busy_with, worker.began_s = waiting.popleft()[0], time.monotonic()
            busy = {w.connection: w for w in self.workers if w.busy_with is not None}
            unlimited = self.limits == TaskLimits()
            ready = wait(list(busy), None if unlimited else LOOK_S)
            came = [self._receive(busy[connection]) for connection in ready]  # type: ignore[index]
            for outcome in [*came, *self._stopped([*busy.values()])]:
                if outcome.lost and spare[outcome.index]:
                    spare[outcome.index] -= 1
                    waiting.appendleft((outcome.index, tasks[outcome.index]))
                    continue
                left -= 1
                yield outcome

    def _receive(self, worker: _Worker) -> Outcome:
        index = worker.busy_with
        assert index is not None
        worker.busy_with = None
        try:
            outcome: Outcome = worker.connection.recv()
            RUNS.update(outcome.runs)
            return outcome
        except (EOFError, ConnectionResetError):
            self._replace(worker)
            code = worker.process.exitcode
            why = (
                f"by signal {-code} (out of memory?)"
                if code and code < 0
                else f"with exit code {code}"
            )
            return Outcome(index, error=f"its worker process was ended {why}", lost=True)

    def _stopped(self, busy: list[_Worker]) -> Iterator[Outcome]:
        """End those of the workers that are beyond a limit."""
        for worker in busy:
            index, process = worker.busy_with, worker.process.pid
            if index is None or (why := self.limits.broken(process, worker.began_s)) is None:
                continue
            worker.process.kill()
            self._replace(worker)
            yield Outcome(index, error=why)

    def close(self) -> None:
        """End every worker, busy or not."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.connection.close()


def _serve(
    work: Work, connection: Connection, inherited: list[Connection], parent: int,
    plugins: list[Plugin],
) -> None:  # fmt: skip
    """A worker's life: one task after another until the parent's end closes."""
    for plugin in plugins:  # one that is forked has them
        register(plugin.file, plugin.text)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for end in inherited:
        end.close()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            index, task = connection.recv()
        except EOFError:
            return
        connection.send(attempt(work, index, task))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHAN_CHECK_S)
    os._exit(1)
