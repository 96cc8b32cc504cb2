"""What Linux tells of the machine that is measured; what it does not tell is None."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """The cores that this process may use, or those of a GPU, and the memory behind them."""

    cpu: str
    """As /proc/cpuinfo names it."""
    cores: tuple[int, ...]
    """Numbers of the logical CPUs that this process may run on."""
    cache_bytes: int | None
    """Last level, all of its instances that these cores reach."""
    governor: str | None
    """Of the first core's clock."""
    virtual: bool
    """Whether a hypervisor is below, so that others may use the same memory."""
    memory_bytes: int | None
    available_bytes: int | None
    load: float | None = None
    """Processes that ran or waited over the last minute, in the mean."""

    unit: str = "cores"
    """What `cores` are."""
    clocks: str = ""
    """What the driver of a GPU says of them."""

    @property
    def busy(self) -> bool:
        """Whether other processes take a part of what is measured: a quarter of a core or more."""
        return self.load is not None and self.load > 0.25

    @property
    def told(self) -> str:
        """In a line, without the share of it that was measured."""
        cache = "unknown" if self.cache_bytes is None else f"{self.cache_bytes / 2**20:g} MiB"
        parts = [
            self.cpu, f"{len(self.cores)} {self.unit}", f"last-level cache {cache}",
            self.clocks or f"governor {self.governor or 'not readable'}",
            "a virtual machine" * self.virtual,
        ]  # fmt: skip
        return ", ".join(filter(None, parts))


def read_machine(root: Path = Path("/"), cores: Iterable[int] | None = None) -> Machine:
    """The machine below `root`; `cores`: those of this process where they are not given."""
    if cores is None:
        affinity = getattr(os, "sched_getaffinity", None)
        cores = affinity(0) if affinity else range(os.cpu_count() or 1)
    chosen = tuple(sorted(cores))
    info, memory = _text(root / "proc/cpuinfo"), _text(root / "proc/meminfo")
    name = re.search(r"^model name\s*: (.+)$", info, re.MULTILINE)
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE)
    clock = f"sys/devices/system/cpu/cpu{chosen[0]}/cpufreq/scaling_governor"
    return Machine(
        name[1].strip() if name else platform.processor() or platform.machine(), chosen,
        _last_level(root, chosen), _text(root / clock).strip() or None, flags is not None,
        _kib(memory, "MemTotal"), _kib(memory, "MemAvailable"), _load(root),
    )  # fmt: skip


def _last_level(root: Path, cores: Iterable[int]) -> int | None:
    """Bytes of the caches of the highest level, each counted once."""
    found: dict[tuple[int, str], int] = {}
    for core in cores:
        for cache in root.glob(f"sys/devices/system/cpu/cpu{core}/cache/index*"):
            size = re.fullmatch(r"(\d+)K", _text(cache / "size").strip())
            level, kind = _text(cache / "level").strip(), _text(cache / "type").strip()
            if size and level.isdecimal() and kind != "Instruction":
                found[int(level), _text(cache / "shared_cpu_list").strip()] = int(size[1]) << 10
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last) or None


def _kib(text: str, key: str) -> int | None:
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def _load(root: Path) -> float | None:
    first = _text(root / "proc/loadavg").split(" ")[0]
    return float(first) if re.fullmatch(r"\d+\.\d+", first) else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
