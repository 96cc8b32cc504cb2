"""What steps did, how fast they moved it and the energy that it took, out of their sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodel.specs.device import Device
from policies.memory.step_energy import Transfer, serving_energy
from policies.serving.ratios import rate, shares
from policies.serving.step_sums import Sums

_COUNTS = (
    "preemptions", "migrations", "migrated_tokens", "copied_tokens", "swapped_tokens",
    "prefill_tokens", "cached_tokens",
)  # fmt: skip


def acceptance(sums: Sums) -> dict[str, Any]:
    """Drafts that were verified and output, and tokens a sequence and step, of the whole run;
    nothing where none were."""
    if not sums.verified:
        return {}
    found = {"drafted": sums.drafted, "accepted": sums.accepted}
    return {"speculation": {**found, "tokens_a_step": 1 + sums.accepted / sums.verified}}


def step_figures(after: Sums) -> dict[str, Any]:
    """What was done after the warm-up, and what of the time it took."""
    busy = max(after.seconds, 1e-300)
    gbps = {
        name: rate(size, after.phase_s.get(name, 0.0)) / 1e9
        for name, size in after.moved_bytes().items()
    }
    came = after.cached_tokens + after.prefill_tokens
    return {
        "batch": after.batch_seconds / busy,
        "steps": after.steps,
        "step_s": after.seconds / max(after.steps, 1),
        **{name: getattr(after, name) for name in _COUNTS},
        "cached_share": rate(after.cached_tokens, came),
        "kv_gbps": gbps["attention"],
        "phase_gbps": gbps,
        "phase_share": {name: seconds / busy for name, seconds in after.phase_s.items()},
        "compute_share": after.compute_s / busy,
        "limit_share": shares(after.limit_s),
    }


def energy(
    after: Sums, device: Device, transfers: Mapping[str, Transfer], cards: int
) -> dict[str, Any] | None:
    """DRAM energy of an output token, of all cards: of each of the `cards` of every stage; see
    `policies.memory.step_energy`. A copy within the memory, and one to or from the host, costs what
    a migration does, a drafter's bytes what the weights' do."""
    moved = after.moved_by_all()
    moved["migration"] += moved.pop("copy") + moved.pop("swap")
    moved["weights"] += moved.pop("draft", 0)
    busy_s, idle_s = _card_seconds(after)
    found = serving_energy(device, moved, transfers, busy_s, idle_s, after.output_tokens)
    return found if found is None or cards == 1 else _times(found, cards)


def tokens_per_joule(
    after: Sums, device: Device, energy: Mapping[str, Any] | None, cards: int
) -> dict[str, float]:
    """Output tokens for a joule of DRAM, with the ends of what its constants may be
    (`hwmodel.measure.energy.SPREAD`), where the `energy` is known; `board`: for a joule of all
    cards, `cards` of every stage, at their power limit, at least, where the description states
    it."""
    rates = {}
    if energy is not None:
        ends = {"dram": "", "dram_low": "high_", "dram_high": "low_"}
        rates = {name: 1000 / energy[f"{end}mj_per_token"] for name, end in ends.items()}
    power_mw = None if device.accelerator is None else device.accelerator.power
    seconds = sum(_card_seconds(after))
    if power_mw is not None and seconds > 0:
        rates["board"] = after.output_tokens / (seconds * cards * power_mw / 1000)
    return rates


def _card_seconds(after: Sums) -> tuple[float, float]:
    """Of the stages of all replicas: (in which steps ran, in which none did)."""
    return after.seconds + after.further_s, after.limit_s["idle"] + after.further_idle_s


def _times(found: dict[str, Any], cards: int) -> dict[str, Any]:
    """The energy of `cards` equal cards."""
    parts = {name: cards * each for name, each in found["parts_mj_per_token"].items()}
    ends = ("mj_per_token", "low_mj_per_token", "high_mj_per_token")
    return {**found, **{name: cards * found[name] for name in ends}, "parts_mj_per_token": parts}
