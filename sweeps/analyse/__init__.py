"""From rows of results to findings: intervals, paired ratios, verdicts."""
