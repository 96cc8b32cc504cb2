"""The ODMA paper's table: solve what it leaves open from its baselines, predict the rest.

Each point is a data set (its prompts, and the paper's figures) under one set of assumptions. On the
seeds 0 to 9 the scale of the outputs is solved from static utilisation and the spread of prediction
errors from S3's accuracy; nothing else is fitted. On the seeds from 100 on the rest is predicted:
policies serve the same requests, offered a multiple of the best one's capacity. The `seed` of a
result names its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked, nearest
from policies.allocators.allocator import PolicyOptions
from policies.allocators.registry import POLICIES, PolicySpec
from policies.requests.requests import FloatArray, Requests
from policies.serving import calibration
from policies.serving.calibration import LengthDraw, Solution, TokenLaw
from policies.serving.cluster_options import ClusterSpec
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.analyse.table import Table
from sweeps.plan.experiment import Described, ShownBy, Task, device_of, model_of
from sweeps.plan.paper_findings import DatasetResult, dataset_results

Share = Annotated[float, Field(gt=0, le=1)]

RATE = "makespan_output_tokens_per_s"
"""As the paper has it: output tokens over the whole experiment."""
NODE = 4
"""Cards of the paper's node."""
CALIBRATION_SEEDS = range(10)
EVALUATION_SEED = 100
"""The first of those that are predicted on."""
ODMA, STATIC = "odma", "static"
"""Names of the paper's policy and of its baseline, among those that are served."""


class Published(Strict):
    """Figures of the paper, shares."""

    static_utilization: Share
    """Of KV memory."""
    s3_accuracy: Share
    """Share of requests in the right class."""
    odma_utilization: Share
    """Of KV memory."""
    odma_accuracy: Share
    """Share of requests in the right bucket."""
    throughput_gain: float
    """Of odma over static reservation."""


class Dataset(Strict):
    """Prompts, and what the paper gives for them."""

    name: str
    prompts: TokenLaw
    paper: Published


class Assumption(Strict):
    """What the paper leaves open."""

    name: str
    limit: Annotated[int, Field(ge=64)] = 2048
    """Tokens that static reservation keeps for each request, prompt and output together."""
    shape: str = "castillo"
    """The law of output lengths, up to a scale: one of `shapes`."""
    odma: dict[str, Any] = {}
    """Options of odma that the paper leaves open."""
    load: Annotated[float, Field(gt=0)] = 1.5
    """Requests a second, over the best policy's capacity."""
    cards: Annotated[int, Field(ge=1, le=NODE)] = 1
    """Cards that are simulated, of four that take requests in turn: each has its share of them, and
    of the window and the refresh of the bounds."""
    tensor_parallel: Literal[1, 2, 4] = 1
    """Cards that each replica spans, of the four; the paper says neither."""

    @checked
    def _on_one_node(self) -> None:
        if self.cards * self.tensor_parallel > NODE:
            raise ValueError(f"cards x tensor_parallel: the paper's node has {NODE} cards; got "
                             f"{self.cards} x {self.tensor_parallel}")  # fmt: skip


