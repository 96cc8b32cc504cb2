"""Where a result comes from: versions, commit, hashes of inputs, numbers that are assumed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, Document, find, load
from policies.predictors.confusion import load_table
from policies.requests.workload import workload_document
from sweeps.experiments.experiment import (
    Described,
    ExperimentSpec,
    assignments,
    device_of,
    model_of,
    workload_of,
)
from sweeps.experiments.sweep import Sweep
from sweeps.experiments.what_if import CHANGE
from sweeps.results.place import in_sweep
from sweeps.results.store import differences, plain
from sweeps.results.version import version
from sweeps.studies.study_spec import Study

_ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = (
    "numpy",
    "numba",
    "llvmlite",
    "scipy",
    "PyYAML",
    "optuna",
    "pydantic",
    "typer",
    "rich",
)


def provenance(sweep: Sweep | Study, resolved: dict[str, Any], argv: list[str]) -> dict[str, Any]:
    """What is written beside a run's results."""
    experiments = [point.experiment for point in sweep.points]
    return {
        "version": version(),
        **_commit(),
        "command": argv,
        "inputs": {
            sweep.spec.kind: {"name": sweep.spec.name, "sha256": sweep.document.digest},
            **{
                kind: {name: item["sha256"] for name, item in items.items()}
                for kind, items in resolved.items()
            },
        },
        "seeds": sorted({(e.seed, e.replications) for e in experiments}),
        "assumed": _assumed(experiments),
        **_hardware(sweep),
        "libraries": {name: _library(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def resolve(sweep: Sweep | Study) -> dict[str, Any]:
    """What each device, model and workload means now. Raises DescriptionError."""
    found: dict[str, Any] = {"devices": {}, "models": {}, "workloads": {}}
    for experiment in {_key(p.experiment): p.experiment for p in sweep.points}.values():
        with _placed(sweep, "device"):
            device = device_of(experiment)
        with _placed(sweep, "model"):
            model = plain(model_of(experiment).model_dump(mode="json"))
        name = _named(experiment.device, experiment.device_set)
        found["devices"][name] = {"sha256": device.digest, **plain(device.config)}
        name = _named(experiment.model, experiment.model_set)
        found["models"][name] = {"sha256": _digest(model), **model}
        if isinstance(experiment, ExperimentSpec):
            with _placed(sweep, "workload"):
                workload = _workload(experiment)
            name = _named(experiment.workload, experiment.workload_set)
            found["workloads"][name] = workload
            if (file := experiment.serving.predictor.file) is not None:
                with _placed(sweep, "serving"):
                    table = plain(load_table(file).model_dump(mode="json"))
                digest = _digest(table)
                if experiment.serving.predictor.model is not None:  # holds measured times as well
                    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
                found.setdefault("predictors", {})[file] = {"sha256": digest, **table}
    return found


@contextmanager
def _placed(sweep: Sweep | Study, key: str) -> Iterator[None]:
    """Say of a mistake in an override where the sweep gives it."""
    try:
        yield
    except DescriptionError as error:
        raise in_sweep(error, sweep.document, key) from None


def refuse_changes(recorded: dict[str, Any], resolved: dict[str, Any], file: str) -> None:
    """Raise DescriptionError when a description that was recorded means something else now."""
    for kind, items in resolved.items():
        for name, now in items.items():
            before = (recorded.get(kind) or {}).get(name)
            if before is None or before == now:
                continue
            changed = [item for item in differences(before, now) if item[0] != "sha256"]
            path, old, new = (changed or [("sha256", before["sha256"], now["sha256"])])[0]
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise DescriptionError(
                f"{name} has changed since this was recorded: {path} was {old!r}, is {new!r}{more}",
                file, None, f"resolved.{kind}",
            )  # fmt: skip


def _key(experiment: Described) -> str:
    return json.dumps(
        experiment.model_dump(
            mode="json",
            include={
                "device": True,
                "device_set": True,
                "model": True,
                "model_set": True,
                "workload": True,
                "workload_set": True,
                "serving": {"predictor"},
            },
        ),
        sort_keys=True,
    )


def _named(name: str, overrides: dict[str, Any]) -> str:
    return " ".join([name, *assignments(overrides)])


def _workload(experiment: ExperimentSpec) -> dict[str, Any]:
    workload = workload_of(experiment.model_copy(update={"arrivals": None}))
    data = plain(workload.model_dump(mode="json", exclude_none=True))
    digest = _digest(data)
    if workload.lengths.trace is not None:
        digest = hashlib.sha256(Path(workload.lengths.trace).read_bytes()).hexdigest()
    return {"sha256": digest, **data}


def _assumed(experiments: list[Described]) -> dict[str, dict[str, str]]:
    """Numbers marked `assumed`, by description and dotted path."""
    found: dict[str, dict[str, str]] = {}
    for experiment in experiments:
        device = device_of(experiment)
        found[device.name] = {**device.assumed, **found.get(device.name, {})}
        documents = [load(find("models", experiment.model))]
        if isinstance(experiment, ExperimentSpec):
            documents.append(workload_document(experiment.workload))
        for document in documents:
            found[_title(document)] = {k: str(p.value) for k, p in document.assumed().items()}
    return {name: items for name, items in found.items() if items}


def _hardware(sweep: Sweep | Study) -> dict[str, Any]:
    """Peak and capacity of the device under each change, by the change's name."""
    found: dict[str, Any] = {}
    for point in sweep.points:
        if CHANGE in point.overrides:
            device = device_of(point.experiment)
            found.setdefault(point.overrides[CHANGE], {})[device.name] = {
                "peak_gbps": device.peak_gbps,
                "capacity_bytes": device.capacity_bytes,
            }
    return {"hardware": found} if found else {}


def _title(document: Document) -> str:
    return str(document.data.get("name", document.file))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _library(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> dict[str, Any]:
    """Commit and dirty flag of the clone this runs from; nothing where it is installed."""
    if not (_ROOT / ".git").exists():
        return {"commit": None, "dirty": None}
    return {
        "commit": _git("rev-parse", "HEAD") or None,
        "dirty": bool(_git("status", "--porcelain")),
    }


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def argv() -> list[str]:
    """The command as the user gave it."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]
