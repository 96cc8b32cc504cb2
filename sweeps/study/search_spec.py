"""How a study searches: who proposes trials, the rungs they go up, and the finale."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hwmodel.description.description import Strict

Count = Annotated[int, Field(ge=1)]


class SamplerSpec(Strict):
    """Who proposes trials."""

    name: Literal["tpe", "random"] = "tpe"
    """A space-filling phase (Sobol 1967, scrambled), then multivariate TPE (Bergstra et al. 2011;
    Falkner et al. 2018) which learns from it; or independent draws throughout."""
    random: Annotated[int, Field(ge=0)] | None = None
    """Space-filling draws over the whole space, after the first trials and before TPE. None: as
    many as a batch."""
    seed: Annotated[int, Field(ge=0)] = 1


class RungSpec(Strict):
    """A rung of successive halving (Jamieson and Talwalkar 2016): trials of a batch serve something
    cheaper, and the best of them go on."""

    set: dict[str, Any] = {}
    """Overrides of the experiment that make it cheaper; none: replication 1 as it is."""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of those on this rung that goes on, rounded up, beside the best of each family."""


class FinaleSpec(Strict):
    """The comparison on replications that the search never saw, with simulated memory (with the
    base's where `memory: sampled` gives each trial that)."""

    top: Count = 3
    """Trials that run for the best."""
    choose: Count = 2
    """Replications that the best of them is chosen on."""
    replications: Annotated[int, Field(ge=2)] = 5
    """Replications after those, that the gains are measured on."""
    mix: list[dict[str, Any]] = []
    """As the study's: what the search never saw, in place of that."""
