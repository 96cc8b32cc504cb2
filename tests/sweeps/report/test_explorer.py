"""Does the explorer show every place that was simulated, and say nothing of others?"""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.run.store import RunDirectory
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.made import CONFIG, PROVENANCE, metrics
from tests.sweeps.report.browser import CHROMIUM, Browser

RATES = {"paged": (40.0, 80.0, 160.0), "odma": (40.0, 90.0, 140.0)}
"""Output tokens/s at 1, 10 and 100 sequences, where the middle of 40 and 160 is 100."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDirectory(tmp_path_factory.mktemp("explored") / "run")
    axes = {"serving.engine.max_num_seqs": [1, 10, 100], "serving.policy": [*RATES]}
    run.create({**CONFIG, "axes": axes, "variants": {}}, PROVENANCE, {})
    points = [(n, name) for n in range(3) for name in RATES]
    for index, (n, name) in enumerate(points):
        for replication in (1, 2):
            run.append({
                "point": index, "control": "", "replication": replication, "seed": [1, replication],
                "overrides": dict(zip(axes, (10**n, name), strict=True)), "rate_per_s": 1.0,
                "metrics": metrics(RATES[name][n]),
            })  # fmt: skip
    run.release()
    return run.path


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_draws_every_simulated_point_along_an_axis(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    done = bankwise("report", "explore", simulated, "--out", page, cwd=tmp_path)
    assert done.stdout.endswith(f"wrote {page}\n")
    points = "[...document.querySelectorAll('.vega .mark-symbol.role-mark path')]"
    with Browser(tmp_path) as browser:
        browser.open(page, 390)
        browser.value("draw(charts[0]).then(() => true)")
        said = browser.value(f"{points}.map(each => each.getAttribute('aria-label')).join()")
        lines = browser.value("document.querySelectorAll('.vega .mark-line path').length")
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
    assert lines == 2 and "160" in said and "140" in said
