"""Bursts a second of CPU time in other memory simulators and in ours, on the same streams
(docs/performance.md).

    BANKWISE_RAMULATOR=DIR BANKWISE_DRAMSIM3=FILE BANKWISE_DRAMSYS=FILE \\
        python -m tools.peers.speed [ROUNDS]

DIR: the folder `python` of Ramulator 2.1, built for this Python; the files: `dramsim3main`, and
the program `DRAMSys`. What has no variable is left out. A round runs a peer on a long and on a
short stream, and ours in between: the difference of the peer's two is the time of the bursts that
the long one has more, without its start. Into docs/release/speed.json, with the machine's load.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.peer_mapper import peer_mapper
from hwmodel.specs.device import Device, load_device
from tools.peers.peers import DRAMsim3, Ramulator
from tools.peers.streams import IntArray, pcg

OUT = Path(__file__).resolve().parents[2] / "docs/release/speed.json"
STREAMS = {"in order": "seq", "64 B at random": "rand64", "pages of 1 KiB": "page1k"}
LONG, SHORT, OURS = 320_000, 40_000, 5
"""Bursts of the two streams; how often ours runs the long one in a round."""
SYSTEMS = "dramsys-lpddr4-4266-x16"
Found = tuple[float, float]
"""CPU seconds, and nanoseconds of memory time (of DRAMsim3, which is told how many cycles to
simulate: how many of the bursts were served by then)."""


def cpu_s(command: list[str], text: str = "", **more: str) -> tuple[float, str]:
    """Of a program, and what it printed. Raises RuntimeError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, input=text, env={**os.environ, **more}, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {(done.stderr or done.stdout)[-400:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


class PeerProgram:
    """A peer that is built, and our memory with its settings."""

    def __init__(self, built: str, folder: Path) -> None:
        self.built, self.folder = Path(built).resolve(), folder

    def device(self) -> Device:
        raise NotImplementedError

    def run(self, address: IntArray, ns: float) -> Found:
        """Of reads at these addresses, for which ours needs `ns`."""
        raise NotImplementedError

    def written(self, address: IntArray, line: str) -> Path:
        """A trace with a line for each address."""
        file = self.folder / f"{type(self).__name__}-{len(address)}.stl"  # as DRAMSys wants it
        file.write_text("".join(line.format(each) for each in address.tolist()))
        return file


class OfRamulator(PeerProgram):
    """Of a place of `peers`."""

    place = "LPDDR5"

    def device(self) -> Device:
        return Ramulator("").device(self.place)

    def run(self, address: IntArray, ns: float) -> Found:
        device, out = self.device(), self.folder / "ramulator.json"
        mapped = peer_mapper(Ramulator.mapper, "ramulator", device, True)
        c = device.memory.controller
        asked = {
            **Ramulator.presets[self.place], "mapper": Ramulator.mapper, "refresh": True,
            "trace": str(self.written(mapped.encode(device, address, True), "LD {}\n")),
            "read_queue": c.read_queue, "write_queue": c.write_queue, "out": str(out),
            "drain_low": float(c.write_drain_low), "drain_high": float(c.write_drain_high),
        }  # fmt: skip
        program = str(Path(__file__).with_name("ramulator_run.py"))
        took, _ = cpu_s([sys.executable, program], json.dumps(asked), PYTHONPATH=str(self.built))
        return took, json.loads(out.read_text())["cycles"] * float(device.memory.clock.tCK)


class OfRamulatorHbm(OfRamulator):
    place = "HBM2"


class OfDRAMsim3(PeerProgram):
    def device(self) -> Device:
        return DRAMsim3("").device("HBM2")

    def run(self, address: IntArray, ns: float) -> Found:
        device, settings = self.device(), self.folder / "dramsim3.ini"
        settings.write_text(DRAMsim3("").description("HBM2", True), encoding="utf-8")
        mapped = peer_mapper(DRAMsim3.mapper, "dramsim3", device, True)
        trace = self.written(mapped.encode(device, address, True), "{:#x} READ 0\n")
        cycles = round(ns / float(device.memory.clock.tCK))
        command = [str(self.built), str(settings), "-c", str(cycles), "-o", str(self.folder)]
        took, _ = cpu_s([*command, "-t", str(trace)])
        served = json.loads((self.folder / "dramsim3.json").read_text())["0"]["num_read_cmds"]
        return took, ns * len(address) / served


class OfDRAMSys(PeerProgram):
    def device(self) -> Device:
        return load_device(SYSTEMS)

    def run(self, address: IntArray, ns: float) -> Found:
        trace, configs = self.written(address, "0:\tread\t{:#x}\n"), self._configs()
        memory = json.loads((configs / "memspec/JEDEC_1Gbx16_LPDDR4-4266.json").read_text())
        memory["memspec"]["memarchitecturespec"]["nbrOfRows"] = 65536
        places = {"BYTE_BIT": [0], "COLUMN_BIT": [*range(1, 11)], "BANK_BIT": [11, 12, 13],
                  "ROW_BIT": [*range(14, 30)]}  # fmt: skip
        controller = json.loads((configs / "mcconfig/fr_fcfs.json").read_text())["mcconfig"]
        controller |= {"RequestBufferSize": 32, "RefreshPolicy": "PerBank",
                       "MaxActiveTransactions": 512}  # fmt: skip
        simulated = json.loads((configs / "simconfig/example.json").read_text())["simconfig"]
        simulated |= {"DatabaseRecording": False, "SimulationProgressBar": False}
        player = {"type": "player", "clkMhz": 2133, "name": str(trace)}
        whole = {"simulation": {
            "addressmapping": places, "mcconfig": controller, "memspec": memory["memspec"],
            "simconfig": simulated, "simulationid": "speed", "tracesetup": [player],
        }}  # fmt: skip
        settings = self.folder / "dramsys.json"
        settings.write_text(json.dumps(whole))
        took, said = cpu_s([str(self.built), str(settings)])
        (told,) = re.findall(r"Total Time:\s*(\d+) ps", said)
        return took, float(told) / 1000

    def _configs(self) -> Path:
        """Its settings, in the clone that it was built in."""
        return next(each / "configs" for each in self.built.parents if (each / "configs").is_dir())


PAIRS: dict[str, tuple[str, type[PeerProgram]]] = {
    "Ramulator 2.1, LPDDR5": ("BANKWISE_RAMULATOR", OfRamulator),
    "Ramulator 2.1, HBM2": ("BANKWISE_RAMULATOR", OfRamulatorHbm),
    "DRAMsim3, HBM2": ("BANKWISE_DRAMSIM3", OfDRAMsim3),
    "DRAMSys 5.1, LPDDR4": ("BANKWISE_DRAMSYS", OfDRAMSys),
}
"""Name -> the variable that says where it is built, and how it is run."""


def ours(device: Device, address: IntArray) -> Found:
    """CPU seconds of one run of ours, and the memory's time."""
    began, write = time.process_time(), np.zeros(len(address), np.int64)
    for _ in range(OURS):
        loop = OpenLoop(device.memory)
        loop.feed(0, address, write)
        loop.finish()
    took = (time.process_time() - began) / OURS
    return took, float(device.memory.tick_clock.ns_of_ticks(loop.end_tick))


def compared(
    pair: PeerProgram, stream: str, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Medians over the rounds: bursts a second, theirs and ours, and the ratio of each round."""
    device = pair.device()
    address, _ = pcg(STREAMS[stream])
    address = address[:LONG]
    _, few_ns = ours(device, address[:SHORT])  # which also compiles
    _, many_ns = ours(device, address)
    mine, theirs, gap = [], [], 0.0
    for _ in range(rounds):
        many, ns = pair.run(address, many_ns)
        mine.append(LONG / ours(device, address)[0])
        theirs.append((LONG - SHORT) / (many - pair.run(address[:SHORT], few_ns)[0]))
        gap = ns / many_ns
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    found = {
        "theirs": median(theirs), "here": median(mine),
        "times as many": [median(ratios), min(ratios), max(ratios)], "their memory time": gap,
    }  # fmt: skip
    say(f"{found}, load {os.getloadavg()[0]:.1f}")
    return found


def main(rounds: int = 5) -> None:
    found: dict[str, Any] = {"machine": _processor(), "rounds": rounds, "pairs": {}, "loads": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, (variable, kind) in PAIRS.items():
            if not (built := os.environ.get(variable)):
                print(f"{name}: left out, {variable} is not set")
                continue
            pair = kind(built, Path(folder))
            for stream in STREAMS:
                say = lambda text, key=f"{name}, {stream}": print(f"{key}: {text}", flush=True)  # noqa: E731
                found["pairs"].setdefault(name, {})[stream] = compared(pair, stream, rounds, say)
                found["loads"].append(os.getloadavg()[0])
    if found["pairs"].keys() != PAIRS.keys():
        print(f"{OUT.name} is kept: it is of all peers")
        return
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _processor() -> str:
    """Its name, where Linux tells it."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", file.read_text()) if file.is_file() else []
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
