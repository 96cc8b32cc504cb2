"""What the command line does, from Python: the same names, files and mistakes
(`docs/reading-results.md`).

    import bankwise

    result = bankwise.run("quickstart")
    result.table()

`set` takes what `--set` takes: dotted path -> value, or texts `dotted.path=value`; a quantity is a
text with its unit ("2us", "16KiB"). An input at fault raises `DescriptionError` with the command
line's message. Importing this loads nothing heavy; a function loads what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bankwise.result import Result
    from hwmodel.description.description import DescriptionError as DescriptionError
    from hwmodel.measure.channels import Channels
    from hwmodel.specs.device import Device
    from policies.serving.plugins import Plugin
    from sweeps.ask.new_device import new_device as new_device
    from sweeps.plan.sweep import Given
    from sweeps.plan.sweep_spec import Sweep
    from sweeps.study.study_objective import StudyObjective
    from sweeps.study.study_spec import Study

Set = Mapping[str, Any] | Iterable[str] | None

_OWN = (
    "Channels", "DescriptionError", "load", "new_device", "objective", "open_device", "plugin",
    "report", "run", "simulate", "write_c_host",
)  # fmt: skip
"""What is here beside a function for each question of `sweeps/ask/questions.py`."""
_ELSEWHERE = {
    "Channels": "hwmodel.measure.channels", "DescriptionError": "hwmodel.description.description",
    "new_device": "sweeps.ask.new_device",
}  # fmt: skip


def load(description: Given, *, set: Set = None) -> Sweep | Study | Device:
    """What a description says, checked; nothing is simulated.

    description: a shipped name, a path, or for sweeps and studies what the file would hold.
    Returns a `Sweep` (`spec`, `points`, `config`), a `Study` (`spec`, `points`), or a `Device`
    (`channels`, `peak_gbps` in 10^9 B/s, `capacity_bytes`, `assumed`: path -> why) of an
    accelerator or a memory. Raises DescriptionError.
    """
    from bankwise.loading import load_any

    return load_any(description, _assignments(set))


def run(
    planned: Given, *, set: Set = None, out: str | Path | None = None, jobs: int | None = None,
    cluster: str | None = None, resume: bool = False, trials: int | None = None,
    sampler: str | None = None,
) -> Result:  # fmt: skip
    """Run a sweep or a study into a run directory, as `bankwise run` does; a study's table is its
    finale.

    planned: a shipped name, a path, or what the YAML file would hold. out: the directory,
    `runs/NAME-N` by default. jobs: processes, one a core by default; cluster: the address of a Dask
    scheduler instead. resume: go on with what is in the directory. Of a study, trials: how many are
    evaluated, sampler: `tpe` or `random`; its own by default.

    Points that fail are told on stderr and in `Result.failures`; the others go on. Raises
    DescriptionError, `Interrupted` (sweeps.run.sweep_run) or `StudyInterrupted`
    (sweeps.study.study_run) on Ctrl-C, where what was finished is kept, `StudyFailed` there, and
    `CapacityFailed` (sweeps.run.capacity).
    """
    from bankwise.result import Result
    from hwmodel.description.description import DescriptionError
    from sweeps.plan.sweep import load_sweep, planned_kind
    from sweeps.run.executor import worker_count
    from sweeps.run.progress import Progress
    from sweeps.run.sweep_run import run_sweep

    workers, overrides = worker_count(jobs, cluster), _assignments(set)
    if planned_kind(planned) == "study":
        from sweeps.study.search import run_study
        from sweeps.study.study_run import Workers
        from sweeps.study.study_spec import load_study

        study = load_study(planned, overrides, trials, sampler)
        found = run_study(study, _path(out), resume, Workers(workers, cluster), Progress())
        return Result(found.directory.path, found.failures)
    sweep = load_sweep(planned, overrides)
    for option, value in {"trials": trials, "sampler": sampler}.items():
        if value is not None:
            raise DescriptionError("goes with studies; this is a sweep", option)
    done = run_sweep(sweep, _path(out), resume, workers, Progress(), cluster)
    return Result(done.directory.path, done.failures, done.at_fault)


def objective(study: Given, *, set: Set = None) -> StudyObjective:
    """A study's trial as a function for `optuna.study.Study.optimize`: it draws from the study's
    space and returns what it serves (`examples/own_study.py`). Its `directions` are those of
    `optuna.create_study`. Raises DescriptionError."""
    from sweeps.study.study_objective import StudyObjective
    from sweeps.study.study_spec import load_study

    return StudyObjective(load_study(study, _assignments(set)))


def simulate(
    sweep: Given, point: int | None = None, *, set: Set = None, replication: int = 1
) -> dict[str, Any]:
    """Simulate one replication of one point of a sweep in this process; nothing is written.

    sweep: as for `run`, or the directory of a run, whose capacities are then known. point: its
    number, from 0; may be left out where there is one. Where the load is relative to a capacity,
    that is measured first. Returns a line of `results.jsonl`: `overrides`, `seed`, `rate_per_s`,
    `metrics` and so on (docs/reading-results.md). Raises DescriptionError.
    """
    from sweeps.run import one_point

    return one_point.simulate(sweep, _assignments(set), point, replication)


def report(run_dir: str | Path) -> Result:
    """The result of a run or a study that is there, finished or not: a directory, or NAME for the
    last `runs/NAME-N`. Raises DescriptionError where nothing can be shown."""
    from bankwise.result import Result
    from sweeps.run.store import last_run

    found = Result(last_run(Path(run_dir)))
    _ = found.report
    return found


def plugin(file: str | Path) -> Plugin:
    """Load allocators, schedulers, routers, measures, verdict rules of one's own, as `--plugin`
    does (docs/extend.md). Returns the file, its text and what it `defined`; a file that has changed
    replaces what it was. Raises DescriptionError."""
    from hwmodel.specs.controller_rule import read_and_announce

    read_and_announce([file])  # before anything that loads the kernels
    from sweeps.plan.plugged import load_plugin

    return load_plugin(file)


def open_device(
    device: str | Path, *, channel: bool = False, outstanding: int | None = None,
    keep_commands: bool = False, set: Set = None,
) -> Channels:  # fmt: skip
    """A device, or one channel of a memory, to be driven by calls: `submit`, `advance`,
    `statistics` and so on (docs/drive-a-memory.md).

    device: a shipped name or a path; of a memory, one channel. channel: one channel of a device.
    outstanding: accesses under way at most (closed loop); None: each arrives at its tick.
    keep_commands: for `Channels.commands`. Raises DescriptionError, and ValueError for
    `outstanding` below 1.
    """
    from hwmodel.measure.channels import Channels
    from hwmodel.specs.device import load_device

    return Channels(
        load_device(str(device), _assignments(set)), single_channel=channel,
        outstanding=outstanding, keep_commands=keep_commands,
    )  # fmt: skip


def write_c_host(
    device: str | Path, folder: str | Path, *, channel: bool = False,
    outstanding: int | None = None, set: Set = None,
) -> list[Path]:  # fmt: skip
    """What a C program needs to drive a device: `bankwise.h`, `bankwise.o`, `NAME.image`
    (docs/drive-a-memory.md). device, channel, outstanding: as for `open_device`.

    Returns the three files. Raises as `open_device`, and OSError where they cannot be written.
    """
    from hwmodel.measure import c_host

    opened = open_device(device, channel=channel, outstanding=outstanding, set=set)
    return c_host.write_c_host(opened, folder)


def _assignments(set: Set) -> list[str]:
    """`set` as the command line's texts."""
    if isinstance(set, str):
        from hwmodel.description.description import DescriptionError

        raise DescriptionError(f"expected a mapping or a list of texts; got {set!r}", "set")
    if not isinstance(set, Mapping):
        return list(set or ())
    from hwmodel.description.yaml_writer import plain, to_yaml_flow

    return [f"{path}={to_yaml_flow(plain(value))}" for path, value in set.items()]


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _questions() -> dict[str, str]:
    """Function of a question -> verb."""
    from sweeps.ask.questions import QUESTIONS

    return {verb.replace(" ", "_"): verb for verb in QUESTIONS}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name == "__all__":
        return [*_OWN, *_questions()]
    if not name.startswith("_") and (verb := _questions().get(name)):
        from bankwise.answered import function_of

        return globals().setdefault(name, function_of(verb))
    why = f"module 'bankwise' has no attribute {name!r}"
    raise AttributeError(why, name=name, obj=sys.modules[__name__])  # Python names the nearest


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
