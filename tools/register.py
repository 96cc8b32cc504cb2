"""Predictions for what nobody has measured yet, with their intervals, into a file of measurements.

    python -m tools.register NAME|FILE

Cells without `measured` and `prediction` get the model's figure of today and the interval in which
19 in 20 measured ones are expected: of steps that of the class of kernels, of attention's rate a
tenth, of a share of layout 8 points: twice what an H100 was off (docs/validation.md), and what the
alignment of sequences moves on LPDDR. What has a prediction stays as it is, so that nothing is
predicted twice. `bankwise validate` lists them as open, and judges each once it has `measured`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hwmodel.description.library import find
from hwmodel.description.yaml_reader import loads
from hwmodel.specs.device import load_device
from policies.memory.measured import Cell, MeasurementSpec, assignments, compare
from policies.memory.measured_cells import Compared

RATE, LAYOUT = 0.1, 0.08
_PLACEHOLDER = {"decode": "ms", "prefill": "ms", "attention": "GB/s"}


def interval(spec: MeasurementSpec, item: Compared) -> tuple[float, float]:
    """Where 19 in 20 figures of a cell are expected, in its unit."""
    cell = item.cell
    if cell.kind == "attention":
        off = LAYOUT if cell.divided else RATE * item.model
        return item.model - off, item.model + off
    assert isinstance(cell, Cell)
    settings = dict(spec.setups[cell.setup]) if cell.setup else {}
    device = load_device(str(settings.pop("device", spec.device)), assignments(settings))
    assert device.accelerator is not None
    law = device.accelerator.kernels
    return law.spread_low * item.model, law.spread_high * item.model


def predicted(text: str, name: str) -> str:
    """The text of a file of measurements with predictions in all cells of one line that lack one.
    Raises DescriptionError."""
    open_cell = re.compile(r"^  - \{what: (?!.*\b(?:prediction|measured): )(.*)\}$", re.M)

    def unit(line: str) -> str:
        kind = next(kind for kind in _PLACEHOLDER if f"{kind}: {{" in line)
        return "x" if "against: " in line else _PLACEHOLDER[kind]

    def stand_in(match: re.Match[str]) -> str:
        one = f"1{unit(match[0])}"
        return f"  - {{what: {match[1]}, prediction: {one}, interval: [{one}, {one}]}}"

    spec = loads(open_cell.sub(stand_in, text), name).build(MeasurementSpec)
    found = {item.cell.what: item for item in compare(spec)}

    def filled(match: re.Match[str]) -> str:
        what = next(each for each in found if f'"{each}"' in match[1] or match[1].startswith(each))
        low, high = interval(spec, found[what])
        written = [f"{value:.4g}{unit(match[0])}" for value in (found[what].model, low, high)]
        return (
            f"  - {{what: {match[1]},\n"
            f"     prediction: {written[0]}, interval: [{written[1]}, {written[2]}]}}"
        )

    return open_cell.sub(filled, text)


def main(name: str) -> None:
    """Predict what a file lacks, in place."""
    file = Path(find("measurements", name))
    file.write_text(predicted(file.read_text(), str(file)))


if __name__ == "__main__":
    main(sys.argv[1])
