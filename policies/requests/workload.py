"""Workloads: what lengths requests have, and how they arrive.

A workload says nothing about the load: the experiment gives the count of requests and their rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Document, KeyPath, Strict, checked
from hwmodel.description.files import sha256_of
from hwmodel.description.library import find
from hwmodel.description.written import NAME_TOO
from hwmodel.description.yaml_reader import load
from policies.requests.arrivals import Arrivals, read_envelope
from policies.requests.length_table import Drift, LengthTable
from policies.requests.requests import MAX_TOKENS, load_trace
from policies.requests.sessions import LognormalLength, Sessions

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
BEAM_FORKS = 0.2
"""What `WorkloadSpec.beam_forks` is where it is not given."""
TRACE_SUFFIXES = (".csv", ".json", ".jsonl", ".gz")


class ConstantLengths(Strict):
    """Every request alike."""

    prompt_tokens: Tokens
    """Of every prompt."""
    output_tokens: Tokens
    """Of every answer."""


class LognormalLengths(Strict):
    """Lognormal prompts and outputs whose logarithms have the given correlation."""

    prompt_tokens: LognormalLength
    output_tokens: LognormalLength
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Of the logarithms of prompt and output."""


class UniformLengths(Strict):
    """Any whole number of tokens between the mean less and plus its share `range`, all alike, as
    vLLM's random data set has it."""

    prompt_tokens: Tokens
    """The mean."""
    output_tokens: Tokens
    """The mean."""
    range: Annotated[float, Field(ge=0, lt=1)]
    """Share of the mean by which lengths differ from it at most."""


class SplicePart(Strict):
    """One of the workloads a splice is made of."""

    workload: Annotated[WorkloadSpec, Field(json_schema_extra=NAME_TOO)]
    """A shipped workload, a workload file or a trace; its arrivals do not count here."""
    share: Positive = 1.0
    """Of the requests, in proportion to the other parts."""
    sha256: str | None = None
    """Of a trace, noted when the workload is read."""


class Splice(Strict):
    """Lengths, prefixes and samples from several workloads.

    `sequence`: one after another; `interleave`: each request from one of them at random;
    `drift`: from the first of two to the second, whose share grows evenly over the run.
    """

    parts: Annotated[list[SplicePart], Field(min_length=2)]
    """The workloads."""
    order: Literal["sequence", "interleave", "drift"] = "sequence"
    """How requests come from them."""

    @checked
    def _drift_is_between_two(self) -> None:
        if self.order == "drift" and len(self.parts) != 2:
            raise ValueError(f"parts: drift goes from one to another; got {len(self.parts)} parts")
        if any(part.workload.lengths.sessions is not None for part in self.parts):
            raise ValueError("parts: sessions cannot be spliced; their turns follow answers")
        if self.order == "drift" and any(part.share != 1 for part in self.parts):
            raise ValueError("parts: share does not go with drift")


class Prefixes(Strict):
    """System prompts that requests share: each of `count` is `tokens` long, before the prompt."""

    count: Tokens
    """How many there are."""
    tokens: Tokens
    """Of each."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of the requests that have one, any of them alike (assumed)."""


class Lengths(Strict):
    """Where lengths come from: exactly one of `table`, `trace`, `constant`, `uniform`,
    `lognormal`, `splice`, `sessions`."""

    table: LengthTable | None = None
    window: Annotated[int, Field(ge=0)] | None = None
    """With `table`: stay in this window (counted from 0) instead of walking through the drift."""
    drift: Drift | None = None
    """With `table`: how a run walks through the windows; None: `squeezed`, all of them in one run.
    With `clock` each replication starts at another time of the trace."""
    trace: str | None = None
    """A trace file, taken in its order; a relative path starts at the workload's file."""
    repeat: bool = False
    """With `trace`: begin again at its end when more requests are asked for than it has."""
    constant: ConstantLengths | None = None
    uniform: UniformLengths | None = None
    lognormal: LognormalLengths | None = None
    splice: Splice | None = None
    sessions: Sessions | None = None

    @checked
    def _one_source(self) -> None:
        names = ("table", "trace", "constant", "uniform", "lognormal", "splice", "sessions")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of {', '.join(names)}; got {got}")
        if self.window is not None:
            if self.table is None:
                raise ValueError(f"window belongs to table lengths, not to {given[0]}")
            if self.window >= len(self.table.windows):
                last = len(self.table.windows) - 1
                raise ValueError(f"no window {self.window}; the table has 0 to {last}")
        if self.drift is not None:
            self._refuse_drift(given[0])
        if self.repeat and self.trace is None:
            raise ValueError(f"repeat belongs to trace lengths, not to {given[0]}")

    def _refuse_drift(self, given: str) -> None:
        if self.table is None:
            raise ValueError(f"drift belongs to table lengths, not to {given}; null drops it")
        if self.window is not None:
            raise ValueError("drift does not go with window, which has none")
        if self.drift == "clock":
            self.table.windows_at(np.zeros(0), 0.0)


