"""Only some of a sweep's points, by the names of their values and of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.yaml_writer import to_yaml_flow
from sweeps.analyse.label import named
from sweeps.plan.sweep import Given, load_sweep
from sweeps.plan.sweep_spec import Sweep


def load_narrowed(given: Given, overrides: Iterable[str], only: Iterable[str]) -> Sweep:
    """The sweep with the values of its axes, and the cases, that `only` names; axes of which it
    names none keep all, as do cases. A word between commas of a case's name stands for each case
    that has it. Raises DescriptionError."""
    sets, parts = list(overrides), [each.strip() for each in only]
    sweep = load_sweep(given, sets)
    axes = {
        axis: {named(axis, value): value for value in values}
        for axis, values in sweep.document.data["axes"].items()
    }
    variants = sweep.document.data.get("variants") or {}
    cases = list(sweep.spec.with_role("case"))
    known = [*(name for values in axes.values() for name in values), *cases]
    wanted: dict[str, None] = {}
    for name in _joined(parts, known):
        own = [case for case in cases if name in case.split(", ")]
        if name not in known and not own:
            raise DescriptionError(f"no {name!r} in {sweep.spec.name}; {nearest(name, known)}",
                                   "--only")  # fmt: skip
        wanted |= dict.fromkeys([name] if name in known else own)
    for axis, values in axes.items():
        if kept := [value for name, value in values.items() if name in wanted]:
            sets.append(f"axes.{axis}={to_yaml_flow(kept)}")
    if wanted.keys() & set(cases):
        left = {n: each for n, each in variants.items() if n not in cases or n in wanted}
        sets.append(f"variants={to_yaml_flow(left)}")
    return load_sweep(given, sets) if wanted else sweep


def _joined(parts: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """The parts, those as one that make a known name with the commas between them."""
    at = 0
    while at < len(parts):
        ends = range(len(parts), at + 1, -1)
        end = next((e for e in ends if ", ".join(parts[at:e]) in known), at + 1)
        yield ", ".join(parts[at:end])
        at = end
