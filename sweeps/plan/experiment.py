"""One point of a run: hardware, a model, and what is measured; spec in, metrics out.

`Described` is what every kind of point has and does; `ExperimentSpec` serves requests.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Document, Strict, checked
from hwmodel.description.files import by_contents
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load, override
from hwmodel.description.yaml_writer import plain, to_yaml_flow
from hwmodel.kernel.shapes import kernel_of
from hwmodel.specs import number_format
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.allocators.capabilities import Learns, offers
from policies.allocators.registry import POLICIES
from policies.memory.memory_model import refuse_given
from policies.predictors.predictor import PredictorSpec
from policies.requests.arrivals import Arrivals
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.cells import ServingResult, rows_of
from policies.serving.recorder import Recorder
from policies.serving.serving import serve, serve_cell
from policies.serving.serving_spec import ServingSpec
from policies.serving.simulation import Watcher
from sweeps.analyse.figures import BACKLOG, CAPACITY_RATE, GOODPUT, OVERLOADED, THROUGHPUT
from sweeps.analyse.objective import SERVED, Objective
from sweeps.analyse.table import Table
from sweeps.plan.logs import LogKind, recorder
from sweeps.plan.saturation import ALL_AT_ONCE, Capacity, Pace, Served, average, capacity

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_REHEARSAL = {
    "requests": 4, "warmup_requests": 0, "arrivals": ALL_AT_ONCE, "load": None, "latency_at": None,
}  # fmt: skip
LOCKSTEP = 0.9
"""Answers that must be measured where all are of one length (assumed: one, but for rounding)."""
CALIBRATION = 0
"""The replication that is calibrated on where all share one. The measured ones count from 1, and -r
is what r is calibrated on where each has its own."""


class ResultRefused(Exception):
    """A result that is too uncertain to count, through no fault of the input."""

    exit_code = 1


class OfferedLoad(Strict):
    """How many requests a second are offered: outright, as a multiple of a measured capacity, or
    as many as an objective allows."""

    rate_per_s: Positive | None = None
    """Requests a second."""
    relative: Positive | None = None
    """Times the capacity."""
    of: Literal["best", "own"] = "best"
    """`best`: the best capacity along the compared axis; `own`: this point's. See `capacity`."""
    goodput: Slo | None = None
    """Each point is offered the largest load that attains this. See `goodput`."""

    @checked
    def _one_of_three(self) -> None:
        given = (self.rate_per_s, self.relative, self.goodput)
        if sum(value is not None for value in given) != 1:
            raise ValueError("expected one of rate_per_s, relative and goodput")


class Task(NamedTuple):
    """One replication of one point at a known rate."""

    experiment: Any
    replication: int
    rate_per_s: float | None
    logs: str | None = None
    """How the paths of its logs begin; None writes none."""
    cell: int | None = None
    """Of a fleet: this cell alone, whose result is one for `merge`. None: all of it."""


ShownBy = Any
"""What shows findings, a function of them that gives a `sweeps.report.account:Account`: itself, or
its `module:name`."""


class NamedDescription(NamedTuple):
    """A description that an experiment names."""

    key: str
    """Of the experiment, where it is named."""
    folder: str
    """Of the library."""
    name: str
    read: Callable[[], dict[str, Any]]
    """What it means, with its SHA-256. Raises DescriptionError."""


