"""One replication of a run as a timeline for ui.perfetto.dev: steps, requests, what happened."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import ExperimentSpec, Task, measure
from sweeps.run.one_point import opened, point_of, rate_of, refuse_replication
from sweeps.run.store import write_atomically

ENDINGS = (".json", ".json.gz")


def export_timeline(
    sweep: str, out: Path, overrides: Iterable[str], point: int | None, replication: int, jobs: int
) -> dict[str, Any]:
    """Serve a replication of a point of a sweep, or of a run directory, and write its timeline to
    `out` (JSON trace events; .gz packs it). Returns which point it is. Raises DescriptionError."""
    if not out.name.endswith(ENDINGS):
        raise DescriptionError(f"expected a name that ends in {' or '.join(ENDINGS)}", out)
    loaded, known = opened(sweep, overrides)
    chosen = point_of(loaded, point)
    experiment = chosen.experiment
    if not isinstance(experiment, ExperimentSpec):
        raise DescriptionError(f"{loaded.spec.name} serves nothing; expected a sweep that serves")
    refuse_replication(experiment, replication)
    rate = rate_of(loaded, chosen, replication, known, jobs)
    with tempfile.TemporaryDirectory() as folder:
        stem = str(Path(folder) / "run")
        logged = experiment.model_copy(update={"logs": ["trace"]})
        measure(Task(logged, replication, rate, logs=stem))
        packed = Path(f"{stem}-trace.json.gz").read_bytes()
    write_atomically(out, packed if out.suffix == ".gz" else gzip.decompress(packed))
    return {"point": chosen.index, "overrides": chosen.overrides, "control": chosen.control,
            "replication": replication, "rate_per_s": rate}  # fmt: skip
