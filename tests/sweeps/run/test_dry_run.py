"""Does an estimate of a long run stay short?"""

from __future__ import annotations

import pytest

from sweeps.plan.sweep import load_sweep
from sweeps.run import dry_run


def test_where_one_point_takes_long_no_other_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = load_sweep("smoke", ["requests=20", "warmup_requests=10"])
    assert dry_run.dry_run(sweep).timed == 2
    monkeypatch.setattr(dry_run, "ENOUGH_S", -1.0)
    assert dry_run.dry_run(sweep).timed == 1