class Described(Strict):
    """What every kind of experiment has: hardware, a model, and how often it is repeated."""

    policy_path: ClassVar[tuple[str, ...]] = ("serving", "policy")
    """Where the KV policy stands; `policy` is short for it."""
    objective: ClassVar[Objective | None] = None
    """What competitors are compared by where a sweep names nothing; None: no one metric."""
    page: ClassVar[Any] = ""
    """What shows a run of this measure; empty: as any sweep."""

    device: str
    device_set: dict[str, Any] = {}
    """Overrides of the device's descriptions, by dotted path or nested."""
    model: str
    model_set: dict[str, Any] = {}
    """Overrides of the model."""
    replications: Count = 3
    seed: Annotated[int, Field(ge=0)] = 1

    def measure(self, task: Task) -> dict[str, Any]:
        """One replication of this experiment: metrics by name. Raises DescriptionError."""
        raise NotImplementedError

    @classmethod
    def findings(cls, table: Table) -> Any:
        """What a run of this measure finds beside the verdicts on its groups, as data of its own;
        None: what these say together."""
        return None

    def parts(self, task: Task) -> list[Task]:
        """What workers may do apart of this task, whose results `merge` takes; one: nothing."""
        return [task]

    def merge(self, task: Task, parts: list[Any]) -> dict[str, Any]:
        """The metrics of a task of several parts, whose results these are."""
        raise NotImplementedError

    @classmethod
    def rehearsals(cls, experiments: Iterable[Any]) -> Sequence[Described]:
        """Small experiments that show what cannot work at all, and compile the kernels."""
        return list(experiments)[:1]

    def refuse(self) -> None:
        """Raise DescriptionError for what is seen not to work before anything is measured."""

    @property
    def kernel(self) -> str | None:
        """The kernel of channels that its measuring compiles (`hwmodel.kernel.shapes`); None: none
        is known. Raises DescriptionError."""
        return None

    def seeds(self, replication: int) -> tuple[int, ...]:
        """The seed of a replication, or of what it is calibrated on."""
        return (self.seed, replication) if replication >= 0 else (self.seed, -replication, 1)

    def calibrated_on(self, replication: int) -> int:
        """The replication whose requests give this one's capacity and profile."""
        return CALIBRATION

    @property
    def offered(self) -> OfferedLoad | None:
        """The load, where there is one."""
        return None

    def sources(self) -> Iterator[NamedDescription]:
        """The descriptions it names."""
        name = _named(self.device, self.device_set)
        yield NamedDescription("device", "devices", name, lambda: _device_record(device_of(self)))
        name = _named(self.model, self.model_set)
        yield NamedDescription(
            "model", "models", name, lambda: _hashed(model_of(self).model_dump(mode="json"))
        )
        for name, document in number_format.documents(self.formats()):
            yield NamedDescription("model", "formats", name, partial(_document_record, document))

    def formats(self) -> list[str]:
        """The formats that weights and KV are stored in. Raises DescriptionError."""
        model, serving = model_of(self), getattr(self, "serving", None)
        if isinstance(serving, ServingSpec):
            model = model.stored_as(serving.weights, serving.kv)
        return [model.weights, model.kv]

    def documents(self) -> list[Document]:
        """The descriptions beside the device whose assumed numbers it rests on."""
        formats = [document for _, document in number_format.documents(self.formats())]
        return [load(find("models", self.model)), *formats]


