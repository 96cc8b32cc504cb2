"""Exported steps in other simulators, beside ours, printed as JSON (docs/trust.md).

    BANKWISE_RAMULATOR=DIR BANKWISE_DRAMSIM3=FILE python -m tools.peers.peers

DIR: the folder `python` of Ramulator 2.1, built for this Python; FILE: `dramsim3main`. Cycles are
those until the last access is accepted (Ramulator ends there) or the last data (DRAMsim3); ours
likewise. About ten minutes on two quiet cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.trace import read_trace
from hwmodel.specs.device import Device, load_device
from sweeps.run.trace_export import WantedTrace, export

VARIABLES = {"Ramulator": "BANKWISE_RAMULATOR", "DRAMsim3": "BANKWISE_DRAMSIM3"}
CHANNEL, MOST = 5, 150_000
"""The channel that is looked at; bursts of a stream, the rest is cut off."""
HASH = "bank_hash=[{field: bankgroup, row_bit: 0}, {field: bank, row_bit: 2}]"
"""That of lpddr5-6400-x16 and hbm2-2.0; the reference memories have none."""
STEPS = (600, 800, 1000)


class PeerMemory(NamedTuple):
    """A device whose channels have the peer's memory."""

    device: str
    memory: str
    rate: float
    """Requests a second; they keep the device full."""
    steps: dict[str, int]
    """Of each policy as many in a row as make MOST bursts."""
    settings: tuple[str, ...] = ()


PLACES = {
    "LPDDR5": PeerMemory(
        "mlu370-x4", "ramulator-lpddr5-6400-x16", 2, {"paged": 1, "odma": 2, "static": 15}
    ),
    # a pseudo-channel is a channel of its own
    "HBM2": PeerMemory(
        "a100-80gb", "ramulator-hbm2-2.0", 12, {"paged": 1, "odma": 1, "static": 2},
        ("device_set.channels=80",),
    ),
}  # fmt: skip


class Traffic(NamedTuple):
    """What of a step is exported."""

    phase: str
    reads_only: bool = False
    """Writes are left out of the exported file."""
    refresh: bool = True
    steps: str = ""
    """Instead of STEPS."""
    policies: tuple[str, ...] = ("paged", "odma", "static")


TRAFFIC = {
    "decode": Traffic("attention"),
    "decode, reads only": Traffic("attention", reads_only=True),
    "decode, reads only, no refresh": Traffic("attention", reads_only=True, refresh=False),
    # static admits too few requests to fill a stream
    "prefill": Traffic("prefill", steps="100:400", policies=("paged", "odma")),
}


class Found(NamedTuple):
    """What a simulator says of a stream."""

    cycles: float
    hits: float
    """Share of bursts."""


