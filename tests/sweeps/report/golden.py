"""What reports and answers say, as it was when somebody last looked at it.

`python -m tests.sweeps.report.golden` writes the files of `golden/` anew and prints what moved:
look at that before it is committed.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import unified_diff
from pathlib import Path
from zlib import crc32

import pytest

from sweeps.report.markdown import markdown
from sweeps.sections.section import Section

FOLDER = Path(__file__).with_name("golden")
ANEW = "BANKWISE_GOLDEN_ANEW"
SHOWN = 3
"""Rows of a long table that stand there as they are, from its top; of the others a checksum."""

ANYWHERE = {
    r"-?0\.0{9,}\d+": "0",  # but for rounding
    r"version \d+\.\d+\.\d+ did": "an older version did",
    r"bankwise \d+\.\d+\.\d+; descriptions \(SHA-256\) \w+": "bankwise; descriptions",
    r"Simulated in [\d.]+ s on \d+ threads?": "Simulated in a moment",
}
"""What hangs on a machine or a release, and what stands there instead."""


def text_of(*sections: Section) -> str:
    """Headings, sentences and tables; a chart is the table of what it draws."""
    text = markdown([*sections])
    for pattern, instead in ANYWHERE.items():
        text = re.sub(pattern, instead, text)
    return re.sub(r"(\|[ :|-]+\|\n)((?:\|.*\n){9,})", _shortened, text)


def _shortened(table: re.Match[str]) -> str:
    rows = table[2].splitlines(keepends=True)
    rest = "".join(rows[SHOWN:]).encode()
    return "".join([table[1], *rows[:SHOWN], f"| {len(rows) - SHOWN} rows: {crc32(rest):08x} |\n"])


def held(name: str, text: str) -> None:
    """Fails where `text` is not what was last looked at."""
    file = FOLDER / f"{name}.txt"
    if ANEW in os.environ:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        sys.stdout.writelines(
            unified_diff(before.splitlines(True), text.splitlines(True), name, name, n=1)
        )
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


if __name__ == "__main__":
    os.environ[ANEW] = "1"
    sys.exit(pytest.main(["-q", "-s", "-k", "last_looked_at", str(FOLDER.parents[1])]))