class ExperimentSpec(Described):
    """What one point serves, on what, and how it is measured."""

    workload: str
    """A shipped workload, a workload file, or a trace file (.csv, .csv.gz)."""
    workload_set: dict[str, Any] = {}
    """Overrides of the workload."""
    arrivals: Arrivals | None = None
    """When requests come, where not as the workload says."""
    serving: ServingSpec
    load: OfferedLoad | None = None
    """None keeps a trace's own times, or belongs to arrivals all at once or of a closed loop."""
    calibration: Literal["replication", "shared"] = "replication"
    """Which requests a relative load's capacity is measured on, and a policy that learns profiles:
    others for each replication, or the same for all. Then intervals lack what these draw."""
    slo: Slo | None = None
    """What `slo.attainment` of the metrics is about; None: the load's goodput, where it has one."""
    latency_at: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Where the load is above capacity: share of this point's rate at saturation at which a second
    pass measures latencies, with the efficiencies of memory that the first one found."""
    requests: Count
    """Requests that are measured, after `warmup_requests`."""
    warmup_requests: Annotated[int, Field(ge=0)] = 0
    """Served first, and not counted."""
    logs: list[LogKind] = []
    """What each replication writes into the run directory beside its result: a row a request, a row
    a stretch of steps, a trace for ui.perfetto.dev."""

    objective: ClassVar[Objective | None] = SERVED

    @checked
    def _offers_what_arrives(self) -> None:
        process = None if self.arrivals is None else self.arrivals.process
        if process in ("all_at_once", "closed") and self.load is not None:
            raise ValueError(
                f"load: arrivals that are {process} have no rate; load: null, or other arrivals"
            )

    @checked
    def _saturates(self) -> None:
        if self.latency_at is not None and self.load is not None and self.load.goodput:
            raise ValueError("latency_at: a load by goodput is below capacity already")

    def measure(self, task: Task) -> dict[str, Any]:
        """As `run_task`. Raises ResultRefused as well."""
        if task.cell is not None:
            return run_cell(task)
        return self._refused(self._beside_capacity(run_task(task)))

    def parts(self, task: Task) -> list[Task]:
        whole = self.logs or self.latency_at is not None
        cells = 1 if whole else self.serving.cluster.cells
        return [task] if cells == 1 else [task._replace(cell=cell) for cell in range(cells)]

    def merge(self, task: Task, parts: list[Any]) -> dict[str, Any]:
        return self._refused(self._beside_capacity(run_task(task, parts)))

    def _beside_capacity(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """The metrics; of a goodput with the capacity, above which it was not searched."""
        if GOODPUT in metrics:
            metrics[CAPACITY_RATE] = capacity_task(Task(self, CALIBRATION, None))
        return metrics

    def _refused(self, found: dict[str, Any]) -> dict[str, Any]:
        """The metrics, unless sampling leaves them too uncertain, or clients who go in lockstep."""
        memory, workload = self.serving.memory, workload_of(self)
        lockstep = workload.lengths.constant is not None and workload.arrivals.clients is not None
        answer_s = (found["latency_s"]["mean"] - found["ttft_s"]["mean"]) if lockstep else 0.0
        if found["steady_s"] < LOCKSTEP * answer_s:
            clients = workload.arrivals.clients or 1
            raise ResultRefused(
                f"answers of one length keep {clients} clients in lockstep, and less than one of"
                f" {answer_s:.3g} s is measured: expected {4 * clients} requests, or another"
                f" multiple of {clients}, after a warm-up of {clients} or a multiple"
            )
        if (error := found["memory"].get("throughput_ci95") or 0.0) > memory.refuse:
            raise ResultRefused(
                f"sampled memory leaves the throughput uncertain by {error:.0%}, more than"
                f" {memory.refuse:.0%}: --set serving.memory.max_probes={4 * memory.max_probes},"
                " or more requests"
            )
        return found

    @classmethod
    def rehearsals(cls, experiments: Iterable[ExperimentSpec]) -> list[ExperimentSpec]:
        """Each with a few requests and memory of a given efficiency, those that come to the same
        once; memory that is simulated is tried on the first of each kernel: it costs seconds.

        Raises DescriptionError where a trace is too short for the last replication."""
        found: dict[str, ExperimentSpec] = {}
        for experiment in experiments:
            waiting = experiment.model_copy(update={"arrivals": ALL_AT_ONCE})
            requests_of(waiting, experiment.replications, None, workload_of(waiting))
            small = with_memory(experiment.model_copy(update=_REHEARSAL), refuse=math.inf)
            small = small.model_copy(update={"serving": small.serving.of_few_cards})
            found.setdefault(f"{small.serving.memory.fidelity} {small.kernel}", small)
            cheap = with_memory(small, fidelity="analytic", efficiency=1.0)
            found.setdefault(cheap.model_dump_json(exclude={"seed", "replications"}), cheap)
        return list(found.values())

    def refuse(self) -> None:
        device = device_of(self)
        if device.given is None or device.given.flash is None:  # flash is never simulated
            refuse_given(self.serving.memory, device)

    @property
    def kernel(self) -> str | None:
        if self.serving.memory.efficiency is not None:
            return None
        return _kernel(self.device, tuple(assignments(self.device_set)))

    @property
    def offered(self) -> OfferedLoad | None:
        return self.load

    def calibrated_on(self, replication: int) -> int:
        return CALIBRATION if self.calibration == "shared" else -abs(replication)

    def sources(self) -> Iterator[NamedDescription]:
        yield from super().sources()
        name = _named(self.workload, self.workload_set)
        yield NamedDescription("workload", "workloads", name, lambda: _workload_record(self))
        for key, name in self.serving.other_devices.items():
            read = partial(_device_record, load_device(name))
            yield NamedDescription(f"serving.pools.{key}.device", "devices", name, read)
        if (file := self.serving.predictor.file) is not None:
            read = partial(_predictor_record, self.serving.predictor)
            yield NamedDescription("serving", "predictors", file, read)

    def documents(self) -> list[Document]:
        return [*super().documents(), workload_document(self.workload)]


def measure(task: Task) -> dict[str, Any]:
    """One replication of an experiment of any kind. Raises DescriptionError, also where a measure
    does not give what its competitors are compared by."""
    experiment = task.experiment
    found: dict[str, Any] = experiment.measure(task)
    objective = getattr(experiment, "objective", None)  # a fleet that is sized has none
    if objective is not None and task.cell is None:
        value: Any = found
        for key in objective.metric.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            name = getattr(experiment, "name", "of served requests")
            given = "no" if value is None else f"{value!r} as"
            raise DescriptionError(
                f"measure {name}: {given} {objective.metric}: expected a finite number"
            )
    return found


def assignments(overrides: dict[str, Any], prefix: str = "") -> list[str]:
    """Nested overrides as `dotted.path=value` assignments."""
    found = []
    for key, value in overrides.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            found += assignments(value, f"{path}.")
        else:
            found.append(f"{path}={to_yaml_flow(value)}")
    return found


def device_of(experiment: Described) -> Device:
    """The device with its overrides. Raises DescriptionError."""
    return _device(experiment.device, tuple(assignments(experiment.device_set)))


def model_of(experiment: Described) -> TransformerSpec:
    """The model with its overrides. Raises DescriptionError."""
    return _model(experiment.model, tuple(assignments(experiment.model_set)))


def workload_of(experiment: ExperimentSpec) -> WorkloadSpec:
    """The workload with its overrides. Raises DescriptionError."""
    workload = _workload(experiment.workload, tuple(assignments(experiment.workload_set)))
    if experiment.arrivals is not None:
        workload = workload.model_copy(update={"arrivals": experiment.arrivals})
    return workload


_device = by_contents(load_device)
_model = by_contents(load_model)


@by_contents
def _kernel(device: str, overrides: tuple[str, ...]) -> str | None:
    described = _device(device, overrides)
    return None if described.given is not None else kernel_of(described.memory)


@by_contents
def _workload(name_or_path: str, overrides: tuple[str, ...]) -> WorkloadSpec:
    document = workload_document(name_or_path)
    for assignment in overrides:
        override(document, assignment)
    return document.build(WorkloadSpec)


def _named(name: str, overrides: dict[str, Any]) -> str:
    return " ".join([name, *assignments(overrides)])


def _device_record(device: Device) -> dict[str, Any]:
    return {"sha256": device.digest, **plain(device.config)}


def _workload_record(experiment: ExperimentSpec) -> dict[str, Any]:
    workload = workload_of(experiment.model_copy(update={"arrivals": None}))
    return _hashed(workload.model_dump(mode="json", exclude_none=True), workload.lengths.trace)


def _document_record(document: Document) -> dict[str, Any]:
    return {"sha256": document.digest, **plain(document.data)}


def _predictor_record(predictor: PredictorSpec) -> dict[str, Any]:
    contents = predictor.contents()
    return _hashed(contents, predictor.file if predictor.timed or not contents else None)


def _hashed(data: Any, file: str | None = None) -> dict[str, Any]:
    """A description and its SHA-256, or that of the file it stands for."""
    data = plain(data)
    text = json.dumps(data, sort_keys=True).encode() if file is None else Path(file).read_bytes()
    return {"sha256": hashlib.sha256(text).hexdigest(), **data}


def seed_of(experiment: Described, replication: int) -> tuple[int, ...]:
    """The seed of a replication: the same in every point, so that differences are paired."""
    return experiment.seeds(replication)


def serving_seed(experiment: Described, replication: int) -> int:
    """The seed of what serving draws."""
    seed = np.random.SeedSequence(seed_of(experiment, replication)).generate_state(1)
    return int(seed[0])


def requests_of(
    experiment: ExperimentSpec, replication: int, rate_per_s: float | None, workload: WorkloadSpec
) -> Requests:
    """Warm-up and measured requests of a replication.

    Replications of a trace are consecutive stretches of it, each scaled to the rate, and calibrated
    on themselves: a stretch of another would make the two dependent.
    """
    count = experiment.warmup_requests + experiment.requests
    seed = seed_of(experiment, replication)
    return generate(workload, count, rate_per_s, seed, stretch=max(abs(replication) - 1, 0))


def run_cell(task: Task, watchers: Iterable[Watcher] = ()) -> Any:
    """What one cell of a fleet makes of its part of a replication; watchers: as of `serve`. Raises
    DescriptionError."""
    experiment, replication = task.experiment, task.replication
    assert task.cell is not None
    requests = requests_of(experiment, replication, task.rate_per_s, workload_of(experiment))
    return serve_cell(
        device_of(experiment), model_of(experiment), experiment.serving, requests, task.cell,
        seed=serving_seed(experiment, replication), warmup_requests=experiment.warmup_requests,
        profile=_profile(experiment, replication, requests), watchers=watchers,
    )  # fmt: skip


def run_task(task: Task, cells: list[ServingResult] | None = None) -> dict[str, Any]:
    """Serve one replication and return its metrics. `cells`: of a fleet, what `run_cell` gave for
    each. Raises DescriptionError."""
    experiment = task.experiment
    requests = requests_of(experiment, task.replication, task.rate_per_s, workload_of(experiment))
    logs = recorder(experiment.logs, task.logs, _cut(experiment, requests))
    result = serve_requests(experiment, task.replication, requests, logs, cells)
    metrics = {**result.metrics, **_attainment(experiment, requests, result)}
    if experiment.load is not None and experiment.load.goodput and task.rate_per_s is not None:
        metrics[GOODPUT] = task.rate_per_s
    return metrics | _below_capacity(task, requests, metrics)


def _below_capacity(task: Task, requests: Requests, metrics: dict[str, Any]) -> dict[str, Any]:
    """Latencies at `latency_at` of the rate at saturation, where the run was saturated: a second
    pass over the same requests, later. Raises DescriptionError."""
    experiment = task.experiment
    if experiment.latency_at is None or metrics[BACKLOG] < OVERLOADED:
        return {}
    workload = workload_of(experiment)
    if workload.arrivals.process == "all_at_once":
        raise DescriptionError("latency_at needs arrivals that have a rate; got all_at_once")
    counted = _cut(experiment, requests)[experiment.warmup_requests :]
    each = float((counted.output_tokens * counted.samples).mean())
    rate_per_s = experiment.latency_at * metrics[THROUGHPUT] / each
    later = requests_of(experiment, task.replication, rate_per_s, workload)
    cheap = with_memory(experiment, fidelity="analytic", **metrics["memory"]["efficiency"])
    result = serve_requests(cheap, task.replication, later, None)
    names = ("ttft_s", "tpot_s", "latency_s", BACKLOG)
    found = {"share": experiment.latency_at, "rate_per_s": rate_per_s}
    found |= {name: result.metrics[name] for name in names}
    if slo := _attainment(cheap, later, result):
        found |= slo | {"goodput_per_s": rate_per_s * slo["slo"]["attainment"]}
    return {"at_share": found}


def serve_requests(
    experiment: ExperimentSpec, replication: int, requests: Requests, logs: Recorder | None,
    cells: list[ServingResult] | None = None, watchers: Iterable[Watcher] = (),
) -> ServingResult:  # fmt: skip
    """Serve the requests of a replication, unless `cells` did; watchers: as of `serve`. Raises
    DescriptionError."""
    return serve(
        device_of(experiment), model_of(experiment), experiment.serving, requests,
        seed=serving_seed(experiment, replication), warmup_requests=experiment.warmup_requests,
        recorder=logs, profile=_profile(experiment, replication, requests), cells=cells,
        watchers=watchers,
    )  # fmt: skip


def _profile(experiment: ExperimentSpec, replication: int, requests: Requests) -> Requests | None:
    """Earlier requests that a policy may have profiled: as many as the warm-up, and the first, of
    what the replication is calibrated on; of a trace, the warm-up itself. None without a
    warm-up."""
    count = experiment.warmup_requests
    if not count or not offers(POLICIES[experiment.serving.policy.name], Learns):
        return None
    workload = workload_of(experiment.model_copy(update={"arrivals": ALL_AT_ONCE}))
    if workload.lengths.trace is None:
        requests = requests_of(experiment, experiment.calibrated_on(replication), None, workload)
    return requests[:count]


def _cut(experiment: ExperimentSpec, requests: Requests) -> Requests:
    """The requests with their outputs as the engine cuts them."""
    return replace(requests, output_tokens=experiment.serving.engine.cut(requests.output_tokens))


def _attainment(
    experiment: ExperimentSpec, requests: Requests, result: ServingResult
) -> dict[str, Any]:
    """The share of the measured requests that attain the objective, where there is one."""
    slo = experiment.slo or (experiment.load.goodput if experiment.load else None)
    if slo is None:
        return {}
    outputs = _cut(experiment, requests).output_tokens
    attained = slo.attained(result.arrival_s, result.first_token_s, result.finish_s, outputs)[
        experiment.warmup_requests :
    ]
    found = {"ttft_s": slo.ttft * 1e-9, "tpot_s": slo.tpot * 1e-9}
    return {"slo": {**found, "attainment": float(attained.mean())}}


def with_memory(experiment: ExperimentSpec, **changes: Any) -> ExperimentSpec:
    """The experiment with these fields of `serving.memory` changed."""
    memory = experiment.serving.memory.model_copy(update=changes)
    serving = experiment.serving.model_copy(update={"memory": memory})
    return experiment.model_copy(update={"serving": serving})


def capacity_task(task: Task) -> float:
    """Requests a second at which what waits does not grow. Raises DescriptionError."""
    return capacity_of(task).per_s


def capacity_of(task: Task) -> Capacity:
    """The capacity (`sweeps.plan.saturation`) of the task's experiment with analytic memory, on
    requests of its replication: at first as many as it measures. Raises DescriptionError."""
    experiment, replication = with_memory(task.experiment, fidelity="analytic"), task.replication
    workload = average(workload_of(experiment))
    device, model, serving = device_of(experiment), model_of(experiment), experiment.serving

    def draw(count: int, arrivals: Arrivals) -> Requests:
        every = workload.model_copy(update={"arrivals": arrivals})
        stretch = max(abs(replication) - 1, 0)
        seed = seed_of(experiment, replication)
        return _cut(experiment, generate(every, count, None, seed, stretch))

    def serve_all(requests: Requests, pace: Pace) -> Served:
        profile = _profile(experiment, replication, requests)
        seed, cells = serving_seed(experiment, replication), serving.cluster.cells
        if cells == 1:
            result = serve(
                device, model, serving, requests, seed=seed, profile=profile, watchers=[pace]
            )
            return Served(requests, result)
        own = requests.take(rows_of(serving, requests, 0))
        result = serve_cell(
            device, model, serving, requests, 0, seed=seed, profile=profile, watchers=[pace]
        )
        return Served(own, result, cells)

    first = experiment.warmup_requests + experiment.requests
    entry = serving.pools.prefill.replicas if serving.pools else serving.cluster.cards
    return capacity(serve_all, draw, first, entry)
