"""Is the machine read as Linux states it?"""

from __future__ import annotations

from pathlib import Path

from bankwise_measure.machine import read_machine


def machine_at(root: Path) -> None:
    """Four cores, a cache of the third level for each two; the last one is not ours."""
    for core in range(4):
        cache = root / f"sys/devices/system/cpu/cpu{core}/cache"
        pair = f"{core // 2 * 2}-{core // 2 * 2 + 1}"
        for i, (level, kind, size, shared) in enumerate(
            [("1", "Data", "32K", str(core)), ("1", "Instruction", "64K", str(core)),
             ("3", "Unified", "16384K", pair)]
        ):  # fmt: skip
            (cache / f"index{i}").mkdir(parents=True)
            for name, text in (
                ("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)
            ):  # fmt: skip
                (cache / f"index{i}" / name).write_text(text + "\n")
        clock = root / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        clock.mkdir()
        (clock / "scaling_governor").write_text("powersave\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("model name\t: A CPU\nflags\t\t: fpu hypervisor sse\n")
    (root / "proc/meminfo").write_text("MemTotal: 1024 kB\nMemAvailable:   512 kB\n")
    (root / "proc/loadavg").write_text("1.50 1.20 0.90 2/345 678\n")


def test_each_last_level_cache_of_our_cores_counts_once(tmp_path: Path) -> None:
    machine_at(tmp_path)
    assert read_machine(tmp_path, [0, 1]).cache_bytes == 16 << 20
    assert read_machine(tmp_path, [1, 2]).cache_bytes == 32 << 20


def test_what_linux_states_is_in_the_machine(tmp_path: Path) -> None:
    machine_at(tmp_path)
    found = read_machine(tmp_path, [0])
    assert (found.cpu, found.governor, found.virtual) == ("A CPU", "powersave", True)
    assert (found.memory_bytes, found.available_bytes) == (1 << 20, 1 << 19)
    assert found.load == 1.5 and found.busy


def test_what_is_not_stated_is_unknown(tmp_path: Path) -> None:
    found = read_machine(tmp_path, [0])
    assert (found.cache_bytes, found.governor, found.available_bytes) == (None, None, None)
    assert not found.virtual and not found.busy
    assert "governor not readable" in found.told