class Peer(ABC):
    """Another simulator that is built here. built: what its variable says."""

    name: str
    form: str
    mapper: str
    places: tuple[str, ...]
    like: tuple[str, ...] = ()
    """Settings of our memory that make it the peer's."""

    def __init__(self, built: str) -> None:
        self.built = Path(built)

    @property
    def version(self) -> str:
        """The commit of its sources, where it was built in their clone."""
        command = ["git", "-C", str(self.built.resolve().parent), "rev-parse", "--short=7", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"

    def device(self, place: str, refresh: bool = True) -> Device:
        """Ours, set as the peer is."""
        off = () if refresh else ("controller.refresh=none",)
        return load_device(PLACES[place].memory, (HASH, *self.like, *off))

    def ours(self, place: str, trace: Path, refresh: bool) -> Found:
        """Our figures of an exported trace."""
        device = self.device(place, refresh)
        run = OpenLoop(device.memory)
        for address, kind, _ in read_trace(trace, device, True):
            run.feed(0, address, kind)
        accepted = int(run.states["now"][0])
        run.finish()
        end = run.end_tick if self.to_the_end else accepted
        hits = run.total("hits") / run.total("requests")
        return Found(end / device.memory.tick_clock.ticks_per_ck, hits)

    to_the_end: bool

    @abstractmethod
    def theirs(self, place: str, trace: Path, refresh: bool, folder: Path) -> Found:
        """The peer's figures; files of its own go into the folder."""


class Ramulator(Peer):
    """2.1: its presets, of which the reference memories are copies."""

    name, form, mapper = "Ramulator", "ramulator", "RoBaRaCoCh"
    places, to_the_end = ("LPDDR5", "HBM2"), False
    presets = {
        "LPDDR5": {
            "standard": "LPDDR5", "controller": "LPDDR5",
            "dram": {"org_preset": "LPDDR5_16Gb_x16", "timing_preset": "LPDDR5_6400"},
        },
        "HBM2": {
            "standard": "HBM2", "controller": "HBM12",
            "dram": {
                "org_preset": "HBM2_8Gb", "timing_preset": "HBM2_2000Mbps", "pseudochannel": 1,
            },
        },
    }  # fmt: skip

    def theirs(self, place: str, trace: Path, refresh: bool, folder: Path) -> Found:
        c, out = self.device(place).memory.controller, folder / "ramulator.json"
        asked = {
            **self.presets[place], "mapper": self.mapper, "refresh": refresh, "trace": str(trace),
            "read_queue": c.read_queue, "write_queue": c.write_queue, "out": str(out),
            "drain_low": float(c.write_drain_low), "drain_high": float(c.write_drain_high),
        }  # fmt: skip
        program = [sys.executable, str(Path(__file__).with_name("ramulator_run.py"))]
        called(program, json.dumps(asked), self.built)
        counts = json.loads(out.read_text(encoding="utf-8"))
        hits, *others = (counts[f"row_{kind}"] for kind in ("hits", "misses", "conflicts"))
        return Found(counts["cycles"], hits / (hits + sum(others)))


class DRAMsim3(Peer):
    """One queue of commands for a rank, and no other queue; ours is set likewise. It has one slot
    for an activation, and no activation buffer."""

    name, form, mapper = "DRAMsim3", "dramsim3", "rochrababgco"
    places, to_the_end = ("HBM2",), True
    like = ("controller.queues=shared", "controller.activation_buffer=0", "commands.ACT.slots=1")

    def description(self, place: str, refresh: bool) -> str:
        """Its file of settings, from our memory's."""
        memory = self.device(place).memory
        o, clocks = memory.organisation, {k: int(v) for k, v in memory.timing_clocks.items()}
        same = (
            "tRCDRD", "tRCDWR", "tRP", "tRAS", "tRRD_S", "tRRD_L", "tWTR_S", "tWTR_L", "tFAW",
            "tWR", "tCCD_S", "tCCD_L", "tRTP",
        )  # fmt: skip
        turnaround = clocks["tRTW"] - clocks["RL"] - clocks["nBL"] + clocks["WL"]
        sections: dict[str, dict[str, Any]] = {
            "dram_structure": {
                "protocol": "HBM", "bankgroups": o.bankgroups, "rows": o.rows,
                "banks_per_group": o.banks_per_group, "BL": o.burst_length,
                "columns": o.columns * o.burst_length // 2,  # it counts pairs of beats
                "device_width": o.width_bits, "num_dies": 1,
            },
            "timing": {
                **{name: clocks[name] for name in same}, "tCK": float(memory.clock.tCK),
                "CL": clocks["RL"], "CWL": clocks["WL"], "tRTRS": turnaround,
                "tRFC": clocks["tRFCab"], "tREFI": clocks["tREFI"] if refresh else 1 << 30,
            },
            "system": {
                "channel_size": o.capacity_bytes >> 20, "channels": 1, "bus_width": o.width_bits,
                "address_mapping": self.mapper, "queue_structure": "PER_RANK",
                "row_buf_policy": "OPEN_PAGE", "unified_queue": True, "trans_queue_size": 1,
                "cmd_queue_size": memory.controller.read_queue,
            },
            "other": {"epoch_period": 1 << 30, "output_level": 0},
        }  # fmt: skip
        return "".join(
            f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in section.items())
            for name, section in sections.items()
        )

    def theirs(self, place: str, trace: Path, refresh: bool, folder: Path) -> Found:
        settings = folder / "dramsim3.ini"
        settings.write_text(self.description(place, refresh), encoding="utf-8")

        def after(cycles: int) -> dict[str, int]:
            command = [str(self.built), str(settings), "-c", str(cycles), "-o", str(folder)]
            called([*command, "-t", str(trace)])
            found = json.loads((folder / "dramsim3.json").read_text(encoding="utf-8"))["0"]
            return {
                name: found[f"num_read_{name}"] + found[f"num_write_{name}"]
                for name in ("cmds", "row_hits")
            }

        # it simulates as many cycles as it is told: the fewest that serve all
        limit = 4 * MOST
        total = after(limit)
        last = bisect_left(range(limit), total["cmds"], key=lambda cycles: after(cycles)["cmds"])
        data = float(self.device(place).memory.clocks("RL + nBL"))
        return Found(last + data, total["row_hits"] / total["cmds"])


