"""Generated memories, controllers and streams, and the bridge from the oracle's log to arrays.

A generated memory is a shipped description with other numbers, places and rows. What is drawn is
legal but need not be sensible; only what would leave the controller no legal command for ever is
avoided, and said.
"""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hwmodel.description.based_on import complete
from hwmodel.description.description import Document, Mark
from hwmodel.description.library import find, names
from hwmodel.description.yaml_reader import load
from hwmodel.oracle.command_log import CODE, CommandLog
from hwmodel.specs.commands import MAX_WINDOWS, POWER_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.oracle.reference import Issued

GENERATED = Mark("generated")
SHIPPED = names("memories")
COLUMN = ["RD", "RDA", "WR", "WRA"]
MASKED = ["MWR", "MWRA"]

# Clocks, by the head of a timing's name; the rest are drawn from 1 to 10.
RANGES = {
    "nBL": (1, 4), "RL": (2, 20), "WL": (1, 12), "tRCD": (2, 16), "tRP": (2, 16), "tRAS": (4, 30),
    "tRC": (6, 40), "tWR": (1, 16), "tFAW": (4, 30), "tRFC": (5, 40), "tpbR2pbR": (2, 25),
    "nRBTP": (0, 6), "nWCKPST": (0, 3), "tCCD_S": (1, 4), "tPPD": (0, 4), "tAAD": (5, 12),
    "DQ_ODT": (0, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One thing to simulate."""

    memory: MemorySpec
    requests: list[tuple[int, int, int]]
    """(arrival tick, address, kind)."""
    channel: int
    channels: int
    passed: int = 0
    """Ticks for which what comes at intervals has come already."""
    owed: tuple[int, ...] | None = None
    """Refreshes that each rank owes then; None: those that are not urgent."""


@functools.cache
def _shipped(name: str) -> bytes:
    """Pickled: a copy of it comes back in a fifth of the time of a deep copy."""
    found = load(find("memories", name))
    complete(found)
    return pickle.dumps(found)


def document(name: str) -> Document:
    """A shipped memory's document, free to be changed."""
    found: Document = pickle.loads(_shipped(name))
    return found


def spec(name: str, **changes: Any) -> MemorySpec:
    """A shipped memory with changes; `timing__tRCD="9nCK"` is the path timing.tRCD."""
    made = document(name)
    for path, value in changes.items():
        made.put(tuple(path.split("__")), value, GENERATED)
    return made.build(MemorySpec)


def command_log(commands: Iterable[Issued]) -> CommandLog:
    """The oracle's log as arrays."""
    rows = [
        (
            c.tick,
            CODE[c.command],
            c.pseudochannel,
            c.rank,
            c.stack,
            c.bankgroup,
            c.bank,
            c.row,
            c.column,
        )
        for c in commands
    ]
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 9)
    return CommandLog(*(np.ascontiguousarray(table[:, i]) for i in range(9)))


def _clocks(draw: st.DrawFn, low: int, high: int, ticks_per_ck: int) -> str:
    ticks = draw(st.integers(low * ticks_per_ck, high * ticks_per_ck))
    return f"{ticks / ticks_per_ck:g}nCK"


HASHED = ("bank", "bankgroup", "stack", "rank", "pseudochannel")


def _organisation(draw: st.DrawFn, made: Document) -> None:
    width, burst = (
        made.get(("organisation", "width_bits")),
        made.get(("organisation", "burst_length")),
    )
    payload = made.get(("organisation", "payload_bytes"))
    data = width * burst // 8 if payload is None else int(payload[:-1])
    sizes = {
        "pseudochannels": draw(st.sampled_from([1, 2])),
        "ranks": draw(st.sampled_from([1, 2])),
        "stacks": draw(st.sampled_from([1, 1, 2, 3])),
        "bankgroups": draw(st.sampled_from([1, 2, 4])),
        "banks_per_group": draw(st.sampled_from([1, 2, 4])),
        "rows": draw(st.sampled_from([4, 64, 48])),
        "row_bytes": f"{draw(st.sampled_from([2, 8, 16])) * data}B",
    }
    if sizes["stacks"] == 3:  # few enough places for windows
        sizes["ranks"] = 1
    for name, size in sizes.items():
        made.put(("organisation", name), size, GENERATED)
    if payload is None and draw(st.booleans()):  # an eighth more on the wires
        made.put(("organisation", "payload_bytes"), f"{data}B", GENERATED)
        made.put(("organisation", "burst_length"), burst * 9 // 8, GENERATED)
    made.put(("clock", "ticks_per_ck"), draw(st.sampled_from([1, 1, 2])), GENERATED)


def _timings(draw: st.DrawFn, made: Document) -> None:
    """Any numbers; or bursts so dense that the command bus is full and deadlines press."""
    ticks_per_ck = made.get(("clock", "ticks_per_ck"))
    for name in list(made.data["timing"]):
        fitting = [head for head in RANGES if name.startswith(head)]
        low, high = RANGES[max(fitting, key=len)] if fitting else (1, 10)
        made.put(("timing", name), _clocks(draw, low, high, ticks_per_ck), GENERATED)
    if draw(st.booleans()):
        for name in ("nBL", "tCCD_S", "tCCD_L"):
            made.put(("timing", name), "1nCK", GENERATED)


def _buses(draw: st.DrawFn, made: Document, ticks_per_ck: int) -> None:
    """One bus or two, shared by pseudo-channels or not, and commands of 0.5 to 2 slots."""
    scope = draw(st.sampled_from(["channel", "pseudochannel"]))
    split = draw(st.booleans())
    made.put(("buses",), {"row": {"scope": scope}, "column": {"scope": scope}}, GENERATED)
    slots = st.sampled_from([0.5, 1.0, 1.0, 1.5, 2.0])
    columns, masked, others = draw(slots), draw(slots), draw(slots)
    first = draw(slots)
    second = draw(slots)
    if scope == "channel":
        second = min(first, second)  # or two pairs could leave each other's ACT2 no place
    for name in list(made.data["commands"]):
        length = {"ACT": first, "ACT1": first, "ACT2": second}.get(name, others)
        bus = "column" if split and name in (*COLUMN, *MASKED, "CAS") else "row"
        if name in (*COLUMN, *MASKED):
            length = masked if name in MASKED else columns
        value = {"bus": bus, "slots": length}
        made.put(("commands", name), value, GENERATED)


def _activation(draw: st.DrawFn, made: Document) -> None:
    """Activation in one step or two, whatever the shipped memory has."""
    rows, commands = made.data["constraints"], dict(made.data["commands"])
    two = draw(st.booleans())
    commands.pop("ACT", None), commands.pop("ACT1", None), commands.pop("ACT2", None)
    rows = [row for row in rows if row["before"] != "ACT2"]
    if not two:
        commands["ACT"] = {"bus": "row"}
        rows = [_renamed(row, {"ACT1": "ACT", "ACT2": "ACT"}) for row in rows]
        activate: dict[str, Any] = {"steps": 1}
    else:
        commands |= {"ACT1": {"bus": "row"}, "ACT2": {"bus": "row"}}
        # A refresh between ACT1 and ACT2 must not keep ACT2 from its deadline: it delays ACT1.
        rows = [part for row in rows for part in _by_activation(row)]
        rows = [
            {**row, "before": _swap(row["before"], {"ACT": "ACT1"})}
            if row["scope"] != "bank" and "ACT" not in _listed(row["after"])
            else row
            for row in rows
        ]
        rows.append(
            {"scope": "bank", "after": "ACT1", "before": "ACT2", "delay": draw(st.integers(1, 2))}
        )
        activate = {
            "steps": 2,
            "reference": draw(st.sampled_from(["ACT1", "ACT2"])),
            "max_gap": draw(st.sampled_from([2, 2, 3, 4, 12])),
            "second": draw(st.sampled_from(["eager", "lazy"])),
        }
    made.put(("constraints",), rows, GENERATED)
    made.put(("commands",), commands, GENERATED)
    made.put(("activate",), activate, GENERATED)


def _by_activation(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row, or two where it counts from activations and from other commands as well; a window
    counts activations alone."""
    after = _listed(row["after"])
    others = [name for name in after if name != "ACT"]
    if len(others) in (0, len(after)):
        return [row]
    if "window" in row:
        return [{**row, "after": ["ACT"]}]
    return [{**row, "after": ["ACT"]}, {**row, "after": others}]


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _swap(value: Any, new: dict[str, str]) -> list[str]:
    return [new.get(name, name) for name in _listed(value)]


def _renamed(row: dict[str, Any], new: dict[str, str]) -> dict[str, Any]:
    return {**row, "after": _swap(row["after"], new), "before": _swap(row["before"], new)}


def _sync(draw: st.DrawFn, made: Document) -> None:
    """A data clock or none. CAS holds long enough for its column command to follow."""
    rows = [row for row in made.data["constraints"] if "CAS" not in _listed(row["after"])]
    commands = {k: v for k, v in made.data["commands"].items() if k != "CAS"}
    made.data.pop("sync", None)
    if draw(st.booleans()):
        commands["CAS"] = {"bus": "row"}
        delay = draw(st.integers(1, 3))
        rows.append({"scope": "rank", "after": "CAS", "before": COLUMN, "delay": delay})
        if draw(st.booleans()):
            rows.append(
                {
                    "scope": "rank",
                    "after": COLUMN,
                    "before": "CAS",
                    "delay": draw(st.integers(1, 3)),
                }
            )
        hold = {name: draw(st.integers(0, 30)) for name in ("RD", "WR")}
        hold["CAS"] = draw(st.integers(6, 30))
        always = draw(st.sampled_from([False, False, False, True]))
        made.put(("sync",), {"hold": hold, "always_on": always}, GENERATED)
    made.put(("constraints",), rows, GENERATED)
    made.put(("commands",), commands, GENERATED)


def _data(draw: st.DrawFn, made: Document) -> None:
    """A burst in one piece, or in two with a hole that another burst may fill."""
    pieces = draw(st.sampled_from([[[0, "nBL"]], [[0, 2], [4, 6]], [["nBL", "nBL + 1"]]]))
    for kind, latency in (("read", "RL"), ("write", "WL")):
        made.put(("data", kind), {"latency": latency, "segments": pieces}, GENERATED)


def _extra_rows(draw: st.DrawFn, made: Document) -> None:
    """Some rows go, some join: every scope, windows, and the other_* scopes.

    Rows that span pseudo-channels never delay ACT2: another pseudo-channel could keep it past its
    deadline.
    """
    rows = list(made.data["constraints"])
    for _ in range(draw(st.integers(0, 4))):
        chosen = draw(st.integers(0, len(rows) - 1))
        if rows[chosen]["before"] != "ACT2":
            rows.pop(chosen)
    scopes = ["other_stack", "other_rank", "stack", "bankgroup", "rank", "pseudochannel", "channel"]
    reference = made.get(("activate", "reference"), "ACT")
    kinds = [["RD", "RDA"], ["WR", "WRA"], COLUMN, ["ACT"]]
    for _ in range(draw(st.integers(0, 5))):
        scope = draw(st.sampled_from(scopes))
        allowed = kinds[:3] if scope == "channel" and reference == "ACT2" else kinds
        after = draw(st.sampled_from(allowed))
        row = {"scope": scope, "after": after, "before": draw(st.sampled_from([after, *allowed]))}
        if "ACT" in row["before"] and reference == "ACT2" and after != ["ACT"]:
            row["before"] = ["ACT1"]  # a column command must not keep ACT2 past its deadline
        window = draw(st.sampled_from([None, None, 1, 2, 4]))
        if scope.startswith("other_") or sum("window" in r for r in rows) >= MAX_WINDOWS:
            window = None
        delay = draw(st.integers(0, 8)) * (window or 1)
        rows.append(
            {
                **row,
                "delay": delay,
                **(
                    {"window": window}
                    if window and not str(row["scope"]).startswith("other_")
                    else {}
                ),
            }
        )
    made.put(("constraints",), rows, GENERATED)


def _refresh(draw: st.DrawFn, made: Document) -> None:
    """Sets of one bank, of pairs near or far, or all in one; intervals short enough for many."""
    o = made.data["organisation"]
    banks = o["stacks"] * o["bankgroups"] * o["banks_per_group"]
    half = banks // 2
    choices: list[Any] = ["single", [list(range(banks))]]
    if banks % 2 == 0:
        choices += [[[i, i + half] for i in range(half)], [[i + 1, i] for i in range(0, banks, 2)]]
    sets = draw(st.sampled_from(choices))
    count = banks if sets == "single" else len(sets)
    policy = made.get(("controller", "refresh"))
    interval = (
        draw(st.integers(150, 400)) if policy != "per_bank" else draw(st.integers(80, 160)) * count
    )
    interval += draw(st.integers(0, 7))
    made.put(("timing", "tREFI"), f"{interval}nCK", GENERATED)
    made.put(("refresh", "all_bank"), {"interval": "tREFI"}, GENERATED)
    made.put(("refresh", "per_bank"), {"interval": "tREFI", "sets": sets}, GENERATED)
    made.put(("refresh", "derating"), draw(st.sampled_from([1, 1, 0.8, 1.25])), GENERATED)
    _management(draw, made)
    _alerts(draw, made)
    _power(draw, made)


def _power(draw: st.DrawFn, made: Document) -> None:
    """Some power down or refresh themselves, at once, soon or late."""
    for name in ("power_down", "self_refresh"):
        if draw(st.integers(0, 2)) == 0:
            quiet = f"{draw(st.sampled_from([0, 5, 40, 200]))}ns"
            made.put(("controller", f"{name}_after"), quiet, GENERATED)
    if made.get(("controller", "self_refresh_after"), None) and draw(st.booleans()):
        quiet = f"{draw(st.sampled_from([0, 50, 300]))}ns"
        made.put(("controller", "deep_sleep_after"), quiet, GENERATED)
    states = ("power_down", "self_refresh", "deep_sleep")
    leave = {f"{name}_exit": draw(st.integers(0, 30)) for name in states}
    leave |= {f"{name}_stay": draw(st.sampled_from([0, 0, 3, 20])) for name in states}
    made.put(("power_states",), leave, GENERATED)
    if draw(st.booleans()):
        for name in POWER_COMMANDS:
            made.put(("commands", name), {"bus": "row"}, GENERATED)
    for name in ("power_down_precharged", "power_down_active", "self_refresh", "deep_sleep"):
        made.put(("energy", "background", name), "1mW", GENERATED)


def _management(draw: st.DrawFn, made: Document) -> None:
    """RFMs in some, after few activations or more, and with rows of their own or not."""
    if draw(st.booleans()):
        limits = {
            "RAAIMT": draw(st.integers(1, 5)),
            "RAAMULT": draw(st.integers(1, 4)),
            "RAADEC": draw(st.sampled_from([0.5, 1, 1.5])),
            "RAAREF": draw(st.sampled_from([0, 0.5, 1])),
        }
        made.put(("refresh", "management"), limits, GENERATED)
        made.put(("controller", "refresh_management"), "rfm", GENERATED)
        rows = [row for row in made.data["constraints"] if "RFM" not in _listed(row["after"])]
        if draw(st.booleans()):
            row = {"scope": "bank", "after": "RFM", "before": ["ACT1", "REFPB"]}
            rows.append({**row, "delay": draw(st.integers(1, 40))})
        if draw(st.booleans()):
            rows.append({"scope": "rank", "after": "ACT", "before": "RFM", "delay": 9})
        made.put(("constraints",), rows, GENERATED)


def _alerts(draw: st.DrawFn, made: Document) -> None:
    """Rows counted in some, with alerts after few activations or more."""
    if draw(st.integers(0, 2)) == 0:
        alerts = {
            "threshold": draw(st.integers(1, 6)),
            "react": draw(st.integers(0, 60)),
            "rfms": draw(st.sampled_from([1, 2, 4])),
            "delay": draw(st.integers(0, 4)),
            "reset": draw(st.sampled_from(["rfm", "refresh"])),
            "refreshes": draw(st.sampled_from([1, 2, 3, 8])),
        }
        made.put(("refresh", "alerts"), alerts, GENERATED)
        made.put(("controller", "row_counting"), "prac", GENERATED)
        rows = [row for row in made.data["constraints"] if "RFMAB" not in _listed(row["after"])]
        if draw(st.booleans()):
            row = {"scope": "rank", "after": "RFMAB", "before": ["ACT1", "REFPB", "RFMAB"]}
            rows.append({**row, "delay": draw(st.integers(1, 40))})
        if draw(st.booleans()):
            rows.append({"scope": "rank", "after": "REFPB", "before": "RFMAB", "delay": 9})
        made.put(("constraints",), rows, GENERATED)


PERIODIC = ("ZQCAL", "MRR", "SCRUB")


def _periodic(draw: st.DrawFn, made: Document) -> None:
    """In some up to three commands of no standard, at intervals, with rows of their own; as many as
    find a lane, and often due at once."""
    if (wanted := draw(st.sampled_from([0, 0, 0, 1, 2, 3]))) == 0:
        return
    lanes = made.build(MemorySpec).unissued - {"PREA"}
    described = PERIODIC[: min(wanted, len(lanes))]
    first = "ACT1" if made.get(("activate", "steps"), 1) == 2 else "ACT"
    rows: list[dict[str, Any]] = []
    for name in described:
        banks = draw(st.sampled_from(["open", "closed"]))
        command = {"kind": "PERIODIC", "bus": "row", "every": 1 << 20, "banks": banks}
        made.put(("commands", name), {**command, "slots": 2}, GENERATED)
        opens = [first, *COLUMN, "PRE", *described][: draw(st.integers(1, 9))]
        rows.append({"scope": "rank", "after": name, "before": opens, "delay": 20})
        if draw(st.booleans()):
            rows.append({"scope": "rank", "after": COLUMN, "before": [name], "delay": 7})
        if draw(st.integers(0, 3)) == 0:
            scope = draw(st.sampled_from(["rank", "other_rank", "pseudochannel", "channel"]))
            after = draw(st.sampled_from(described))
            rows.append({"scope": scope, "after": after, "before": [name], "delay": 12})
    made.put(("constraints",), [*made.data["constraints"], *rows], GENERATED)
    closing = made.build(MemorySpec).closing_ticks() if described else 0
    for name in described:
        every = draw(st.integers(60, 400))
        if made.get(("commands", name, "banks")) == "closed":
            every = 4 * closing + 100
        every *= len(described) * draw(st.sampled_from([1, 1, 2]))
        made.put(("commands", name, "every"), every, GENERATED)


def _controller(draw: st.DrawFn, made: Document) -> None:
    scheduler = draw(st.sampled_from(["frfcfs", "frfcfs_oldest_ready", "fcfs"]))
    low, high = sorted(
        (draw(st.sampled_from([0.0, 0.2, 0.5])), draw(st.sampled_from([0.3, 0.8, 1.0])))
    )
    value = {
        "scheduler": scheduler,
        "queue_scope": draw(st.sampled_from(["channel", "bank", "both_pseudochannels"])),
        "queue_reuse": draw(st.sampled_from(["same_tick", "same_tick", "next_tick"])),
        "queues": draw(st.sampled_from(["separate", "separate", "shared"])),
        "write_forwarding": draw(st.booleans()),
        "partial_write": draw(st.sampled_from(["masked", "read_modify_write"])),
        "page_timeout": f"{draw(st.sampled_from([1, 10, 60, 300]))}ns",
        "refresh_order": draw(st.sampled_from(["round_robin", "idle_first"])),
        "refresh_postpone": draw(st.sampled_from([0, 0, 1, 2, 4, 8, 8])),
        "read_queue": draw(st.integers(1, 8)),
        "write_queue": draw(st.integers(1, 8)),
        "write_drain_low": low,
        "write_drain_high": high,
        "page_policy": draw(st.sampled_from(["open", "closed", "timeout", "adaptive"])),
        "refresh": draw(st.sampled_from(["all_bank", "per_bank", "none"])),
        "refresh_phase": draw(st.sampled_from(["aligned", "staggered"])),
        "row_hit_limit": draw(st.integers(0, 4)),
        "activation_buffer": 0 if scheduler == "fcfs" else draw(st.integers(0, 4)),
    }
    made.put(("controller",), value, GENERATED)


def _address_map(draw: st.DrawFn, made: Document) -> None:
    """Every field that has bits, in any order, columns in one run or two; sizes that are no power
    of two above at least 8 bits; and up to two hashes."""
    o = made.data["organisation"]
    burst = o["width_bits"] * o["burst_length"] // 8
    burst = int(o.get("payload_bytes", f"{burst}B")[:-1])
    columns = int(o["row_bytes"][:-1]) // burst
    odd = [name for name in ("row", "stack") if o[name + "s"] & (o[name + "s"] - 1)]
    if odd:
        columns = max(columns, 256)
        made.put(("organisation", "row_bytes"), f"{columns * burst}B", GENERATED)
    sizes = {
        "bank": o["banks_per_group"], "bankgroup": o["bankgroups"], "stack": o["stacks"],
        "rank": o["ranks"], "pseudochannel": o["pseudochannels"], "row": o["rows"],
    }  # fmt: skip
    runs = [(name, (size - 1).bit_length()) for name, size in sizes.items() if size > 1]
    bits = columns.bit_length() - 1
    low = draw(st.integers(0, bits))
    runs += [("column", part) for part in (low, bits - low) if part]
    order = draw(st.permutations(runs))
    order = sorted(order, key=lambda run: run[0] in odd)
    made.put(("address_map",), [f"{name}:{size}" for name, size in order], GENERATED)
    hashes = st.fixed_dictionaries(
        {
            "field": st.sampled_from(
                [each for each in HASHED if each != "stack" or each not in odd]
            ),
            "row_bit": st.integers(0, 3),
        }
    )
    made.put(("bank_hash",), draw(st.lists(hashes, max_size=2)), GENERATED)


def _every_command(made: Document) -> None:
    """Commands that a controller may need and the shipped memory does without."""
    for name in ("RDA", "WRA", "PREA", "REFAB", "REFPB", "RFM", "RFMAB"):
        if name not in made.data["commands"]:
            made.put(("commands", name), {"bus": "row"}, GENERATED)


def _masked_writes(draw: st.DrawFn, made: Document) -> None:
    """Masked writes as commands of their own or not, and rows that name them."""
    rows = [row for row in made.data["constraints"] if "MWR" not in _listed(row["before"])]
    commands = {k: v for k, v in made.data["commands"].items() if k not in MASKED}
    if draw(st.booleans()):
        commands |= {name: {"bus": "row"} for name in MASKED}
        kinds = [MASKED, MASKED, ["MWR"], ["WR", "WRA"], ["RD", "RDA"]]
        for _ in range(draw(st.integers(0, 3))):
            after, before = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds[:3]))
            if draw(st.booleans()):
                after, before = before, after
            scope = draw(st.sampled_from(["bank", "bank", "bankgroup", "rank", "other_rank"]))
            row = {"scope": scope, "after": after, "before": before}
            row["delay"] = draw(st.integers(1, 30))
            if scope in ("bankgroup", "rank") and draw(st.booleans()):
                row["window"] = draw(st.integers(1, 3))
            rows.append(row)
    made.put(("constraints",), rows, GENERATED)
    made.put(("commands",), commands, GENERATED)


@st.composite
def memories(draw: st.DrawFn) -> MemorySpec:
    """A memory with its controller."""
    made = document(draw(st.sampled_from(SHIPPED)))
    _every_command(made)
    _masked_writes(draw, made)
    _organisation(draw, made)
    _timings(draw, made)
    _controller(draw, made)
    _refresh(draw, made)
    _activation(draw, made)
    _sync(draw, made)
    _data(draw, made)
    _buses(draw, made, made.data["clock"]["ticks_per_ck"])
    _extra_rows(draw, made)
    _address_map(draw, made)
    _periodic(draw, made)
    return made.build(MemorySpec)


@st.composite
def streams(draw: st.DrawFn, memory: MemorySpec, most: int = 150) -> list[tuple[int, int, int]]:
    """Up to `most` requests (arrival tick, address, kind); pattern, mix and gaps are drawn."""
    o = memory.organisation
    pattern = draw(st.sampled_from(["sequential", "random", "rows", "one bank", "few bursts"]))
    writes = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    partial = draw(st.sampled_from([0.0, 0.3, 0.7]))
    gaps = draw(st.sampled_from(["none", "none", "short", "long"]))
    count = draw(st.integers(1, most))
    chance = random.Random(draw(st.integers(0, 2**16)))
    span = o.capacity_bytes
    bases = [chance.randrange(span) for _ in range(chance.randint(1, 6))]
    tick, found = 0, []
    for number in range(count):
        if gaps != "none" and chance.random() < 0.3:
            tick += chance.randint(1, 12 if gaps == "short" else 400)
        if pattern == "sequential":
            address = (bases[0] + number * o.burst_bytes) % span
        elif pattern == "random":
            address = chance.randrange(span)
        elif pattern == "rows":
            address = (chance.choice(bases) + chance.randrange(4) * o.burst_bytes) % span
        elif pattern == "one bank":
            address = (bases[0] + chance.randrange(8) * (span // 8)) % span
        else:
            address = bases[0] + chance.randrange(3) * o.burst_bytes
        kind = 0 if chance.random() >= writes else 2 if chance.random() < partial else 1
        found.append((tick, address % span, kind))
    return found


@st.composite
def cases(draw: st.DrawFn, most: int = 150) -> Case:
    """A memory, a stream for it, and which of how many channels it is."""
    memory = draw(memories())
    channels = draw(st.integers(1, 4))
    channel = draw(st.integers(0, channels - 1))
    passed = draw(st.sampled_from([0, 1])) and draw(st.integers(1, 3 * _longest_interval(memory)))
    owed, ranks = None, memory.organisation.count("rank")
    if passed and draw(st.booleans()):
        most_owed = memory.controller.refresh_postpone * memory.refreshes_per_round
        owed = tuple(draw(st.integers(0, most_owed)) for _ in range(ranks))
    return Case(memory, draw(streams(memory, most)), channel, channels, passed, owed)


def _longest_interval(memory: MemorySpec) -> int:
    """Ticks."""
    return max(memory.refresh_ticks(), *memory.periodic.values(), 1)
