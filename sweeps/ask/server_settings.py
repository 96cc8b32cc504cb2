"""Settings of a server that can be tuned: values, flags, and the experiment they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from hwmodel.description.description import DescriptionError, Document, Mark, nearest
from hwmodel.description.yaml_reader import parse_assignment
from policies.requests.slo import Slo
from policies.serving.serving_spec import ServingSpec
from sweeps.ask.question import (
    Count,
    FormatName,
    ModelName,
    Question,
    ServedDevice,
    Several,
    SloText,
    Text,
    Typed,
    WorkloadName,
)
from sweeps.ask.served import slo_of
from sweeps.plan.experiment import ExperimentSpec, device_of, model_of
from sweeps.plan.layout import experiment_with

REQUESTS, WARMUP, REPLICATIONS = 400, 100, 5
"""Of each goodput (assumed): settings that differ by a tenth are told apart."""
LIKE = "0.33"
"""The version of vLLM whose defaults are the base."""
ENGINE, POLICY = "serving.engine.", "serving.policy."


class Factor(NamedTuple):
    """A setting. levels: what is tried, other than the base's; vllm, sglang: flags, with {}, or
    empty where that server has none."""

    name: str
    path: str
    vllm: str
    sglang: str
    levels: tuple[Any, ...] = ()
    times: tuple[float, ...] = ()
    """Instead of levels: multiples of the base's."""
    relaid: bool = False
    """Whether it changes where KV lies, or how much of it there is on a card."""

    def tried(self, base: Any) -> list[Any]:
        """Values beside the base's."""
        found = [round(each * base) for each in self.times] or [*self.levels]
        return [each for each in found if each != base]

    def changes(self, value: Any) -> dict[str, Any]:
        """Path of the experiment -> value."""
        if self.name == "caching":  # vLLM has one switch for both
            return {self.path: value, f"{POLICY}cached_recompute": value}
        return {self.path: value}


FACTORS = (
    Factor("block", f"{POLICY}block", "--block-size {}", "--page-size {}", (16, 32, 64, 128),
           relaid=True),
    Factor("kv", "serving.kv", "--kv-cache-dtype {}", "--kv-cache-dtype {}", ("fp8_e4m3",),
           relaid=True),
    Factor("chunk", f"{ENGINE}max_num_batched_tokens", "--max-num-batched-tokens {}",
           "--chunked-prefill-size {}", times=(0.25, 0.5, 2, 4)),
    Factor("caching", f"{POLICY}prefix_caching", "--{}enable-prefix-caching",
           "--disable-radix-cache", (True, False)),
    Factor("sequences", f"{ENGINE}max_num_seqs", "--max-num-seqs {}",
           "--max-running-requests {}", times=(0.25, 0.5, 2)),
    Factor("watermark", f"{POLICY}watermark", "--watermark {}", "", (0.02, 0.05, 0.1)),
    Factor("cards", "serving.tensor_parallel", "--tensor-parallel-size {}", "--tp-size {}",
           times=(2, 4), relaid=True),
)  # fmt: skip
"""Flags: vLLM's `EngineArgs` and SGLang's `ServerArgs`, as their documentation has them."""


class SettingsQuestion(Question):
    """A server that is started as vLLM starts it, and what is tried beside that."""

    device: ServedDevice
    """Accelerator that serves: a shipped name or a YAML file."""
    model: ModelName
    """Model that is served: a shipped name or a YAML file."""
    workload: WorkloadName
    """Requests that come: a shipped workload, a YAML file, or a trace."""
    slo: SloText
    """What 9 of 10 requests attain."""
    weights: FormatName | None = None
    """Number format of the weights (default: the model's)."""
    cards: Count = 1
    """Cards that share the model."""
    only: Annotated[tuple[Text, ...], Several, Typed("block,kv")] = ()
    """Settings to try: block, kv, chunk, caching, sequences, watermark, cards (default: all)."""
    fidelity: Literal["sampled", "analytic"] = "sampled"
    """How memory that is simulated is seen; analytic: blocks cost nothing."""
    requests: Count = REQUESTS
    """Requests of a setting in each replication."""
    replications: Annotated[int, Field(ge=2)] = REPLICATIONS
    """Replications of each setting."""

    @property
    def objective(self) -> Slo:
        """Raises DescriptionError."""
        return slo_of(self.slo)

    def factors(self) -> list[Factor]:
        """Raises DescriptionError for a name that is none."""
        known = {each.name: each for each in FACTORS}
        for name in self.only:
            if name not in known:
                raise DescriptionError(f"no {name!r}; {nearest(name, list(known))}", "--only")
        return [each for each in FACTORS if not self.only or each.name in self.only]

    def experiment(self, changes: Mapping[str, Any] | None = None) -> ExperimentSpec:
        """What is served under changes of the base. Raises DescriptionError."""
        serving = {
            "engine": {"name": "v1", "like": LIKE}, "policy": {"name": "paged"},
            "weights": self.weights, "tensor_parallel": self.cards,
        }  # fmt: skip
        slo = self.objective
        goodput = {"ttft": f"{slo.ttft}ns", "tpot": f"{slo.tpot}ns", "attainment": slo.attainment}
        base = {
            "device": self.device, "model": self.model, "workload": self.workload,
            "serving": serving, "requests": self.requests, "warmup_requests": WARMUP,
            "replications": 2 * self.replications, "load": {"goodput": goodput},
        }  # fmt: skip
        document = Document({"base": base}, "size settings")
        given = [(".".join(map(str, path)), value, Mark("--set"))
                 for path, value in map(parse_assignment, self.set)]  # fmt: skip
        own = [(path, value, Mark("size settings")) for path, value in (changes or {}).items()]
        found = experiment_with(document, ExperimentSpec, [*given, *own])
        assert isinstance(found, ExperimentSpec)
        return found


def value_text(name: str, value: Any) -> str:
    """`chunk 1024`, `caching off`, `4 cards`."""
    if name == "caching":
        return f"caching {'on' if value else 'off'}"
    return f"{value} cards" if name == "cards" else f"{name} {value}"


def settings_of(experiment: ExperimentSpec) -> dict[str, Any]:
    """Value of each factor, by name. Raises DescriptionError."""
    spec = experiment.serving.on_device(device_of(experiment), model_of(experiment))
    found = {each.name: _at(spec, each.path) for each in FACTORS}
    return found | {"kv": spec.kv or "auto"}


def _at(spec: ServingSpec, path: str) -> Any:
    value: Any = spec
    for key in path.split(".")[1:]:
        value = getattr(value, key)
    return value


def changed(question: SettingsQuestion, values: Mapping[str, Any]) -> ExperimentSpec:
    """The experiment under these values by factor. Raises DescriptionError."""
    known = {each.name: each for each in FACTORS}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        changes |= known[name].changes(value)
    return question.experiment(changes)
