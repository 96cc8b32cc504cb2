"""A study as a run: its trials, and its finale as a group of competitors."""

from __future__ import annotations

from sweeps.report import study_sentences as sentences
from sweeps.report.account import Account, in_words, variant_rows
from sweeps.report.study_sections import settings_rows, study_blocks
from sweeps.run.findings import Findings
from sweeps.study.family_findings import alone_signs
from sweeps.study.first import LEVELS
from sweeps.study.fleet_size import CARDS
from sweeps.study.study_findings import StudyFindings

POOL = "serving.policy.pool_share"


def account(findings: Findings[StudyFindings]) -> Account:
    """What the best of a space gains, and how it was found."""
    config = findings.table.config
    space = [[path, in_words(each)] for path, each in config["space"].items()]
    return Account(
        _sentences(findings), study_blocks(findings),
        inputs=[*space, *variant_rows(config, "reference")], points="trials",
    )  # fmt: skip


def _sentences(found: Findings[StudyFindings]) -> list[str]:
    """What was gained, against whom, how sure that is, how much of the gap it closes; and the
    settings that did it."""
    own = found.own
    if own.best is None:
        return [sentences.no_trial(len(own.trials.records), own.failed)]
    rows = [
        row
        for row in settings_rows(own)
        if row[1] != row[2] and row[0] != CARDS and not (own.trials.limit and row[0] == LEVELS)
    ]
    said = [sentences.settings(f"Trial {own.trial}", rows)]
    if own.trials.limit and "chosen" in own.trials.limit:
        said.insert(0, sentences.buckets(own.trials.limit))
    pools = [each.value for each in own.settings if each.path == POOL]
    said[:0] = [sentences.pool(value) for value in pools if isinstance(value, float | int)]
    if len(own.trials.objectives) > 1:
        said.append(sentences.objectives(own.by_objective))
    if own.constrained and own.cheapest is None:
        said.append(sentences.constrained(own.constrained))
    trial, value = own.best
    if own.gain is None:
        return [sentences.best_so_far(trial, own.trials.says(value)), *said]
    if own.cheapest is not None:  # settings are told of the trial, not of another rival
        cheapest = sentences.cheapest(own.cheapest)
        return cheapest if own.rival is not None else [*cheapest, *said]
    winner = own.trials.winner() or {}
    by = sentences.proposed(own.phase, winner.get("first"), own.trial, len(own.trials.records))
    said += sentences.families(own.families)
    said += sentences.alone(own.alone, alone_signs(own.alone))
    return [*sentences.study(own.gain, by), *said, sentences.states(own.states)]