PEERS: tuple[type[Peer], ...] = (Ramulator, DRAMsim3)


def called(command: list[str], text: str = "", path: Path | None = None) -> None:
    """Run a peer. Raises RuntimeError with what it said."""
    env = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout)[-500:]}")


class PeerRow(NamedTuple):
    """A stream in a peer and in ours."""

    peer: str
    place: str
    traffic: str
    policy: str
    bursts: int
    writes: int
    ours: Found
    theirs: Found
    unmapped: Found | None
    """The peer's, of addresses by our map."""


def asked(place: str, policy: str, traffic: Traffic) -> Iterator[tuple[list[str], WantedTrace]]:
    """Settings of the sweep `quickstart`, and what is exported of it."""
    p = PLACES[place]
    settings = [
        f"device={p.device}", f"policy={policy}", f"load={{rate_per_s: {p.rate}}}",
        "serving.memory.fidelity=analytic", f"device_set.memory={p.memory}", f"device_set.{HASH}",
        *p.settings,
    ]  # fmt: skip
    for step in STEPS[: 1 if traffic.steps else None]:
        steps = traffic.steps or f"{step}:{step + p.steps[policy]}"
        yield settings, WantedTrace(steps=steps, phase=traffic.phase, channel=CHANNEL, at_once=True)


def exported(
    settings: list[str], wanted: WantedTrace, reads_only: bool, out: Path
) -> tuple[int, int]:
    """Write the first MOST bursts as `bankwise export` has them; bursts, and writes of them. What
    was exported stays beside `out`, for other traffic of the same steps."""
    key = repr((settings, wanted)).encode()
    whole = out.parent / f"{hashlib.sha256(key).hexdigest()}.whole"
    if not whole.exists():
        export("quickstart", whole, wanted, settings, 0)
    with whole.open(encoding="utf-8") as file:
        marked = ((line, line.startswith("ST ") or " WRITE " in line) for line in file)
        kept = list(islice((each for each in marked if not (reads_only and each[1])), MOST))
    out.write_text("".join(line for line, _ in kept), encoding="utf-8")
    return len(kept), sum(write for _, write in kept)


