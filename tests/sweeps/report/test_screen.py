"""Are tables plain lines off a terminal, and whole on one?"""

from __future__ import annotations

import sys

import pytest

from sweeps.report.screen import print_table


@pytest.mark.parametrize("terminal", [False, True])
def test_cells_are_printed_as_they_are(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    print_table(["name", "peak GB/s"], [["a[0]", "1.0"], ["b", "12.5"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["a[0]", "1.0"] and lines[-1].split() == ["b", "12.5"]
    assert lines[-2].index("1.0") == lines[-1].index("12.5") + 1
    assert terminal or lines == [
        "name  peak",
        "      GB/s",
        "----  ----",
        "a[0]   1.0",
        "b     12.5",
    ]