class OdmaPaperSpec(Described):
    """One data set under one set of assumptions."""

    page: ClassVar[ShownBy] = "sweeps.report.odma_paper_page:account"

    dataset: Dataset
    assumption: Assumption
    shapes: dict[str, TokenLaw]
    """Forms of laws by name."""
    serving: ServingSpec
    """Engine, memory, and odma with the paper's options."""
    rivals: dict[str, PolicySpec]
    """Policies beside odma by their names here, `static` reservation among them. A rival that is
    odma too, with other options, has the same window, refresh and profiled lengths."""
    requests: Annotated[int, Field(ge=1)]
    """For each card, as is the warm-up."""
    warmup_requests: Annotated[int, Field(ge=0)] = 0
    """Served first, and not counted."""

    @checked
    def _it_fits_together(self) -> None:
        if self.assumption.shape not in self.shapes:
            hint = nearest(self.assumption.shape, list(self.shapes))
            raise ValueError(f"assumption.shape: no such shape; {hint}")
        if not _is_odma(self.serving.policy):
            raise ValueError("serving.policy: expected odma; others are rivals")
        if STATIC not in self.rivals:
            raise ValueError("rivals: static is the paper's baseline")
        if ODMA in self.rivals:
            raise ValueError("rivals: odma is serving.policy; another needs a name of its own")
        known = type(self.serving.policy).model_fields
        if unknown := set(self.assumption.odma) - set(known):
            hint = nearest(min(unknown), list(known))
            raise ValueError(f"assumption.odma: no option {min(unknown)!r}; {hint}")

    def seeds(self, replication: int) -> tuple[int, int]:
        return self.seed, EVALUATION_SEED + replication - 1

    def measure(self, task: Task) -> dict[str, Any]:
        return measure(task)

    @classmethod
    def findings(cls, table: Table) -> list[DatasetResult]:
        return dataset_results(table)

    @classmethod
    def rehearsals(cls, experiments: Iterable[OdmaPaperSpec]) -> list[OdmaPaperSpec]:
        """The first experiment of each device and memory fidelity, with a few requests."""
        found: dict[tuple[str, str], OdmaPaperSpec] = {}
        for experiment in experiments:
            small = experiment.model_copy(update={"requests": 20, "warmup_requests": 0})
            key = f"{experiment.device} {experiment.device_set}"
            found.setdefault((key, experiment.serving.memory.fidelity), small)
        return list(found.values())


class PreparedPoint(NamedTuple):
    """What the replications of a point share: the solutions, what each policy is served with, the
    requests of the calibration seeds, which are profiled, and the best one's requests a second."""

    scale: Solution
    spread: Solution
    served: dict[str, ServingSpec]
    profile: Requests
    capacity: float


_PREPARED: dict[str, PreparedPoint] = {}
"""By point, in this process."""


def solve(spec: OdmaPaperSpec) -> tuple[Solution, Solution, list[LengthDraw]]:
    """(scale, spread, draws) on the calibration seeds."""
    drawn = [_draw(spec, number) for number in CALIBRATION_SEEDS]
    paper, limit = spec.dataset.paper, spec.assumption.limit
    scale = calibration.solve_scale(paper.static_utilization, drawn, limit)
    spread = calibration.solve_spread(paper.s3_accuracy, drawn, scale.value, limit)
    return scale, spread, drawn


def measure(task: Task) -> dict[str, Any]:
    """One evaluation seed of one point. Raises DescriptionError."""
    spec = task.experiment
    assert isinstance(spec, OdmaPaperSpec)
    scale, spread, served, profile, capacity = _prepared(spec)
    limit = spec.assumption.limit
    mine = _draw(spec, spec.seeds(task.replication)[1])
    gaps = np.random.default_rng(mine.seed).exponential(1.0, len(mine.shape))
    arrival_s = np.cumsum(gaps) / (spec.assumption.load * capacity)
    found = {
        name: _serve(spec, each, _requests(spec, mine, scale, arrival_s), mine.seed, profile)
        for name, each in served.items()
    }
    odma, static = found[ODMA], found[STATIC]
    own = odma["policy"]
    device = device_of(spec)
    return {
        "scale": scale.value,
        "spread": spread.value,
        "calibrated": {
            "static_utilization": scale.given,
            "s3_accuracy": spread.given,
            "reached": float(scale.reached and spread.reached),
        },
        "s3_accuracy": calibration.s3_accuracy(mine, scale.value, limit, spread.value),
        "capacity_per_s": capacity,
        "card": {"memory": device.memory.name, "peak_gbps": device.peak_gbps},
        **{
            key: {name: value(metrics) for name, metrics in found.items()}
            for key, value in _OF_EACH.items()
        },
        "accuracy": own["bucket_accuracy"],
        "coverage_raw": own["coverage_raw"],
        "coverage_final": own["coverage_final"],
        "migrations": own["migration_rate"],
        "large_share": own["large_share"],
        "throughput_gain": odma[RATE] / static[RATE] - 1,
    }


