"""What every question about serving a load is asked with, and the target that follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from hwmodel.description.description import DescriptionError, Document, dotted
from hwmodel.description.yaml_reader import parse_assignment
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import PolicyOptions
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.serving_spec import ServingSpec
from sweeps.ask.question import Count, FormatName, ModelName, Question, Text, Typed, WorkloadName
from sweeps.ask.sizing_runs import Target, mean_output
from sweeps.run.capacity import answered
from sweeps.run.executor import worker_count
from sweeps.run.progress import Progress

PATIENT = "1000000s"
_PATIENT_NS = 1e15
"""The longest wait for a first token, where an objective names none."""
Rate = Annotated[Text, Typed("N|Ntokens/s")]
TOKENS = "tokens/s"
"""What makes a load one of output tokens."""


class ServedQuestion(Question):
    """What is served: a model, requests, and by which software."""

    plugs = True

    model: ModelName
    """Model that is served: a shipped name or a YAML file."""
    workload: WorkloadName
    """Requests that come: a shipped workload, a YAML file, or a trace."""
    cards: Count | None = None
    """Cards that share the model (default: as few as hold it)."""
    weights: FormatName | None = None
    """Number format of the weights (default: the model's)."""
    kv: FormatName | None = None
    """Number format of the KV (default: the model's)."""
    policy: Text = "paged"
    """A KV policy, or {name: paged, block: 64}."""
    jobs: Count | None = None
    """Worker processes (default: one a core)."""

    @property
    def workers(self) -> int:
        """How many processes work."""
        return worker_count(self.jobs)

    def target(self, slo: Slo | None, load: float = 1.0, **more: Any) -> Target:
        """What is to be served; more: further fields of it. Raises DescriptionError."""
        spec = workload_document(self.workload).build(WorkloadSpec)
        model = load_model(self.model)
        model.stored_as(self.weights, self.kv)  # says which format is none
        return Target(
            model, spec, slo, load, self.cards, self.weights, self.kv,
            policy_of(self.policy, self.model), mean_output=mean_output(spec), **more,
        )  # fmt: skip

    def target_at(
        self, slo: str | None, rate: str, users: int | None = None, think_s: float = 0.0
    ) -> Target:
        """The same at a rate, or with so many users. Raises DescriptionError with the option at
        fault."""
        objective = None if slo is None else slo_of(slo)
        if users is not None:
            return self.target(objective, float(users), think_s=think_s)
        load, tokens = rate_of(rate)
        if objective is None and not tokens:
            why = f"is needed; without it --rate is of output tokens: 2000{TOKENS}"
            raise DescriptionError(why, "--slo")
        found = self.target(objective, load)
        if objective is not None and tokens:
            found = found._replace(load=load / found.mean_output)
        return found


def rate_of(text: str) -> tuple[float, bool]:
    """(A load a second, whether it is of output tokens and not of requests). Raises
    DescriptionError."""
    number, tokens = text.strip().removesuffix(TOKENS).strip(), text.strip().endswith(TOKENS)
    try:
        load = float(number)
    except ValueError:
        load = math.nan
    if not 0 < load < math.inf:
        raise DescriptionError(f"expected more than 0, as 2 or 2000{TOKENS}; got {text}", "--rate")
    return load, tokens


def slo_of(text: str, patient: bool = False) -> Slo:
    """`ttft=2s,tpot=100ms,attainment=0.95`; patient: it may leave out the first. Raises
    DescriptionError."""
    pairs = (parse_assignment(part) for part in text.split(","))
    given = {str(path[0]): value for path, value in pairs}
    return Document({"ttft": PATIENT, **given} if patient else given, "--slo").build(Slo)


def objective_record(slo: Slo | None) -> dict[str, float] | None:
    """An objective in JSON's types."""
    if slo is None:
        return None
    return {"ttft_s": slo.ttft / 1e9, "tpot_s": slo.tpot / 1e9, "attainment": slo.attainment}


def objective_text(slo: Slo) -> str:
    """`first token within 2 s and then 50 ms a token for 90% of requests`."""
    first = f"first token within {slo.ttft / 1e9:g} s and then " * (slo.ttft < _PATIENT_NS)
    return f"{first}{slo.tpot / 1e6:g} ms a token for {slo.attainment:.0%} of requests"


def wanted(target: Target) -> str:
    """The load and the objective in words."""
    name, slo = target.model.name, target.slo
    if slo is None:
        return f"{name}: {target.load:,.0f} output tokens/s, at any latency."
    if target.at_once:
        load = "as many requests at once as allow"
    elif target.think_s is not None:
        load = f"{target.load:,.0f} users who each think {target.think_s:g} s,"
    else:
        tokens = target.load * target.mean_output
        load = f"{target.load:,.3g} requests/s ({tokens:,.0f} output tokens/s),"
    return f"{name}: {load} {objective_text(slo)}."


def policy_of(text: str, model: str) -> PolicyOptions:
    """The options of a policy by its name, or in YAML."""
    _, value = parse_assignment(f"policy={text}")
    chosen = {"name": value} if isinstance(value, str) else value
    return Document({"model": model, "policy": chosen}, "--policy").build(ServingSpec).policy


def by_path(sets: Iterable[str]) -> dict[str, Any]:
    """Overrides as a sweep has them."""
    return {dotted(path): value for path, value in map(parse_assignment, sets)}


def answers(
    stage: str, questions: list[Any], workers: int, answer: Callable[[Any], Any]
) -> list[Any]:
    """A figure each, None, or in words why the question has no answer."""
    found: list[Any] = [None] * len(questions)
    with Progress().stage(stage, len(questions)) as step:
        for index, value in answered(answer, questions, workers):
            found[index] = value
            step()
    return found
