"""Charts as tables."""

from __future__ import annotations

from sweeps.report.markdown import markdown
from sweeps.sections.chart import Bars
from sweeps.sections.section import Section


def test_shares_are_percent_as_their_titles_say() -> None:
    shares = Bars.stacked("Step time, %", ["weights", "KV"], {"paged": [0.25, 0.75]})
    energy = Bars.stacked("Energy, mJ", ["read"], {"paged": [0.25]}, share=False)
    text = markdown([Section("", [shares, energy])])
    assert "| paged | 25 | 75 |" in text
    assert "| paged | 0.25 |" in text
