"""Is a run that is short beside its batch told apart, with the shortest that counts?"""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.report.run_length import too_short, will_be_short
from sweeps.run.reading import read_sweep
from sweeps.run.store import RunDirectory
from tests.sweeps.made import CONFIG, made


@pytest.mark.parametrize(("batch", "shortest"), [(15.0, None), (30.0, 300)])
def test_a_run_of_few_requests_beside_its_batch_names_the_shortest_that_counts(
    batch: float, shortest: int | None, tmp_path: Path
) -> None:
    config = {**CONFIG, "base": {**CONFIG["base"], "requests": 100}}  # and 20 of warm-up
    said = too_short(read_sweep(RunDirectory(made(tmp_path / "run", config=config, batch=batch))))
    assert len(said) == (shortest is not None)
    assert all(text.endswith(f"--set requests={shortest}") for text in said)


def test_what_was_tried_before_a_run_says_that_it_will_be_too_short() -> None:
    assert will_be_short([(120, 15.0)]) is None
    said = will_be_short([(120, 15.0), (120, 41.0)])
    assert said is not None and said.endswith("--set requests=300")


def test_a_case_with_requests_of_its_own_is_as_long_as_these_make_it(tmp_path: Path) -> None:
    cases = {
        "long": {"set": {"requests": 400}, "role": "case"},
        "short": {"set": {"warmup_requests": 0}, "role": "case"},
    }
    config = {**CONFIG, "base": {**CONFIG["base"], "requests": 100}, "variants": cases}
    for case, count in (("long", 0), ("short", 1)):
        run = made(tmp_path / case, config=config, batch=30.0)
        file = run / "results.jsonl"
        within = f'"overrides": {{"case": "{case}", '
        file.write_text(file.read_text().replace('"overrides": {', within))
        assert len(too_short(read_sweep(RunDirectory(run)))) == count
