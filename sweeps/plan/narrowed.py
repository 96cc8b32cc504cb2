"""Only some of a sweep's points, by the names of their values."""

from __future__ import annotations

from collections.abc import Iterable

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.yaml_writer import to_yaml_flow
from sweeps.analyse.label import named
from sweeps.plan.sweep import Given, load_sweep
from sweeps.plan.sweep_spec import Sweep


def load_narrowed(given: Given, overrides: Iterable[str], only: Iterable[str]) -> Sweep:
    """The sweep with the values of its axes that `only` names; axes of which it names none keep
    all. Raises DescriptionError."""
    sets, wanted = list(overrides), dict.fromkeys(each.strip() for each in only)
    sweep = load_sweep(given, sets)
    axes = {
        axis: {named(axis, value): value for value in values}
        for axis, values in sweep.document.data["axes"].items()
    }
    known = [name for values in axes.values() for name in values]
    for name in wanted:
        if name not in known:
            raise DescriptionError(f"no {name!r} in {sweep.spec.name}; {nearest(name, known)}",
                                   "--only")  # fmt: skip
    for axis, values in axes.items():
        if kept := [value for name, value in values.items() if name in wanted]:
            sets.append(f"axes.{axis}={to_yaml_flow(kept)}")
    return load_sweep(given, sets) if wanted else sweep
