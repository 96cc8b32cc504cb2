"""Records: what named things said when they were last looked at, in a file beside its test.

A change that is meant to move some writes the file anew, and prints what has moved:

    python -m tests.policies.memory.test_step_records
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path


class Records:
    """Of `names`; `said(name)`: what one of them says now."""

    def __init__(self, file: Path, names: Iterable[str], said: Callable[[str], str]) -> None:
        self.file, self.names, self.said = file, list(names), said

    def check(self, name: str) -> None:
        """One that has gone, or has come, fails for all."""
        recorded: dict[str, str] = json.loads(self.file.read_text(encoding="utf-8"))
        assert recorded.keys() == set(self.names)
        assert self.said(name) == recorded[name]

    def write(self) -> None:
        file = self.file
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        now = {name: self.said(name) for name in self.names}
        for name, said in now.items():
            if before.get(name) != said:
                print(f"{name}: {before.get(name)} -> {said}")
        file.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
