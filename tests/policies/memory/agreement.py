"""How well sampled memory stands for full: KV-read times of the same steps under both.

A run is served on `sampled` memory; on steps drawn at random one whole layer of the attention is
simulated beside it, and its time held against the one that the run worked with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.probe import Probe
from policies.memory.probe_cache import simulate_once
from policies.memory.sampling import SampledMemory
from policies.memory.step_times import Efficiency
from policies.requests.requests import FloatArray, Requests
from policies.serving.building import admissible, build_replica
from policies.serving.metrics import Metrics
from policies.serving.run import Berth, Run
from policies.serving.served_stream import stream_of
from policies.serving.serving_spec import ServingSpec
from policies.transfers.fabric import Links
from tests.policies.small import serve_alone


class Agreement(NamedTuple):
    """Over the drawn steps."""

    steps: int
    time_ratio: float
    """KV-read time of all of them, sampled over full."""
    bandwidth_ratio: float
    """Mean effective KV bandwidth, sampled over full."""
    scatter: float
    """Root mean square of the relative error of single steps."""
    kv_share: float
    """Share of the run's step time that is attention."""


class _Compared(SampledMemory):
    """Sampled memory that simulates a whole layer of some steps beside."""

    drawn: set[int]
    """Which steps, counted from the first, are compared."""

    def begin(self, memory: SampledMemory, drawn: set[int], probe: Probe) -> None:
        self.__dict__.update(memory.__dict__)
        self.drawn, self.beside = drawn, probe
        self.rows: list[tuple[float, float, float]] = []

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        later = [step for step in self.drawn if step > self._steps]
        return min(super().rounds_to_probe, min(later, default=self._steps + 1) - self._steps)

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        efficiency = super().observe(step, engine)
        if self._steps in self.drawn and len(step.decode):
            layer = self._steps % self._layout.layers
            stream = self._streams.layer(step, engine.allocator, "attention", layer)
            share, _ = self.beside.whole([stream])
            self.rows.append((float(stream.size.sum()), efficiency.attention, share))
        return efficiency


def compare(
    device_name: str, model_name: str, spec: ServingSpec, requests: Requests, steps: int, seed: int
) -> Agreement:
    """Serve `requests` and compare `steps` steps, drawn from the last half of the run.

    spec: with sampled memory. Raises DescriptionError where the run cannot be.
    """
    made = _run(device_name, model_name, spec, requests, seed, set())
    count = made.metrics.sums.steps
    rng = np.random.default_rng(seed)
    chosen = rng.choice(np.arange(count // 2, count), min(steps, count // 2), replace=False)
    run = _run(device_name, model_name, spec, requests, seed, set(chosen.tolist()))
    rows = np.array(run.memory.rows)
    moved, sampled, full = rows.T
    error = full / sampled - 1  # of the time
    shares = run.metrics.sums.phase_s["attention"] / run.metrics.sums.seconds
    return Agreement(
        len(rows),
        float((moved / sampled).sum() / (moved / full).sum()),
        float(_mean(sampled) / _mean(full)),
        float(np.sqrt((error**2).mean())),
        float(shares),
    )


class _Run(NamedTuple):
    memory: _Compared
    metrics: Metrics


def _run(
    device_name: str, model_name: str, spec: ServingSpec, requests: Requests, seed: int,
    drawn: set[int],
) -> _Run:  # fmt: skip
    device, model = load_device(device_name), load_model(model_name)
    most = spec.engine.max_tokens or np.iinfo(np.int64).max
    outputs = np.minimum(requests.output_tokens, most)
    metrics = Metrics(requests, outputs, 0)
    stream = stream_of(spec, requests, seed, 0)
    run = Run(device, model, spec, stream, metrics, seed)
    replica = build_replica(run, Berth(seed, Links(run.fabric)))
    memory = _Compared.__new__(_Compared)
    assert isinstance(replica.memory, SampledMemory)
    memory.begin(replica.memory, drawn, Probe(device, spec.memory, simulate_once))
    replica.memory = memory
    admitted = admissible(spec, replica.engine.allocator, requests, outputs)
    replica.arrive(admitted.tolist(), requests.arrival_s[admitted].tolist())
    serve_alone(replica)
    return _Run(memory, metrics)


def _mean(values: FloatArray) -> float:
    return float(values.mean())
