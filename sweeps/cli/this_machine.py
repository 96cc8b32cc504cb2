"""The accelerator of this machine, as its driver names it, and what can be asked of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from hwmodel.description.library import LIBRARY

ASKED = (
    ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
    ("rocm-smi", "--showproductname", "--csv"),
    ("sysctl", "-n", "machdep.cpu.brand_string"),
)
"""Programs that name cards; what is not installed is not asked."""
PATIENCE_S = 3.0
KNOWN_AS = re.compile(r"^known_as: \[(.*)\]$", re.MULTILINE)


def this_accelerator() -> str | None:
    """The shipped accelerator that a driver of this machine names; None where there is none."""
    told = "\n".join(_told())
    for file in sorted((LIBRARY / "accelerators").glob("*.yaml")) if told else ():
        match = KNOWN_AS.search(file.read_text(encoding="utf-8"))
        names = match[1].split(", ") if match else []
        if any(re.search(rf"{re.escape(name)}(?![\w-])", told) for name in names):
            return file.stem
    return None


def _told() -> Iterator[str]:
    """What the programs say."""
    apple = sys.platform == "darwin"
    for command in ASKED:
        if (command[0] == "sysctl" and not apple) or shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            yield done.stdout


def suggestions() -> str:
    """Three commands for the card of this machine; empty where it is not known."""
    name = this_accelerator()
    if name is None:
        return ""
    return f"""
This machine's accelerator is described: {name}. To begin:
  bankwise fit {name} llama-3.1-8b
  bankwise size settings {name} --model llama-3.1-8b --workload sharegpt --slo ttft=2s,tpot=50ms
  bankwise run quickstart --set device={name}
"""
