"""A workload by name or path, as the tests ask for one."""

from __future__ import annotations

from pathlib import Path

from policies.requests.workload import WorkloadSpec, workload_document


def resolve_workload(name_or_path: str, relative_to: str | Path | None = None) -> WorkloadSpec:
    return workload_document(name_or_path, relative_to).build(WorkloadSpec)
