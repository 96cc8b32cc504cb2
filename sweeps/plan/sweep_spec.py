"""What a sweep's YAML says: a base experiment, axes that are crossed, variants, what is compared.

Rules other than that of the best (`sweeps.plan.rules`) have specs built on `SweepSpec`, which may
add points of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import WithJsonSchema

from hwmodel.description.description import Document, KeyPath, Strict, checked, nearest
from hwmodel.description.units import Percent
from hwmodel.specs.device import Device
from sweeps.analyse.label import NAMED, label, named
from sweeps.analyse.objective import OBJECTIVES
from sweeps.analyse.rows import Record
from sweeps.analyse.table import Table
from sweeps.analyse.variants import CASE, with_role
from sweeps.plan.experiment import Described, device_of
from sweeps.plan.measures import MEASURES, SERVING, experiment_of
from sweeps.plan.objective_needs import lacking
from sweeps.plan.place import Override
from sweeps.plan.variant import AS_DESCRIBED, Change, Layer, Role, VariantSpec, places

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(OBJECTIVES)]
Measure = Annotated[str, WithJsonSchema({"enum": list(MEASURES)})]
"""Those that are shipped; plug-ins add theirs."""


BEST = "best"
"""The rule of a sweep that names none."""


class RunSpec(Strict):
    """What every description of a run has."""

    roles: ClassVar[tuple[Role, ...]] = ("reference",)
    """What its variants may be for."""

    kind: str
    name: str
    summary: str
    question: str = ""
    """What it asks, for its report."""
    base: dict[str, Any]
    """An experiment; the rest of the description may supply what it leaves out."""
    variants: dict[str, VariantSpec] = {}
    """Name -> overrides, and what they are for."""
    skip: list[Role] = []
    """Roles whose variants are left out."""
    resolved: dict[str, Any] | None = None
    """What the names meant when the run was recorded; a change since then is refused."""

    def with_role(self, role: Role) -> dict[str, VariantSpec]:
        """The variants of one role; none where it is skipped."""
        if role in self.skip:
            return {}
        return {name: each for name, each in self.variants.items() if each.role == role}

    def refuse_variants(self) -> None:
        """Raise ValueError for variants that do not belong here or change nothing."""
        for name, variant in self.variants.items():
            if variant.role not in self.roles:
                here = ", ".join(self.roles)
                raise ValueError(f"variants.{name}.role: expected one of {here} here; got"
                                 f" {variant.role!r}")  # fmt: skip
            if not variant.overrides and not variant.parts:
                raise ValueError(f"variants.{name}.set: expected at least one path and its value")
            if variant.parts and variant.role != "change":
                raise ValueError(f"variants.{name}.parts: only a change has parts")

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        """Where a description gives paths of its experiment, beside its base."""
        yield from places(data.get("variants") or {})

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        """What the provenance of such a run has beside that of any."""
        return {}


class SweepSpec(RunSpec):
    """One sweep, as `yaml/sweeps/*.yaml` describes it."""

    roles: ClassVar[tuple[Role, ...]] = ("case", "control", "reference")
    page: ClassVar[Any] = "sweeps.report.sweep_page:account"
    """What shows findings under this rule."""

    kind: Literal["sweep"]
    rule: str = BEST
    """What is asked of the results: who serves the most, what changes give, where a lead changes
    sides, or the least value that meets an objective."""
    measure: Measure = SERVING
    """What is measured at each point: what is served, how KV is read, a paper's table."""
    objective: ObjectiveName | None = None
    """What competitors are compared by; None: that of the measure, output tokens/s of serving."""
    precision: Percent | None = None
    """Relative half-width that a 95 % interval of two competitors should have, such as `4%`; it
    chooses `base.replications`, and `probe_bytes` and `max_probes` of a sampled memory, as far as
    these are not given."""
    axes: dict[str, list[Any]]
    """Dotted path of the experiment -> values; the first axis varies slowest."""
    compare: str
    """The axis whose values compete, within each combination of the others."""

    @checked
    def _consistent(self) -> None:
        for path, values in self.axes.items():
            if not values:
                raise ValueError(f"axes.{path}: expected at least one value")
            texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
            if len(set(texts)) < len(texts):
                raise ValueError(f"axes.{path}: a value is there twice")
            names = [named(path, value) for value in values]
            if path in NAMED and len(set(names)) < len(names):
                raise ValueError(f"axes.{path}: a name is there twice")
        if self.compare not in self.axes:
            raise ValueError(f"compare: expected an axis; {nearest(self.compare, list(self.axes))}")
        self.refuse_variants()
        self._refuse_of()
        self.refuse_inconsistent()

    def refuse_variants(self) -> None:
        super().refuse_variants()
        for name, variant in self.variants.items():
            if name == AS_DESCRIBED:
                raise ValueError(f"variants.{name}: this is what the base is called; take another"
                                 " name")  # fmt: skip
            axis = next((path for path in variant.overrides if path in self.axes), None)
            if variant.role == "case" and axis:
                raise ValueError(f"variants.{name}: {axis} is an axis already")
            if variant.role == "reference" and variant.role not in self.skip:
                if name in self.competitors:
                    raise ValueError(f"variants.{name}: a competitor has this name")
                if not any(f"{path}.".startswith(f"{self.compare}.") for path in variant.set):
                    raise ValueError(f"variants.{name}.set: expected a value of {self.compare}")

    def _refuse_of(self) -> None:
        for name, variant in self.variants.items():
            if variant.of and variant.role in ("case", "control", "reference", "condition"):
                raise ValueError(f"variants.{name}.of: a {variant.role} is for all competitors")
            for competitor in variant.competitors:
                self.refuse_competitor(f"variants.{name}.of", competitor)

    def refuse_competitor(self, where: str, competitor: str) -> None:
        """Raise ValueError unless such a value is compared."""
        if competitor not in self.competitors:
            hint = nearest(competitor, self.competitors)
            raise ValueError(f"{where}: no competitor {competitor!r}; {hint}")

    def refuse_inconsistent(self) -> None:
        """Raise ValueError, the place at the head of its message, for what does not fit."""

    def refuse_without_objective(self) -> None:
        """Raise ValueError where competitors are not compared by one metric."""
        if self.experiment.objective is None:
            raise ValueError(f"measure: {self.measure} has no one metric to compare by")

    def known_config(self, document: Document, replications: int) -> dict[str, Any]:
        """What `Evaluations` need of a config."""
        latency_at = document.data["base"].get("latency_at")
        base = {"replications": replications, "latency_at": latency_at}
        return {**self.model_dump(), "base": base}

    def refuse_unmeasured(self, points: Sequence[Point], document: Document) -> None:
        """Raise DescriptionError where points do not measure the objective."""
        if self.objective is None:
            return
        needs = OBJECTIVES[self.objective].needs
        every = (lacking(self.objective, needs, point.experiment) for point in points)
        if (why := next(filter(None, every), None)) is not None:
            raise document.error(why, ("objective",))

    @property
    def metrics(self) -> dict[KeyPath, str]:
        """Metrics that its rule asks for, by the place where they are named."""
        return {}

    @property
    def competitors(self) -> list[str]:
        """Labels of the values that compete."""
        return [label(value) for value in self.axes[self.compare]]

    @property
    def experiment(self) -> type[Described]:
        """What each point is."""
        return MEASURES[self.measure]

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        for path, values in data["axes"].items():
            yield Override(path, ("axes", path), [("axes", path, i) for i in range(len(values))])
        yield from super().overrides(data)

    @classmethod
    def findings(cls, table: Table) -> Any:
        """What such a run finds beside the verdicts on its groups, as data of its own; None: what
        these say together."""
        return experiment_of(table.config).findings(table)

    @classmethod
    def complete(cls, document: Document) -> bool:
        """Replace short forms by what they stand for; whether there were any. Raises
        DescriptionError."""
        return False

    @classmethod
    def total(cls, config: Mapping[str, Any], records: Sequence[Record]) -> int:
        """Results that a finished run has; where it searches, as far as is known."""
        replications = int(config["base"].get("replications", 1))
        points = prod(len(values) for values in config["axes"].values())
        points *= len(with_role(config, "case")) or 1
        main = points * (1 + len(with_role(config, "control")))
        groups = points // max(len(config["axes"].get(config["compare"], ())), 1)
        return replications * (main + groups * len(with_role(config, "reference")))

    def layers(self, document: Document) -> list[Layer]:
        """What each control is laid out with."""
        cases = self.with_role("case")
        if not cases:
            return [Layer({}, [])]
        return [Layer({CASE: name}, each.changes(document, name)) for name, each in cases.items()]

    def case_changes(self, document: Document, name: str | None) -> list[Change]:
        """What a case is laid out with; nothing without one."""
        return [] if name is None else self.variants[name].changes(document, name)

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        """Peak and capacity of the device of each case."""
        devices: dict[str, Device] = {}
        for p in points:  # references, which come last, may have cards of their own
            name = p.overrides.get(CASE)
            if name is not None and name not in devices:
                devices[name] = device_of(p.experiment)
        hardware = {
            name: {"device": d.name, "peak_gbps": d.peak_gbps, "capacity_bytes": d.capacity_bytes}
            for name, d in devices.items()
        }
        return ({"hardware": hardware} if hardware else {}) | _software(points)

    def next_layers(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Layer]:
        """What the results that are there ask for next. A point that does not fit has
        `does_not_fit` among them, and no `metrics`."""
        return []


def _software(points: Sequence[Point]) -> dict[str, Any]:
    """What of the difference between the devices is software, where they differ in class."""
    from sweeps.plan.software import called, software_of  # compiles steps

    named = [(called(p.overrides, p.experiment), p.experiment) for p in points]
    found = software_of(named)
    return {"software": found} if found else {}


@dataclass(frozen=True)
class Point:
    """One combination of axis values, in one control (or in none: '')."""

    index: int
    overrides: dict[str, Any]
    control: str
    """A reference has one of its own, `figures.REFERENCE`."""
    experiment: Described


@dataclass(frozen=True)
class Planned:
    """A description of a run with its points, and the config that says it all again."""

    spec: RunSpec
    document: Document
    points: list[Point] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep(Planned):
    """A sweep with its points, as far as they are known."""

    spec: SweepSpec

    def with_points(self, more: Sequence[Point]) -> Sweep:
        """The sweep with points that its results ask for."""
        return replace(self, points=[*self.points, *more])
