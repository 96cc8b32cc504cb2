"""Checking descriptions: every file by its kind, every mistake with its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwmodel.description.based_on import complete
from hwmodel.description.description import (
    DescriptionError,
    Document,
    Mistakes,
    Strict,
    nearest,
)
from hwmodel.description.library import FOLDERS, LIBRARY, find, names
from hwmodel.description.yaml_reader import load, override
from hwmodel.specs.device import load_device
from hwmodel.specs.kernel_law import KernelClass, complete_kernels
from hwmodel.specs.link import load_link
from hwmodel.specs.number_format import NumberFormat
from hwmodel.specs.plausible import described_plausible
from hwmodel.specs.transformer import load_model
from policies.memory.measured import load_measurements
from policies.predictors.confusion import ConfusionTable
from policies.requests.requests import load_trace
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.measured_server import load_server
from policies.transfers.measured_transfers import load_transfers
from sweeps.plan.experiment import assignments
from sweeps.plan.place import Override, in_sweep, shortened
from sweeps.plan.sweep import load_sweep
from sweeps.run.provenance import resolve
from sweeps.study.study_spec import load_study

TRACES = (".csv", ".gz")
"""Endings of trace files, which are checked too."""
_NAMED = {"device": "accelerator", "model": "model", "workload": "workload"}
"""Of a sweep's keys: the kind of what it names."""
FILES = (".yaml", ".yml", *TRACES)


def inspect(targets: list[str], overrides: list[str], assumed: bool = False) -> int:
    """Check files, folders and shipped names (all that ships where none are given).

    Prints a line a mistake on stderr and a line a good file on stdout, with `assumed` followed by
    every number in it that has no public source; returns how many are bad.
    """
    bad = 0
    for file in _files(targets):
        try:
            kind = _check(file, overrides)
        except DescriptionError as error:
            print(shortened(str(error)), file=sys.stderr)
            bad += 1
        else:
            print(f"{shortened(file)}: {kind}, no mistakes")
            if assumed and not file.endswith(TRACES):
                _print_assumed(file, overrides if kind in ("memory", "accelerator") else [])
    return bad


def _print_assumed(file: str, overrides: list[str]) -> None:
    """The numbers of a file, of an accelerator those of its memory as well."""
    document = load(file)
    complete(document)
    complete_kernels(document)
    for path, provenance in document.assumed().items():
        note = f"  ({provenance.note})" if provenance.note else ""
        print(f"  assumed: {path} = {provenance.value}{note}")
    if document.data.get("kind") == "accelerator":
        found = load_device(str(Path(file).resolve()), overrides).assumed
        for path, value in found.items():
            if path.startswith("memory:"):
                print(f"  assumed: {path} = {value}")
    for line in described_plausible(document):
        print(f"  plausible: {line}")


def _files(targets: list[str]) -> list[str]:
    if not targets:
        return [str(file) for kind in FOLDERS for file in sorted((LIBRARY / kind).glob("*.yaml"))]
    found: list[str] = []
    for target in targets:
        if Path(target).is_dir():
            found += sorted(str(file) for file in Path(target).rglob("*.yaml"))
        else:
            found += _named(target)
    return found


def _named(target: str) -> list[str]:
    """Every shipped description of that name, or else the file itself."""
    found = [str(find(kind, target)) for kind in FOLDERS if target in names(kind)]
    if found or "/" in target or target.endswith(FILES) or Path(target).is_file():
        return found or [target]
    known = sorted({name for kind in FOLDERS for name in names(kind)})
    raise DescriptionError(f"no file or shipped name {target!r}; {nearest(target, known)}")


def _check(file: str, overrides: list[str]) -> str:
    if file.endswith(TRACES):
        load_trace(file)
        return "trace"
    document = load(file)
    kind = str(document.data.get("kind"))
    if kind not in READERS:
        given = document.data.get("kind")
        raise document.error(f"unknown kind {given!r}; {nearest(kind, list(READERS))}", ("kind",))
    READERS[kind](file if "/" in file else f"./{file}", overrides)
    return kind


def _run(read: Reader) -> Reader:
    """Of a sweep or a study, with what it names."""

    def inner(path: str, overrides: list[str]) -> None:
        mistakes = Mistakes()
        with mistakes.met():
            resolve(read(path, overrides))
        if mistakes:
            _meet_named(load(path), mistakes)
        mistakes.answer()

    return inner


def _meet_named(document: Document, mistakes: Mistakes) -> None:
    """The mistakes of what a sweep at fault names in its base, or along an axis."""
    for key, kind in _NAMED.items():
        along = document.get(("axes", key))
        along = along if isinstance(along, list) else []
        places = [Override(key, ("axes", key), [("axes", key, i) for i in range(len(along))])]
        settings = document.get(("base", f"{key}_set"))
        for name in [document.get(("base", key)), *along]:
            if isinstance(name, str) and not name.endswith(TRACES):
                with mistakes.met():
                    try:
                        file = str(find(f"{kind}s", name, document.file).absolute())
                        given = settings if isinstance(settings, dict) else {}
                        READERS[kind](file, assignments(given))
                    except DescriptionError as error:
                        raise in_sweep(error, document, key, places) from None


def _built(spec: type[Strict], read: Callable[[str], Document] = load) -> Reader:
    def inner(path: str, overrides: list[str]) -> None:
        document = read(path)
        for assignment in overrides:
            override(document, assignment)
        document.build(spec)

    return inner


Reader = Callable[[str, list[str]], Any]
READERS: dict[str, Reader] = {
    "memory": load_device, "accelerator": load_device, "kernels": _built(KernelClass),
    "link": load_link, "model": load_model,
    "format": _built(NumberFormat), "workload": _built(WorkloadSpec, workload_document),
    "measurement": lambda path, _: load_measurements(path),
    "server": lambda path, _: load_server(path), "transfers": lambda path, _: load_transfers(path),
    "predictor": _built(ConfusionTable), "sweep": _run(load_sweep), "study": _run(load_study),
}  # fmt: skip
"""Kind -> what reads such a file with overrides. Raises DescriptionError."""
