"""Where a result comes from: versions, commit, hashes of inputs, numbers that are assumed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, Mistakes
from policies.serving.plugins import recorded
from sweeps.analyse.rows import differences
from sweeps.plan.experiment import Described, NamedDescription, device_of
from sweeps.plan.place import in_sweep, in_variant
from sweeps.plan.sweep_spec import Planned
from sweeps.run.version import version

_ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = [
    "numpy", "numba", "llvmlite", "scipy", "PyYAML", "optuna", "pydantic", "typer", "rich",
]  # fmt: skip


def provenance(run: Planned, resolved: dict[str, Any], argv: list[str]) -> dict[str, Any]:
    """What is written beside a run's results."""
    experiments = [point.experiment for point in run.points]
    return {
        "version": version(),
        **commit(),
        "command": argv,
        "inputs": {
            run.spec.kind: {"name": run.spec.name, "sha256": run.document.digest},
            **{
                kind: {name: item["sha256"] for name, item in items.items()}
                for kind, items in resolved.items()
            },
        },
        "seeds": sorted({(e.seed, e.replications) for e in experiments}),
        "assumed": _assumed(experiments),
        **run.spec.recorded(run.points),
        "libraries": {name: _library(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def resolve(run: Planned) -> dict[str, Any]:
    """What each device, model and workload means now. Raises DescriptionError."""
    found: dict[str, Any] = {"devices": {}, "models": {}, "workloads": {}}
    mistakes = Mistakes()
    for point in run.points:
        try:
            for source in point.experiment.sources():
                known = found.setdefault(source.folder, {})
                if source.name not in known:
                    with mistakes.met():
                        known[source.name] = {}
                        known[source.name] = _read(source, run)
        except DescriptionError:  # a model that is at fault, which was met, has no formats to name
            if not mistakes:
                raise
    for point in () if mistakes else run.points:
        with mistakes.met():
            _refuse(point.experiment, run)
    mistakes.answer()
    if own := recorded():
        found["plugins"] = own
    return found


def _refuse(experiment: Described, run: Planned) -> None:
    try:
        experiment.refuse()
    except DescriptionError as error:
        raise run.document.error(error.message, ("base", "serving", "memory")) from None


def _read(source: NamedDescription, run: Planned) -> dict[str, Any]:
    """What it means. Raises DescriptionError, placed where the run's description gives it."""
    try:
        return source.read()
    except DescriptionError as error:
        places = run.spec.overrides(run.document.data)
        placed = in_sweep(error, run.document, source.key, places)
        raise in_variant(placed, run.document) from None


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


def _assumed(experiments: list[Described]) -> dict[str, dict[str, str]]:
    """Numbers marked `assumed`, by description and dotted path."""
    found: dict[str, dict[str, str]] = {}
    for experiment in experiments:
        device = device_of(experiment)
        found[device.name] = {**device.assumed, **found.get(device.name, {})}
        for document in experiment.documents():
            name = str(document.data.get("name", document.file))
            found[name] = {k: str(p.value) for k, p in document.assumed().items()}
    return {name: items for name, items in found.items() if items}


def _library(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def commit() -> dict[str, Any]:
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