def rows(
    peer: Peer, place: str, name: str, folder: Path, policies: Iterable[str] = (),
    most: int | None = None,
) -> Iterator[PeerRow]:  # fmt: skip
    """The streams of a kind of traffic (a key of TRAFFIC) in a peer and in ours; of these policies,
    if any are named, and as many of STEPS as `most`. Files go into the folder."""
    traffic = TRAFFIC[name]
    plain, encoded, unmapped = (folder / f"{which}.trace" for which in ("a", "b", "c"))
    for policy in policies or traffic.policies:
        for settings, wanted in islice(asked(place, policy, traffic), most):
            for file, form, mapper in (
                (plain, "ramulator", None),
                (encoded, peer.form, peer.mapper),
                (unmapped, peer.form, None),
            ):
                if file != unmapped or name == "decode":
                    one = replace(wanted, format=form, mapper=mapper)
                    count = exported(settings, one, traffic.reads_only, file)
            yield PeerRow(
                peer.name, place, name, policy, *count,
                peer.ours(place, plain, traffic.refresh),
                peer.theirs(place, encoded, traffic.refresh, folder),
                peer.theirs(place, unmapped, True, folder) if name == "decode" else None,
            )  # fmt: skip


def agreement(found: list[PeerRow]) -> dict[str, Any]:
    """A line of the table: theirs over ours."""
    cycles = [row.theirs.cycles / row.ours.cycles for row in found]
    hits = [row.theirs.hits / row.ours.hits for row in found]
    return {
        "streams": len(found),
        "writes": round(sum(row.writes for row in found) / sum(row.bursts for row in found), 6),
        "cycles": round(sum(cycles) / len(cycles), 6),
        "cycles, at most": round(max(abs(ratio - 1) for ratio in cycles), 6),
        "row hits, at most": round(max(abs(ratio - 1) for ratio in hits), 6),
    }


def bandwidth(peer: Peer, place: str, found: list[PeerRow], which: str) -> dict[str, Any]:
    """A line of the table: each policy's share of the peak, and their order."""
    memory, shares = peer.device(place).memory, {}
    for policy in dict.fromkeys(row.policy for row in found):
        mine = [row for row in found if row.policy == policy]
        cycles = sum(getattr(row, which).cycles for row in mine)
        moved = sum(row.bursts for row in mine) * memory.organisation.burst_bytes
        shares[policy] = moved / (cycles * float(memory.clock.tCK)) / memory.peak_gbps
    order = " > ".join(sorted(shares, key=lambda policy: -shares[policy]))
    numbers = {policy: round(share, 6) for policy, share in shares.items()}
    return {**numbers, "odma over paged": round(shares["odma"] / shares["paged"], 6),
            "order": order}  # fmt: skip


def at(peer: Peer, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Lines of both tables by name: agreement, bandwidth."""
    lines = {
        f"bankwise set as {peer.name}": "ours",
        peer.name: "theirs",
        f"{peer.name} without --mapper": "unmapped",
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {name: list(rows(peer, place, name, Path(folder))) for name in TRAFFIC}
    agree = {f"{peer.name}, {place}, {name}": agreement(each) for name, each in found.items()}
    shares = {
        f"{place}, {label}": bandwidth(peer, place, found["decode"], which)
        for label, which in lines.items()
    }
    return agree, shares


def compared(peers: list[Peer]) -> dict[str, Any]:
    """The values of `peers.json`."""
    tasks = [(peer, place) for peer in peers for place in peer.places]
    with ProcessPoolExecutor() as pool:
        agree, shares = zip(*pool.map(at, *zip(*tasks, strict=True)), strict=True)
    return {
        "versions": {peer.name: peer.version for peer in peers},
        "bursts": MOST,
        "agreement": {name: line for each in agree for name, line in each.items()},
        "bandwidth": {name: line for each in shares for name, line in each.items()},
    }


def built() -> list[Peer]:
    """The peers whose variables are set."""
    return [
        peer(os.environ[VARIABLES[peer.name]])
        for peer in PEERS
        if VARIABLES[peer.name] in os.environ
    ]


def main() -> int:
    """Print the comparison; the exit status."""
    peers = built()
    if len(peers) < len(PEERS):
        print(f"set {' and '.join(VARIABLES.values())}; see docs/performance.md", file=sys.stderr)
        return 2
    print(json.dumps(compared(peers), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
