"""A study: a base experiment, the space around it, what is wanted of it, and how long to look."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from hwmodel.description.description import (
    DescriptionError,
    Document,
    Mark,
    Mistakes,
    checked,
    nearest,
)
from hwmodel.description.yaml_reader import parse_assignment
from hwmodel.description.yaml_writer import to_yaml_flow
from policies.allocators.registry import policy_class, refusal
from sweeps.analyse.least import Constraint
from sweeps.analyse.objective import OBJECTIVES, SERVED, Objective, objective_of
from sweeps.analyse.rows import at
from sweeps.plan.defaults import with_defaults
from sweeps.plan.experiment import ExperimentSpec, device_of, with_memory
from sweeps.plan.layout import ALIASES, absolute_paths, experiment_with, refuse_unknown_path
from sweeps.plan.place import Override, in_sweep
from sweeps.plan.sweep import Given, document_of
from sweeps.plan.sweep_spec import Planned, Point, RunSpec
from sweeps.plan.variant import VariantSpec
from sweeps.study import fleet_size
from sweeps.study.first import First, FirstTrial, first_trials
from sweeps.study.quarter_request import quarter_share
from sweeps.study.search_spec import Count, FinaleSpec, RungSpec, SamplerSpec
from sweeps.study.space import QUARTER, Overrides, ParameterSpec, Space

BASE = "base"
"""Name of the base experiment among what the finale compares."""
DECLARED = "declared"
_COMMON = ("load", "calibration", "seed", "replications", "logs", "slo")
"""What all trials and references have in common."""
_ON_TABLE = (
    "device", "device_set", "model", "model_set", "serving.memory", "serving.kv_layout",
    "serving.kv", "serving.weights", "serving.tensor_parallel", "serving.policy.block",
    "serving.policy.free_list", "serving.expert_parallel",
)  # fmt: skip
"""What changes the device or its addresses: efficiencies measured for others do not hold then."""


def _named(variants: Any) -> Any:
    """`declared` is replaced by names once the base is known (`load_study`)."""
    return {} if variants == DECLARED else variants


_AIM = {
    "anyOf": [
        {"enum": list(OBJECTIVES)},
        {
            "type": "object", "additionalProperties": False,
            "properties": {
                "metric": {"type": "string"}, "direction": {"enum": ["maximize", "minimize"]},
            },
        },
    ],
}  # fmt: skip
Aim = Annotated[
    Objective, BeforeValidator(objective_of), PlainSerializer(lambda each: each.record),
    WithJsonSchema(_AIM),
]  # fmt: skip
"""What is made large or small: the mean of its metric over the replications."""


class StudySpec(RunSpec):
    """One study, as `yaml/studies/*.yaml` describes it."""

    kind: Literal["study"]
    base: dict[str, Any]
    """An experiment that serves; also the default that gains are measured against."""
    devices: list[str] = []
    """Where the command line names no device: each is searched in turn instead of the base's, with
    a model that fits, and one table compares them."""
    stand_ins: dict[str, dict[str, Any]] = {}
    """Name of a device of which only a bandwidth is given -> its `device_set` when the study runs
    on it by `--device`, by which its memory is simulated."""
    space: dict[str, ParameterSpec]
    """Dotted path of the experiment -> what it may be."""
    objectives: list[Aim] = [SERVED]
    """By their names in sweeps, or as `{metric: cost, direction: minimize}`. More than one: the
    trials that no other beats in all of them are kept."""
    constraints: list[Constraint] = []
    """What a trial has to keep."""
    memory: Literal["table", "sampled"] = "table"
    """What trials run on: the efficiency of each phase as simulation measured it for the base, and
    then for the best so far; or a simulation in every trial, where the space changes addresses or
    the device."""
    sampler: SamplerSpec = SamplerSpec()
    first: list[First] = []
    """Trials before those of the sampler, counted among the trials: the base, the numbers of ODMA's
    paper, other policies' defaults, and for numbers of buckets that double the levels that leave
    least unused."""
    known: dict[str, dict[str, Any]] = {}
    """Name -> overrides of the base that are tried after those, such as what won elsewhere; a share
    of the memory is taken to the nearest that the space has."""
    trials: Count = 64
    """How many are tried."""
    batch: Count = 16
    """Trials that are asked for before any of them is told."""
    variants: Annotated[dict[str, VariantSpec], BeforeValidator(_named)] = {}
    """Name -> overrides of the base: what the best is compared with, beside the base. In a file
    also `declared`: the policies, and of them the ceilings, that the base's policy asks for."""
    ceilings: list[str] = []
    """References that no choice in the space should beat, the one to measure by first. A reference
    is what the best is compared with, beside the base."""
    finale: FinaleSpec | None = FinaleSpec()
    families: dict[str, dict[str, Any]] = {}
    """Name -> path of the space -> what makes a trial one of the family: a value, one of several,
    or `drawn`, any number of the range or levels of its own. The best of each goes up every rung
    and into the finale."""
    profiles: list[str] = []
    """Paths of the space along which the best is varied after the finale, with all else as it has
    it."""
    halving: list[RungSpec] = []
    """Rungs that trials of a batch go up before they serve every replication. What one would set
    without a search (the base, the paper's numbers, other policies' defaults) always goes on."""
    mix: list[dict[str, Any]] = []
    """Overrides of the experiment: replication r serves member r, and after the last the first
    again. The mean over a mix is what a trial is judged by."""
    costs: dict[str, dict[str, float]] = {}
    """Path of a choice -> what each costs, in the user's own unit; the metric `cost` is the sum."""
    fleet: fleet_size.CheapestSpec | None = None
    """The cheapest fleet is sought: of each trial the fewest cards that keep the constraints."""

    @checked
    def _consistent(self) -> None:
        if not self.space:
            raise ValueError("space: expected at least one parameter")
        if not self.objectives:
            raise ValueError("objectives: expected at least one")
        for path, parameter in self.space.items():
            for other in parameter.when:
                if other not in self.space or not self.space[other].choice:
                    hint = nearest(other, [p for p, each in self.space.items() if each.choice])
                    raise ValueError(f"space.{path}.when: expected choices; got {other!r}; {hint}")
        for path, prices in self.costs.items():
            choices = (
                {str(name) for name in self.space[path].choices()} if path in self.space else None
            )
            if not choices:
                hint = nearest(path, [p for p, each in self.space.items() if each.choice])
                raise ValueError(f"costs.{path}: expected a choice of the space; {hint}")
            if choices != set(prices):
                raise ValueError(f"costs.{path}: expected a cost of each of {sorted(choices)}")
        if self.known and self.fleet is not None:
            raise ValueError("known: not with fleet, whose rivals are tried as they are set")
        named = [("families", path) for each in self.families.values() for path in each]
        for key, path in [*named, *(("profiles", path) for path in self.profiles)]:
            if path not in self.space:
                raise ValueError(f"{key}: {path} is not searched; {nearest(path, [*self.space])}")
        for name in self.ceilings:
            if name not in self.variants:
                raise ValueError(f"ceilings: expected names of references; got {name!r}")
        if BASE in self.variants:
            raise ValueError(f"variants.{BASE}: the base is compared in any case")
        self.refuse_variants()

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        for path, parameter in data["space"].items():
            choices = range(len(parameter.get("choice") or ()))
            yield Override(path, ("space", path), [("space", path, "choice", i) for i in choices])
        for name, rival in ((data.get("fleet") or {}).get("rivals") or {}).items():
            at = ("fleet", "rivals", name, "set")
            yield from (Override(path, (*at, path), [(*at, path)]) for path in rival.get("set", ()))
        yield from super().overrides(data)


