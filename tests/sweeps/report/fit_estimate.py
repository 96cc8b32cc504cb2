"""Fit the exponents of `hwmodel.measure.estimate` to the cells of a run of the atlas:

python tests/sweeps/report/fit_estimate.py RUN_DIR
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from hwmodel.measure.estimate import FITTED, Exponents, estimate
from hwmodel.specs.device import load_device
from policies.requests.requests import FloatArray
from sweeps.plan.atlas import Cell, cells
from sweeps.plan.experiment import assignments
from sweeps.report.presenters import read_table
from sweeps.run.store import RunDirectory


def fit(found: list[Cell], name: str) -> Exponents:
    """The exponents of the estimate with the least mean squared error of the logarithm over the
    cells of device `name` that are not held out."""
    own = [cell for cell in found if cell.part == "fitted"]
    devices = [load_device(name, list(settings_of(cell.overrides))) for cell in own]

    def error(logs: FloatArray) -> float:
        p = Exponents(*np.exp(logs))
        pairs = zip(own, devices, strict=True)
        return float(np.mean([
            np.log(estimate(device, cell.extent, p).efficiency / cell.efficiency) ** 2
            for cell, device in pairs
        ]))  # fmt: skip

    best = minimize(error, np.log(FITTED), method="Nelder-Mead", options={"xatol": 0.02})
    return Exponents(*np.exp(best.x).round(2).tolist())


def settings_of(overrides: dict[str, Any]) -> Iterator[str]:
    """The overrides of a cell's device."""
    for path, value in overrides.items():
        head, _, key = path.partition(".")
        if head == "device_set":
            yield from assignments({key: value} if key else value)


if __name__ == "__main__":
    run = read_table(RunDirectory(Path(sys.argv[1])))
    print(fit(cells(run), run.config["base"]["device"]))
