"""What buckets leave unused of what is reserved: with all lengths known at least, and as chosen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from policies.allocators.capabilities import QuantileBuckets
from policies.allocators.partition import best_partition
from sweeps.run.store import write_atomically
from sweeps.study.first import LEVELS, Lengths, bounded, known_lengths
from sweeps.study.space import Overrides
from sweeps.study.study_run import StudyRun
from sweeps.study.study_spec import Study
from sweeps.study.trials import BASE, LIMIT


def write_limit(run: StudyRun, overrides: Overrides) -> None:
    """Beside the finale of a study that searches the buckets of these overrides."""
    found = limit(run.study, overrides)
    if found is not None:
        write_atomically(run.directory.path / LIMIT, json.dumps(found, indent=2) + "\n")


def limit(study: Study, overrides: Overrides) -> dict[str, Any] | None:
    """`least`: the bounds that leave the least were every length known, as many as these overrides
    have; `chosen`: theirs; and those of the base. Of each its bounds in tokens, of the output or of
    prompt and output (`of`), the shares of lengths that these hold, and the share that is unused.
    None where the buckets' quantiles are not searched."""
    ours, base = study.experiment(overrides).serving.policy, study.base.serving.policy
    if LEVELS not in study.spec.space or not isinstance(ours, QuantileBuckets):
        return None
    lengths = known_lengths(study)
    best = best_partition(bounded(ours, lengths), ours.buckets, ours.align)
    found = {"least": (ours, best.bounds), "chosen": (ours, _bounds(ours, lengths))}
    if isinstance(base, QuantileBuckets):
        found[BASE] = base, _bounds(base, lengths)
    return {name: _record(policy, bounds, lengths) for name, (policy, bounds) in found.items()}


def _bounds(policy: QuantileBuckets, lengths: Lengths) -> tuple[int, ...]:
    return tuple(policy.bounds_for(bounded(policy, lengths)))


def _record(policy: Any, bounds: tuple[int, ...], lengths: Lengths) -> dict[str, Any]:
    """A request is taken to be in the smallest bucket that covers it (the longest known length
    where none does), and holds that for about as many steps as it has output tokens."""
    among, total, output = bounded(policy, lengths), lengths["total"], lengths["output"]
    ends = np.append(np.asarray(bounds), among.max())[np.searchsorted(bounds, among)]
    reserved = ends + total - among  # a bound of outputs stands behind the prompt
    return {
        "of": getattr(policy, "bucket_on", "output"),
        "bounds": [int(bound) for bound in bounds],
        "levels": [float((among <= bound).mean()) for bound in bounds],
        "unused": float(1 - (output * total).sum() / (output * reserved).sum()),
    }
