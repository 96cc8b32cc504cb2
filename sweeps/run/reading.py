"""What can be read of a run directory that may be half-written, older, or damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError
from sweeps.analyse.objective import SERVED
from sweeps.analyse.rows import Record
from sweeps.analyse.table import Table, grouped
from sweeps.analyse.unfit_point import UnfitPoint
from sweeps.plan.measures import objective_of
from sweeps.plan.rules import spec_of
from sweeps.run.misfits import FILE as MISFITS
from sweeps.run.misfits import read_misfits, results
from sweeps.run.store import CONFIG, PROVENANCE, RunDirectory

_NUMBERS = ("replications", "requests", "warmup_requests")
"""Of a config's base."""
_OF_PROVENANCE = {"assumed": dict, "inputs": dict, "libraries": dict, "seeds": list}


class RunShape(NamedTuple):
    """What a run directory has to hold to be shown."""

    config: dict[str, type]
    """Keys without which a config cannot be shown, and their types."""
    result: dict[str, type]
    """Likewise of a result."""
    guess: Callable[[list[Record], str], dict[str, Any]]
    """A config that the results of a run of this name agree with."""


@dataclass
class RunParts:
    """A run's parts, and a sentence for each thing that is missing or wrong."""

    config: dict[str, Any]
    records: list[Record]
    provenance: dict[str, Any]
    problems: list[str] = field(default_factory=list)


def read_run(directory: RunDirectory, shapes: Mapping[str, RunShape]) -> RunParts:
    """Read what there is. shapes: by the `kind` of a config, that of sweeps first. Raises
    DescriptionError where there is nothing to show."""
    path = directory.path
    if not path.exists():
        raise DescriptionError("no such directory", path)
    problems: list[str] = []
    config = read_config(directory, problems)
    if "design" in config:
        why = "design of a former version; run it again, with a rule"
        raise DescriptionError(why, path / CONFIG)
    shape = shapes.get(str(config.get("kind")), SWEEP)
    records, wrong = directory.survey(shape.result)
    others = iter(shapes.values())
    while not config and not records and (other := next(others, None)):  # it has lost its config
        records, wrong = directory.survey(other.result)
        shape = other if records else shape
    problems += wrong
    if not records and not config:
        what = "is empty" if path.is_dir() and not any(path.iterdir()) else "is not a run directory"
        raise DescriptionError(f"{what}: it has neither results nor {CONFIG}", path)
    if not records:
        problems.append("there is no result to show yet; --resume computes them")
    for key, kind in [*shape.config.items(), ("variants", dict)]:
        if config and not _as_wanted(config, key, kind):
            problems.append(f"{CONFIG}: {key} is missing or of another version")
            config = {}
    config = config or shape.guess(records, path.absolute().name)
    return RunParts(config, records, read_provenance(directory, problems), problems)


def _as_wanted(config: dict[str, Any], key: str, kind: type) -> bool:
    value = config.get(key, {} if key == "variants" else None)
    if not isinstance(value, kind):
        return False
    if key == "base" and isinstance(value, dict):
        return all(type(value.get(name, 1)) is int for name in _NUMBERS)
    inner = {"axes": list, "variants": dict}.get(key)
    if inner is None or not isinstance(value, dict):
        return True
    return all(isinstance(each, inner) for each in value.values())


def read_config(directory: RunDirectory, problems: list[str]) -> dict[str, Any]:
    """The config, empty where there is none; what is wrong is added to `problems`."""
    if not directory.exists:
        problems.append(f"{CONFIG} is missing: what was asked is told from the results alone")
        return {}
    try:
        found = directory.config()
    except (DescriptionError, UnicodeDecodeError) as error:
        problems.append(f"{CONFIG} cannot be read: {error}")
        return {}
    return found if isinstance(found, dict) else {}


def read_provenance(directory: RunDirectory, problems: list[str]) -> dict[str, Any]:
    """The provenance, empty where there is none; what is wrong is added to `problems`."""
    try:
        found = directory.read_json(PROVENANCE)
    except DescriptionError as error:
        problems.append(f"{PROVENANCE} cannot be read: {error.message}")
        return {}
    if found is None:
        problems.append(f"{PROVENANCE} is missing: versions, seeds and assumed numbers are unknown")
    known = found if isinstance(found, dict) else {}
    for key, kind in _OF_PROVENANCE.items():
        if key in known and not isinstance(known[key], kind):
            problems.append(f"{PROVENANCE}: {key} is of another version; it is left out")
            known = {name: value for name, value in known.items() if name != key}
    return known


def _guessed(records: list[Record], name: str) -> dict[str, Any]:
    """A config that the results agree with."""
    axes: dict[str, list[Any]] = {}
    for record in records:
        for path, value in record["overrides"].items():
            if value not in axes.setdefault(path, []):
                axes[path].append(value)
    names = dict.fromkeys(record.get("control", "") for record in records)
    variants = {name: {"role": "control", "set": {}} for name in names if name}
    replications = max((record["replication"] for record in records), default=1)
    return {
        "name": name, "summary": "(its config is missing)", "axes": axes, "variants": variants,
        "base": {"replications": replications},
        "compare": "serving.policy" if "serving.policy" in axes else next(reversed(axes), ""),
    }  # fmt: skip


SWEEP = RunShape(
    {"axes": dict, "base": dict, "compare": str, "name": str},
    {"point": int, "replication": int, "overrides": dict, "metrics": dict},
    _guessed,
)


def sweep_table(run: RunParts, directory: RunDirectory) -> Table:
    """The run of a sweep as groups of competitors."""
    config, objective = run.config, objective_of(run.config)
    misfits = _misfits(run, directory)
    records = results(run.records, misfits)
    unfit = len(misfits) * int(config["base"].get("replications", 1))
    return Table(
        config["name"], config.get("question") or "",
        grouped(records, config, objective or SERVED), len(records),
        spec_of(config).total(config, records) - unfit, config, run.provenance, directory.path,
        run.problems, compared_by=objective, misfits=misfits,
    )  # fmt: skip


def _misfits(run: RunParts, directory: RunDirectory) -> list[UnfitPoint]:
    """The points that do not fit; none where the file cannot be read, which is then a problem."""
    try:
        return read_misfits(directory)
    except DescriptionError as error:
        run.problems.append(f"{MISFITS} cannot be read: {error.message}")
        return []


def read_sweep(directory: RunDirectory) -> Table:
    """The run of a sweep, finished or not. Raises DescriptionError where there is nothing to
    read."""
    return sweep_table(read_run(directory, {"sweep": SWEEP}), directory)
