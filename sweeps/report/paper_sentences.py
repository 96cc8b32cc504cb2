"""The sentences on the ODMA paper's table."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.plan.paper_findings import DatasetResult
from sweeps.sections.formats import effect, hundred, listed, percent


def paper(datasets: list[DatasetResult]) -> Iterator[str]:
    """How many of the ODMA paper's figures follow from its baselines, and the gain."""
    gains = [
        f"{percent(centre, True, 1, named=each is datasets[0])} on {each.name}"
        f" (paper: {hundred(each.gain, 0)} %)"
        for each in datasets
        if (centre := each.placements[-1].centre) is not None
    ]
    if gains:
        yield f"At the centre odma changes the throughput of static by {listed(gains)}."
    centres = [(each.name, each.cases[0].over_odma) for each in datasets if each.cases]
    for rival in dict.fromkeys(name for _, over in centres for name in over):
        leads = [f"{effect(over[rival])} on {name}" for name, over in centres if rival in over]
        yield f"There {rival} changes the throughput of odma by {listed(leads)}."
    cells = [cell.meets(each.paper) for each in datasets for cell in each.cells]
    if cells and not any(cell.is_known for each in datasets for cell in each.cells):
        yield "One replication cannot tell which of the paper's figures are met: run three or more."
    elif cells:
        met = sum(len(names) == len(datasets[0].paper) for names in cells)
        yield f"All figures together are met at {met} of {len(cells)} length shapes and limits."
    if gains:
        last = [each.placements[-1] for each in datasets]
        low, high = min(each.low for each in last), max(each.high for each in last)
        wide = ": too wide to test the paper" if high - low > datasets[0].gain else ""
        ends = f"{hundred(low, 0)} to {hundred(high, 0)} %"
        yield f"Over the assumptions the mean gain is {ends}{wide}."
