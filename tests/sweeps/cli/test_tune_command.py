"""Does `bankwise size settings` say what it will try, and answer mistakes in a line?"""

from __future__ import annotations

import re
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise

SHARED = ("--workload", "sharegpt", "--slo", "ttft=2s,tpot=50ms")
PAIR = ("size", "settings", "rtx-4090", "--model", "llama-3.1-8b")


def test_a_dry_run_says_what_is_tried_and_how_long_it_takes(tmp_path: Path) -> None:
    done = bankwise(*PAIR, *SHARED, "--only", "kv,chunk", "--requests", "20", "--dry-run",
                    cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("at most 45 goodputs, ")
    assert re.search(r", (less than a|about \d+\.\d) CPU minutes?; tried:\s", done.stdout)
    assert "kv fp8_e4m3, chunk 512, chunk 1024, chunk 4096, chunk 8192" in " ".join(
        done.stdout.split()
    )
