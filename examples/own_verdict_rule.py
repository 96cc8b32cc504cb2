"""Which allocator is the best choice where the load is not known? Adds a verdict rule of sweeps:
the competitor whose worst place, beside the best there, is the least bad (minimax regret, Savage
1951, JASA 46(253)). Prints what the report of a small sweep over two loads says.

    python examples/own_verdict_rule.py
    bankwise run smoke --plugin examples/own_verdict_rule.py --set rule=regret \\
        --set 'axes.load.relative=[0.5, 1.5]'
"""

import tempfile
from typing import Any

import bankwise
from sweeps.analyse.table import Table
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.report.account import Account
from sweeps.report.sweep_page import inputs
from sweeps.run.findings import Findings
from sweeps.sections.section import Grid, Section


class RegretSpec(SweepSpec):
    rule: str = "regret"

    @classmethod
    def findings(cls, table: Table) -> dict[str, float]:
        """The largest regret of each competitor: 0.2 where the best serves a fifth more."""
        metric, worst = table.objective.metric, dict[str, float]()
        for group in table.groups:
            means = {row.name: row.mean(metric) or 0.0 for row in group.main()}
            best = max(means.values(), default=0.0)
            for name, mean in means.items():
                regret = best / mean - 1 if mean else float("inf")
                worst[name] = max(worst.get(name, 0.0), regret)
        return worst

    @staticmethod
    def page(found: Findings[Any]) -> Account:
        """What the report says of it."""
        ranked = sorted(found.own.items(), key=lambda each: each[1])
        rows = [[name, f"{100 * regret:.1f}"] for name, regret in ranked]
        grid = Grid("Largest regret", [found.table.compared, "% behind the best"], rows)
        name, regret = ranked[0]
        said = f"{name} is never more than {100 * regret:.1f} % behind the best."
        return Account([said], [Section("Regret", [grid])], [grid], inputs(found.table))


if __name__ == "__main__":
    bankwise.plugin(__file__)
    sets = {"rule": "regret", "axes.load.relative": [0.5, 1.5], "requests": 60,
            "warmup_requests": 20, "serving.memory.fidelity": "analytic"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = bankwise.run("smoke", set=sets, out=f"{folder}/run", jobs=1)
        print(result.sentences[0])
