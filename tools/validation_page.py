"""The page of all measurements beside the models: `make validation`.

    python -m tools.validation_page   # docs/results/validation.md and .svg, and the figures

Every number on the page is computed by that run, or is a published one with its source.
"""

from __future__ import annotations

from policies.memory.measured_cells import Skipped
from policies.serving.measured_server import Server
from sweeps.report import validation
from sweeps.report.drawing import svg
from sweeps.report.markdown import markdown
from sweeps.report.section import Grid, Say, Section
from sweeps.run.provenance import commit
from sweeps.run.store import write_atomically
from tools.figures import ROOT, keep

_INTRO = (
    "Rebuilt by `make validation`; `bankwise validate [NAME]` prints the same tables. Every model"
    " figure is of that run; measured ones have their source beside them. Predictions, where there"
    " are any, were committed before the comparison. `within`: inside the tolerance; `lower limit`:"
    " the requester bound the measurement and the model is not below it; `input`: the description"
    " was made of it; `open`: predicted, and not measured yet; `sets the mechanism`: chosen with"
    " this figure in view. `of peak`: the share"
    " of the memory's bandwidth (decode) or of the FLOPs (prefill) that the measured time comes to,"
    " by what the model must move and compute. Bandwidths are what reaches the requester; `without"
    " derate` is what the simulated DRAM gives."
)


def main() -> None:
    """Compare all that ships and write the page, its pictures and its figures."""
    read = {name: validation.loaded(name) for name in validation.sources()}
    found: validation.Found = {}
    pictures: dict[str, bytes] = {}
    for name, source in read.items():
        try:
            found[name] = validation.compared(source)
            if isinstance(source, Server) and source.spec.timeseries:
                pictures[f"validation-{name}.svg"] = svg([validation.over_time(source)])
        except Skipped:
            found[name] = []
    total = validation.summary(item for items in found.values() for item in items)
    rows = [
        [group, str(row["refuted"]), f"{row['median error'] - 1:.0%}", row["widest"]]
        for group, row in validation.left(found).items()
    ]
    page = Section(
        "Validation",
        [
            Say(_INTRO),
            Say(f"{total}."),
            Say("![Errors of all cells that are two-sided](validation.svg)"),
            Grid("What to doubt first:", ["cause", "refuted", "median error", "widest"], rows),
            *(validation.section(source, found[name]) for name, source in read.items()),
        ],
    )
    dirty = {"dirty": True} if commit()["dirty"] else {}  # before its own pages change
    keep("validation", "make validation", validation.figures(found), **dirty)
    pictures["validation.svg"] = svg([validation.picture(found)])
    for name, drawn in pictures.items():
        write_atomically(ROOT / "docs/results" / name, drawn)
    write_atomically(ROOT / "docs/results/validation.md", markdown([page]))


if __name__ == "__main__":
    main()