@dataclass(frozen=True)
class Study(Planned):
    """A study with its base and references as points."""

    spec: StudySpec
    even_draws: dict[str | None, list[dict[str, Any]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Of each rival, or of None, the draws of the space-filling phase, once they are made."""

    @cached_property
    def quarter(self) -> float:
        """What a quarter of the largest reservation of a request is of the KV memory; 1 where no
        parameter is counted in it."""
        if not any(each.step == QUARTER for each in self.spec.space.values()):
            return 1.0
        align = [getattr(self.base.serving.policy, "align", 1)]
        searched = self.spec.space.get("serving.policy.align")
        align += searched.choice if searched else []
        return quarter_share(self.base, self.replications, max(align))

    @property
    def space(self) -> Space:
        return Space(self.spec.space, self.quarter)

    def rival(self, number: int) -> str | None:
        """Whose trial it is, in a study of fleets: those of its rivals in turn."""
        fleet = self.spec.fleet
        return None if fleet is None else list(fleet.rivals)[number % len(fleet.rivals)]

    def space_of(self, rival: str | None) -> Space:
        """What is searched for it."""
        if rival is None:
            return self.space
        assert self.spec.fleet is not None
        return Space({**self.spec.space, **self.spec.fleet.rivals[rival].space}, self.quarter)

    def rival_set(self, rival: str | None) -> Overrides:
        """What makes it."""
        return dict(self.spec.fleet.rivals[rival].set) if self.spec.fleet and rival else {}

    def overrides_of(self, number: int, params: Mapping[str, Any]) -> Overrides:
        """What a trial with these parameters changes of the base."""
        rival = self.rival(number)
        return {**self.rival_set(rival), **self.space_of(rival).overrides(params)}

    @property
    def base(self) -> ExperimentSpec:
        """The base experiment."""
        return self.point(BASE).experiment  # type: ignore[return-value]

    @property
    def replications(self) -> range:
        """Those of the search, and after them those of the finale."""
        finale = self.spec.finale
        more = finale.choose + finale.replications if finale else 0
        return range(1, self.base.replications + more + 1)

    @cached_property
    def first(self) -> list[FirstTrial]:
        """Trials before those of the sampler. Raises DescriptionError."""
        return first_trials(self)

    def point(self, name: str) -> Point:
        """The base, or a reference."""
        return next(point for point in self.points if point.control == name)

    def experiment(self, overrides: Overrides) -> ExperimentSpec:
        """The base with overrides. Raises DescriptionError."""
        marks = {path: self.document.mark(("space", path)) for path in overrides}
        return _experiment(self.document, ((p, v, marks[p]) for p, v in overrides.items()))

    def served(self, overrides: Overrides, replication: int) -> ExperimentSpec:
        """What a replication serves: the base with overrides, and those of its member of the mix.
        Raises DescriptionError."""
        finale, mix = self.spec.finale, self.spec.mix
        if finale is not None and finale.mix and replication > self.base.replications:
            mix = finale.mix
        member = mix[(replication - 1) % len(mix)] if mix else {}
        return self.experiment({**overrides, **member})

    def smallest(
        self, experiments: list[ExperimentSpec], most: int | None = None, lowest: int = 0,
        first: int = 1,
    ) -> fleet_size.SmallestFleet:  # fmt: skip
        """What finds the cards of a fleet, `lowest` to `most`, on the replications from `first` on.
        `most`, where it is given, is tried first; else `lowest`, or the base's."""
        assert self.spec.fleet is not None
        among = tuple(range(first, first + len(experiments)))
        fewest, limit = max(lowest, fleet_size.FEWEST), max(lowest, self.spec.fleet.most)
        limit = limit if most is None else min(max(most, fewest), limit)
        guess = most or lowest or self.base.serving.cluster.cards
        wanted = tuple(self.spec.constraints)
        return fleet_size.SmallestFleet(tuple(experiments), among, wanted, fewest, limit, guess)

    def cost(self, overrides: Overrides) -> dict[str, float]:
        """The metric `cost`, where the study has costs; what is not overridden is the base's.
        Raises DescriptionError where that is no choice."""
        if self.spec.fleet is not None:
            return fleet_size.cost(self, overrides)
        if not self.spec.costs:
            return {}
        found = 0.0
        for path, prices in self.spec.costs.items():
            value = overrides.get(path, at(self.document.data["base"], *path.split(".")))
            names = self.spec.space[path].choices().items()
            chosen = next((str(n) for n, each in names if each == value), str(value))
            if chosen not in prices:  # of the base alone: what is drawn is a choice
                one = self.spec.space[path].choice[0]
                for key in reversed(path.split(".")):
                    one = {key: one}
                raise self.document.error(
                    "the base states none of these, so that its cost is not known; expected such"
                    f" as base: {to_yaml_flow(one)}", ("costs", path),
                )  # fmt: skip
            found += prices[chosen]
        return {"cost": found}


def load_study(
    given: Given, overrides: Iterable[str] = (), trials: int | None = None,
    sampler: str | None = None,
) -> Study:  # fmt: skip
    """Read a study (its name, path or content), apply `--set` assignments, and check its space.

    trials, sampler: instead of the study's own. Raises DescriptionError.
    """
    document = document_of("studies", given, "study")
    spec = document.build(StudySpec)
    more = {"trials": trials, "sampler.name": sampler}
    given_more = [
        f"{path}={to_yaml_flow(value)}" for path, value in more.items() if value is not None
    ]
    if assignments := [*overrides, *given_more]:
        for assignment in assignments:
            _assign(document, assignment)
        spec = document.build(StudySpec)
    if any([_declared_references(document), absolute_paths(document, StudySpec)]):
        spec = document.build(StudySpec)
    study = Study(spec, document, _points(spec, document), _config(spec, document))
    _check(study)
    return study


def _declared_references(document: Document) -> bool:
    """In place of `variants: declared`, the references that the base's policy declares; whether
    they were asked for."""
    if document.data.get("variants") != DECLARED:
        return False
    mark = document.mark(("variants",))
    policy = _experiment(document, []).serving.policy
    wanted = policy_class(policy).references
    variants = {
        name: {"set": {"serving.policy": {"name": name}}, "role": "reference"}
        for name in (*wanted.rivals, *wanted.ceilings)
    }
    document.put(("variants",), variants, mark)
    document.put(("ceilings",), list(wanted.ceilings), mark)
    return True


def _config(spec: StudySpec, document: Document) -> dict[str, Any]:
    """The study with every default written out."""
    data = {key: value for key, value in document.data.items() if key != "resolved"}
    full = {**with_defaults(StudySpec, data), "base": with_defaults(ExperimentSpec, data["base"])}
    for key in ("devices", "stand_ins"):  # a run is of one device
        full.pop(key)
    if spec.finale is None:
        full["finale"] = None
    full["objectives"] = [objective.record for objective in spec.objectives]
    return copy.deepcopy(full)


def _assign(document: Document, assignment: str) -> None:
    """A path of the study or of its base; one that is in the space is no longer searched."""
    path, value = parse_assignment(assignment)
    keys = tuple(str(part) for part in path)
    mark = Mark(f"--set {assignment}")
    if keys[0] == "space" and len(keys) > 1:
        document.put(("space", ".".join(keys[1:])), value, mark)
        return
    if keys[0] in StudySpec.model_fields:
        document.put(path, value, mark)
        return
    if keys[0] == "objective":
        why = "a study has objectives, which may be several: [throughput]"
        raise DescriptionError(why, mark.file, None, keys[0])
    keys = {**ALIASES, "policy": ExperimentSpec.policy_path}.get(keys[0], (keys[0],)) + keys[1:]
    refuse_unknown_path(ExperimentSpec, keys, mark, (StudySpec,))
    _no_longer_searched(document.data, ".".join(keys))
    document.put(("base", *keys), value, mark)
    for length in range(2, len(keys) + 1):
        document.marks.setdefault(("base", *keys[: length - 1]), mark)


def _no_longer_searched(data: dict[str, Any], path: str) -> None:
    """Take a path out of the space, and out of what is said about it."""
    data["space"].pop(path, None)
    for parameter in data["space"].values():
        parameter.get("when", {}).pop(path, None)
    for name, wanted in list((data.get("families") or {}).items()):
        if path in wanted:
            del data["families"][name]
    if path in (data.get("profiles") or []):
        data["profiles"].remove(path)


def _points(spec: StudySpec, document: Document) -> list[Point]:
    points = [Point(0, {}, BASE, _experiment(document, []))]
    for name, reference in spec.with_role("reference").items():
        experiment = _experiment(document, reference.changes(document, name))
        points.append(Point(len(points), reference.set, name, experiment))
    return points


def _experiment(document: Document, changes: Iterable[tuple[str, Any, Mark]]) -> ExperimentSpec:
    return experiment_with(document, ExperimentSpec, changes)  # type: ignore[return-value]


def _check(study: Study) -> None:
    """Every parameter by itself makes an experiment; every window is full before it counts."""
    mistakes = Mistakes()
    for rule in (_check_base, _check_memory, _check_paths):
        with mistakes.met():
            rule(study)
    mistakes.answer()
    document = study.document
    for path, parameter in study.spec.space.items():
        if parameter.step == QUARTER:
            fewest, most = study.space.quarters(parameter)
            if fewest > most:
                raise document.error(
                    f"a quarter of the largest request takes {study.quarter:.2f} of the KV memory, "
                    f"more than {parameter.range[1]:g}", ("space", path),
                )  # fmt: skip
    if study.spec.fleet is not None:
        fleet_size.check(study)
    for point in study.points:
        _window_is_full(document, point.experiment, ("variants", point.control))  # type: ignore[arg-type]
    finale, rungs = study.spec.finale, study.spec.halving
    sets = [rung.set for rung in rungs]
    for member in [*study.spec.mix, *(finale.mix if finale else []), *sets]:
        for source in study.experiment(member).sources():
            source.read()
    _ = study.cost({})
    for rival in study.spec.fleet.rivals if study.spec.fleet else [None]:
        for path, overrides in study.space_of(rival).corners():
            experiment = _corner(study, rival, path, overrides)
            _may_search(document, experiment, path, overrides)
            _window_is_full(document, experiment, ("space", path))
            _resolves(document, experiment, path.split(".")[0])
    _ = study.first  # each is in the space


def _corner(
    study: Study, rival: str | None, path: str, overrides: Overrides
) -> ExperimentSpec:  # fmt: skip
    """The experiment with one parameter at an end, or with another one beside it where it takes
    that, as a partitioned space takes a pool. Raises DescriptionError."""
    own = study.rival_set(rival)
    try:
        return study.experiment({**own, **overrides})
    except DescriptionError as error:
        for other, beside in study.space_of(rival).corners():
            if other != path:
                with suppress(DescriptionError):
                    return study.experiment({**own, **beside, **overrides})
        raise error from None


def _check_base(study: Study) -> None:
    """All trials are offered the same, and write nothing."""
    document, load_ = study.document, study.base.load
    if load_ is not None and (load_.goodput is not None or load_.of == "own"):
        raise document.error(
            "a study offers every trial the same load: expected rate_per_s, or relative with "
            "of: best", ("base", "load"),
        )  # fmt: skip
    if (study.spec.mix or (study.spec.finale and study.spec.finale.mix)) and load_ is not None:
        why = "a mix has no common load: expected arrivals, such as all_at_once"
        raise document.error(why, ("base", "load"))
    if study.base.logs:
        raise document.error("a study writes no logs", ("base", "logs"))


def _check_memory(study: Study) -> None:
    """The finale simulates memory, where there is something to simulate; where trials have the
    memory of the base, so has the finale."""
    sampled = study.base.serving.memory.fidelity == "sampled"
    given = device_of(study.base).given is not None
    of_the_base = study.spec.memory == "sampled" or study.spec.fleet is not None
    if study.spec.finale and not (sampled or given or of_the_base):
        raise study.document.error(
            "the finale compares on simulated memory: expected sampled, or finale: null",
            ("base", "serving", "memory", "fidelity"),
        )


def _check_paths(study: Study) -> None:
    """No path is one that would be ignored, or that the table knows nothing of."""
    document = study.document
    for name, reference in study.spec.variants.items():
        for path in reference.set:
            if _under(path, _COMMON):
                place = ("variants", name, "set", path)
                raise document.error(f"{path} is the same for all", place)
    rivals = study.spec.fleet.rivals.values() if study.spec.fleet else ()
    for path in (
        *study.spec.space,
        *(path for each in rivals for path in (*each.set, *each.space)),
    ):
        if _under(path, _COMMON):
            raise document.error(f"{path} is the same for all trials", ("space", path))
        if study.spec.memory == "table" and _under(path, _ON_TABLE):
            raise document.error(
                f"{path} changes what memory does: expected memory: sampled", ("space", path)
            )


def _under(path: str, heads: tuple[str, ...]) -> bool:
    return any(f"{path}.".startswith(f"{head}.") for head in heads)


def _resolves(document: Document, experiment: ExperimentSpec, key: str) -> None:
    """The device, model or workload that a parameter is of can be read."""
    for source in experiment.sources():
        if key in (source.key, f"{source.key}_set"):
            try:
                source.read()
            except DescriptionError as error:
                places = StudySpec.overrides(document.data)
                raise in_sweep(error, document, source.key, places) from None


def _may_search(
    document: Document, experiment: ExperimentSpec, path: str, overrides: Overrides
) -> None:
    """The policy declares that this option of it may be searched so far."""
    head, _, option = path.rpartition(".")
    if head != ".".join(ExperimentSpec.policy_path):
        return
    why = refusal(policy_class(experiment.serving.policy), option, overrides[path])
    if why is not None:
        raise document.error(why, ("space", path))


def _window_is_full(document: Document, experiment: ExperimentSpec, place: tuple[str, str]) -> None:
    for name, lengths in experiment.serving.policy.learned_lengths.items():
        if lengths > experiment.warmup_requests:
            where = ("base",) if place[1] == BASE else place
            raise document.error(
                f"{name} of {lengths} lengths is more than "
                f"{experiment.warmup_requests} warmup_requests: bounds would be counted before "
                "they have followed the lengths", where,
            )  # fmt: skip


def on_table(experiment: ExperimentSpec, efficiency: dict[str, float]) -> ExperimentSpec:
    """The experiment on memory whose phases have these shares of the peak."""
    return with_memory(experiment, fidelity="analytic", **efficiency)