_OF_EACH: dict[str, Callable[[dict[str, Any]], float]] = {
    "utilization": lambda metrics: metrics["utilization"],
    "throughput": lambda metrics: metrics[RATE],
    "batch": lambda metrics: metrics["batch"],
    "kv_stored_share": lambda metrics: metrics["kv_stored_share"],
    "kv_memory_share": lambda metrics: metrics["limit_share"]["kv_memory"],
    "kv_gbps": lambda metrics: metrics["kv_gbps"],
    "kv_time_share": lambda metrics: metrics["phase_share"]["attention"],
    "compute_share": lambda metrics: metrics["compute_share"],
    "prefill_share": lambda metrics: metrics["phase_share"]["prefill"],
}
"""Metrics that each policy has, from what serving gives."""


def _prepared(spec: OdmaPaperSpec) -> PreparedPoint:
    key = spec.model_dump_json(exclude={"replications"})
    if key not in _PREPARED:
        scale, spread, drawn = solve(spec)
        served = _serving(spec, spread)
        each = [_requests(spec, one, scale, np.zeros(len(one.shape))) for one in drawn]
        profile = Requests(
            *(
                np.concatenate([getattr(one, name) for one in each])
                for name in ("arrival_s", "prompt_tokens", "output_tokens")
            )
        )
        capacity = _capacity(spec, served, each[0], drawn[0].seed, profile)
        _PREPARED[key] = PreparedPoint(scale, spread, served, profile, capacity)
    return _PREPARED[key]


def _draw(spec: OdmaPaperSpec, number: int) -> LengthDraw:
    shape = spec.shapes[spec.assumption.shape]
    count = spec.assumption.cards * (spec.requests + spec.warmup_requests)
    return calibration.draw(spec.dataset.prompts, shape, count, (spec.seed, number))


def _requests(
    spec: OdmaPaperSpec, drawn: LengthDraw, scale: Solution, arrival_s: FloatArray
) -> Requests:
    outputs = drawn.output_tokens(scale.value, spec.assumption.limit)
    return Requests(arrival_s, drawn.prompt_tokens, outputs)


def _serving(spec: OdmaPaperSpec, spread: Solution) -> dict[str, ServingSpec]:
    """What each policy is served with, by its name."""
    limit, base = spec.assumption.limit, spec.serving
    common = {
        "engine": base.engine.model_copy(update={"max_tokens": limit, "max_model_len": limit}),
        "predictor": calibration.error_of(spread.value, limit),
        "cluster": ClusterSpec(cards=spec.assumption.cards),
        "tensor_parallel": spec.assumption.tensor_parallel,
    }
    options = {**base.policy.model_dump(), **spec.assumption.odma}
    policies = {ODMA: type(base.policy).model_validate(options), **spec.rivals}
    return {
        name: base.model_copy(update={**common, "policy": _on_a_card(spec, each)})
        for name, each in policies.items()
    }


def _is_odma(policy: PolicyOptions) -> bool:
    """Whether it is the paper's policy, or that with other defaults."""
    return ODMA in POLICIES and ODMA in (policy.name, policy.variant_of)


def _on_a_card(spec: OdmaPaperSpec, policy: PolicySpec) -> PolicySpec:
    """odma with the share of the window and of the refresh that its requests have; others as they
    are."""
    if not _is_odma(policy):
        return policy
    simulated = spec.assumption.cards * spec.assumption.tensor_parallel
    share = {name: getattr(policy, name) * simulated // NODE for name in ("window", "refresh")}
    return policy.model_copy(update=share)


def _capacity(
    spec: OdmaPaperSpec, served: dict[str, ServingSpec], requests: Requests, seed: int,
    profile: Requests,
) -> float:  # fmt: skip
    """The best policy's requests a second with all there at once, on a calibration seed and memory
    of a fixed efficiency."""
    rates = []
    for each in served.values():
        memory = each.memory.model_copy(update={"fidelity": "analytic"})
        cheap = each.model_copy(update={"memory": memory})
        rates.append(_serve(spec, cheap, requests, seed, profile)["requests_per_s"])
    return max(rates)


def _serve(
    spec: OdmaPaperSpec, served: ServingSpec, requests: Requests, seed: int, profile: Requests
) -> dict[str, Any]:
    result = serve(
        device_of(spec), model_of(spec), served, requests, seed=seed, profile=profile,
        warmup_requests=spec.assumption.cards * spec.warmup_requests,
    )  # fmt: skip
    return result.metrics
