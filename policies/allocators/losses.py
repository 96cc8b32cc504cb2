"""Losses that policies have in common, with what removes each, and what a study may search of runs.

Removals go from a policy over exact lengths without holes (`oracle`, where compaction is free) to
`ideal`, which every policy ends at. On the way, without the head-of-line blocking the first request
is admitted as soon as its input fits and completes its reservation before the next; without memory
reserved for tokens not yet generated it waits for all its slots but holds what it has filled.
"""

from __future__ import annotations

from policies.allocators.allocator import PolicyOptions
from policies.allocators.ceiling_options import IdealOptions, OracleOptions
from policies.allocators.compaction import ArenaOptions
from policies.allocators.declaration import CHOICES, Loss, Range, Removal, Searched

Losses = dict[Loss, Removal]


def exact_runs(policy: PolicyOptions) -> PolicyOptions:
    """Exact lengths in runs of one arena, with the compaction that the policy has."""
    own = {key: getattr(policy, key) for key in ArenaOptions.model_fields if hasattr(policy, key)}
    return OracleOptions(**{**own, "name": "oracle"})


def without_holes(policy: PolicyOptions) -> PolicyOptions:
    """One arena whose holes are joined for nothing; a buddy has no compaction."""
    return policy.without_holes() if isinstance(policy, ArenaOptions) else policy


def _ideal(policy: PolicyOptions, **options: str) -> PolicyOptions:
    """Towards the ceiling: `ideal` with its own options, others as exact lengths without holes."""
    if not isinstance(policy, IdealOptions):
        policy = IdealOptions(reserve="output", admit_on="output")
    return policy.model_copy(update=options)


def _has_holes(options: PolicyOptions) -> bool:
    """Where prefixes are copied nothing may be compacted: holes go with the reservations."""
    return getattr(options, "compaction", "") != "free" and not options.copies_prefixes


MIGRATION = Removal(free_copies=True)
COMPACTION = MIGRATION._replace(applies=lambda o: getattr(o, "compaction", "") == "copied")
PREDICTION = Removal(exact_lengths=True)
WAITING: Losses = {
    "copies": COMPACTION,
    "holes": Removal(without_holes, applies=_has_holes),
    "line": Removal(reference=lambda policy: _ideal(policy, admit_on="input")),
    "held": Removal(reference=lambda policy: _ideal(policy, reserve="stored")),
}
"""Of a policy with one run a request, of the length that it will have."""
RESERVING: Losses = {**WAITING, "reservation": Removal(reference=exact_runs)}
"""Of a policy with one run a request, which may be longer than it will be."""
GROWING: Losses = {
    "recompute": Removal(
        reference=lambda policy: _ideal(policy, reserve="stored", admit_on="input")
    )
}
"""Of a policy that takes slots as tokens come."""
RUNS: Searched = {
    "fit": CHOICES, "space": CHOICES, "prefixes": CHOICES, "compaction": CHOICES,
    "compaction_tokens": Range(0, 1 << 20), "window_kv": CHOICES, "stagger": Range(0, 4096),
}  # fmt: skip
"""Of options that are `RunOptions`."""