class LengthCaps(Strict):
    """Caps that truncate: a longer prompt (with its prefix) or output is cut to the cap; no request
    is dropped."""

    max_prompt_tokens: Tokens | None = None
    """Longer prompts are cut."""
    max_output_tokens: Tokens | None = None
    """Longer answers are cut."""


class WorkloadSpec(Strict):
    """A workload description (`yaml/workloads`)."""

    kind: Literal["workload"] = "workload"
    name: str
    summary: str
    lengths: Lengths
    arrivals: Arrivals = Arrivals()
    limits: LengthCaps = LengthCaps()
    prefixes: Prefixes | None = None
    samples: Tokens | None = None
    """Outputs drawn at once from each prompt. None: 1, or in a splice what its parts say."""
    beams: Annotated[int, Field(ge=2, le=MAX_TOKENS)] | None = None
    """Outputs of a beam search from each prompt, in place of `samples`."""
    beam_forks: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the beams that give way in each step, to forks of those that go on. None: 0.2
    (assumed, 0.01 to 0.5; docs/papers.md)."""

    @checked
    def _trace_times_need_a_trace(self) -> None:
        if self.arrivals.process == "trace" and self.lengths.trace is None:
            raise ValueError("arrivals.process: trace needs lengths.trace")
        if self.beams is not None and self.samples is not None:
            raise ValueError("beams: not with samples; a request has one or the other")
        if self.beams is None and self.beam_forks is not None:
            raise ValueError("beam_forks: only with beams")
        if self.lengths.sessions is not None:
            for name in ("limits", "prefixes", "samples", "beams"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name}: does not go with sessions, whose laws bound them")


Lengths.model_rebuild()
WorkloadSpec.model_rebuild()


def workload_document(
    name_or_path: str, relative_to: str | Path | None = None, _within: tuple[str, ...] = ()
) -> Document:
    """The document of a shipped workload by name, a user's own or a trace file by path. Its paths
    are made absolute, and the parts of a splice replace their names.

    A trace file (TRACE_SUFFIXES) gives a workload of its own lengths and times; without times,
    Poisson arrivals. Raises DescriptionError when a file is missing or does not read.
    """
    if name_or_path.endswith(TRACE_SUFFIXES):
        return _trace_document(name_or_path, relative_to)
    document = load(find("workloads", name_or_path, relative_to))
    _find_file(document, ("lengths", "trace"))
    envelope: KeyPath = ("arrivals", "rate_over_time")
    if path := _find_file(document, (*envelope, "envelope")):
        read_envelope(path)
        _note_digest(document, envelope, path)
    here = str(Path(document.file).resolve())
    if here in _within:
        raise DescriptionError("a splice cannot hold itself")
    parts = document.get(("lengths", "splice", "parts"), [])
    for index in range(len(parts) if isinstance(parts, list) else 0):
        _insert_part(document, ("lengths", "splice", "parts", index), (*_within, here))
    return document


def _find_file(document: Document, place: KeyPath) -> Path | None:
    """The file named at `place`, relative to the document; its absolute path is put there."""
    name = document.get(place)
    if not isinstance(name, str):
        return None
    path = (Path(document.file).parent / name).absolute()
    if not path.is_file():
        raise document.error(f"no such file: {name}", place)
    document.put(place, str(path), document.mark(place))
    return path


def _note_digest(document: Document, place: KeyPath, file: Path) -> None:
    digest = sha256_of(file)
    document.put((*place, "sha256"), digest, document.mark(place))


def _insert_part(document: Document, place: KeyPath, within: tuple[str, ...]) -> None:
    """The workload that a part names, in the place of its name."""
    name = document.get((*place, "workload"))
    if not isinstance(name, str):
        return
    try:
        part = workload_document(name, document.file, within)
    except DescriptionError as error:
        if error.file is not None:
            raise
        raise document.error(error.message, (*place, "workload")) from None
    part.build(WorkloadSpec)
    document.graft((*place, "workload"), part)
    if trace := part.get(("lengths", "trace")):
        _note_digest(document, place, Path(trace))


def _trace_document(name_or_path: str, relative_to: str | Path | None) -> Document:
    path = Path(name_or_path)
    if relative_to is not None and not path.exists():
        path = Path(relative_to).parent / name_or_path
    trace = load_trace(path.absolute() if path.exists() else name_or_path)
    times = "trace" if trace.arrival_s is not None else "poisson"
    name = path.name
    for suffix in reversed(TRACE_SUFFIXES):
        name = name.removesuffix(suffix)
    data = {
        "kind": "workload",
        "name": name,
        "summary": f"the trace {path.name}, {len(trace)} requests",
        "lengths": {"trace": str(trace.path)},
        "arrivals": {"process": times},
    }
    return Document(data, str(path), digest=sha256_of(path))
