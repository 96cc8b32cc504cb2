"""The release run: every figure that README and the pages quote, made at one commit.

    python -m tools.release run [PART ...]    # what is not there yet, or these anew
    python -m tools.release take              # values of what is there, into docs/release/results
    python -m tools.release second [PART ...] # parts that claims of papers are of, by another seed
    python -m tools.release list              # parts, their question and what they took

`tools/release.yaml` lists the parts. A part has commands of bankwise, which write into
`runs/release/PART`, and says which values are taken of it:

- `of` the path of a metric, `at` the overrides of its point (a name stands for a mapping of that
  name), `over` those that the point it is divided by has instead, paired by replication, or `by`
  another metric that divides it; a table of these has `rows` by their `at`, `columns` by the rest;
- `cell` the first words of a row of the report, and its column;
- `read` functions of `tools.release_readers`.

An interrupted run goes on where it was; where the product has changed since its first part, it says
so and stops. Each part has one file, `docs/release/results/PART.json`: the commit that it was made
at, what it took and its values; a part that is named is made anew, and the other files stay. Values
are taken anew each time, so that a further one needs no further run. The site shows them as a page
(`tools.site_pages`). Under another seed a part has its file in `docs/release/second_seed`, and part
`claims` has the verdicts under both (`tools.claims`).
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from sweeps.analyse.statistics import Interval, interval, relative_gap
from sweeps.cli.run_command import EXPLAIN
from sweeps.report.contents import read_report
from sweeps.run.store import CONFIG, RunDirectory
from sweeps.sections.section import Block, Grid, Section
from tools.claims import SEED, read_claims
from tools.figures import RESULTS, ROOT, SECOND, FigureError, Results, Value, results_text
from tools.release_readers import READERS

PARTS = ROOT / "tools/release.yaml"
RUNS = ROOT / "runs/release"
PRODUCT = (
    "hwmodel", "policies", "sweeps", "yaml", "docs/release", f":!{RESULTS}", f":!{SECOND}",
    ":!docs/release/claims.yaml",
)  # fmt: skip
DONE = "done.json"


class ReleaseError(Exception):
    """Why the release run cannot go on, in one sentence."""


def parts() -> dict[str, dict[str, Any]]:
    """The parts by name, in their order."""
    return yaml.safe_load(PARTS.read_text(encoding="utf-8"))["parts"]


def git(*words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def check_commit(named: bool) -> None:
    """Raises ReleaseError where the product has uncommitted changes, or has changed since the first
    part was made, unless parts are named."""
    kept, head = RUNS / "commit", git("rev-parse", "HEAD")
    if git("status", "--porcelain", "--", *PRODUCT):
        raise ReleaseError(f"uncommitted changes in {', '.join(PRODUCT)}")
    if not kept.is_file():
        RUNS.mkdir(parents=True, exist_ok=True)
        kept.write_text(head, encoding="utf-8")
    commit = kept.read_text(encoding="utf-8")
    if not named and (changed := git("diff", "--name-only", commit, head, "--", *PRODUCT)):
        first = changed.splitlines()[0]
        raise ReleaseError(f"{first} has changed since {commit[:8]}; remove {RUNS} to begin anew")


def run_part(name: str, part: Mapping[str, Any], seed: int | None = None) -> None:
    """Run the commands of a part into its folder, and keep what they took. Raises ReleaseError."""
    folder = folder_of(name, seed)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    for typed in part.get("commands", ()):
        words = [word.replace("{run}", str(folder)) for word in shlex.split(typed)]
        if words[1] == "run":
            words += ["--out", str(folder)]
            words += ["--set", f"seed={seed}"] * (seed is not None)
            words += ["--resume"] * any(folder.rglob(CONFIG))
        else:
            folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sweeps.cli.main", *words[1:]]
        print(f"{name}: {typed}", flush=True)
        env = {**os.environ, "PYTHONPATH": str(ROOT), EXPLAIN: "0"}  # parts ask for causes by name
        done = subprocess.run(command, cwd=ROOT, env=env,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
        if done.returncode not in (0, 1):
            raise ReleaseError(f"{name}: {typed}: exit code {done.returncode}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"printed-{words[1]}.txt").write_text(done.stdout, encoding="utf-8")
    measured = {} if "commands" in part else read_by(part, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = sum(getattr(after, each) - getattr(before, each) for each in ("ru_utime", "ru_stime"))
    used += time.process_time() - began
    folder.mkdir(parents=True, exist_ok=True)
    made = {"cpu_s": round(used, 1), "commit": git("rev-parse", "HEAD"), "values": measured}
    text = json.dumps(made, indent=1, ensure_ascii=False)
    (folder / DONE).write_text(f"{text}\n", encoding="utf-8")
    print(f"{name}: {used / 60:.1f} CPU minutes", flush=True)


def folder_of(name: str, seed: int | None) -> Path:
    """Where a part runs, by its own seed or another."""
    return RUNS / name if seed is None else RUNS / f"seed-{seed}" / name


def read_by(part: Mapping[str, Any], folder: Path) -> Results:
    """What the readers of a part find."""
    return {k: v for name in part.get("read", ()) for k, v in flat(READERS[name](folder)).items()}


def values_of(part: Mapping[str, Any], folder: Path) -> Results:
    """All values of a part that is done. Raises FigureError."""
    if "commands" not in part:
        return json.loads((folder / DONE).read_text(encoding="utf-8"))["values"]
    return {**taken(part.get("values", {}), folder), **read_by(part, folder)}


def taken(values: Mapping[str, Any], folder: Path) -> Results:
    """The values of a part that its run has, by key. Raises FigureError."""
    if not values:
        return {}
    report = read_report(folder)
    shown, grids = report.table, list(_grids(report.tables))
    records = RunDirectory(folder).records()
    if shown is not None and any("trial" in record for record in records):
        records = [
            {"control": "", "overrides": row.overrides, "replication": r, "metrics": metrics}
            for group in shown.groups
            for row in group.rows
            for r, metrics in row.replications.items()
        ]
    return flat(_taken(values, records, grids))


def flat(values: Mapping[str, Any], above: str = "") -> Results:
    """Nested values by their path."""
    found: Results = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}/")
        elif value not in (None, ""):
            found[f"{above}{key}"] = value
    return found


def _taken(value: Any, records: list[dict[str, Any]], grids: list[tuple[str, Grid]]) -> Any:
    if not isinstance(value, dict):
        return value
    if "cell" in value:
        *labels, column = value["cell"]
        return _cell(labels, column, grids)
    if "rows" in value:
        return {
            str(label): _row(at, value["columns"], records) for label, at in value["rows"].items()
        }
    if "of" not in value:
        return {str(key): _taken(each, records, grids) for key, each in value.items()}
    ours = _measured(value["of"], value["at"], records)
    if not value.keys() & {"over", "by"}:
        return _rounded(interval(list(ours.values())))
    other = {**value["at"], **value.get("over", {})}
    theirs = _measured(str(value.get("by", value["of"])), other, records)
    both = sorted(ours.keys() & theirs.keys())
    paired = relative_gap([ours[i] for i in both], [theirs[i] for i in both])
    return _rounded(paired.mapped(lambda gap: 1 + gap))


def _row(
    at: Mapping[str, Any], columns: Mapping[str, Any], records: list[dict[str, Any]]
) -> dict[str, Value]:
    """The values of a row's point by column; none where it would be divided by itself."""
    found: dict[str, Any] = {}
    for column, spec in columns.items():
        point = {**at, **spec.get("at", {})}
        if "over" not in spec or {**point, **spec["over"]} != point:
            found[column] = _taken({**spec, "at": point}, records, [])
    return found


def _grids(blocks: Sequence[Block], title: str = "") -> Iterator[tuple[str, Grid]]:
    """The tables of a page, at any depth, each behind the title of its section."""
    for block in blocks:
        if isinstance(block, Grid):
            yield title, block
        elif isinstance(block, Section):
            yield from _grids(block.blocks, block.title)


def _cell(labels: list[str], column: str, grids: list[tuple[str, Grid]]) -> str:
    """The text in a column of the report's tables, and in the row that begins with `labels`, or
    with those behind its section's title. Raises FigureError."""
    found = [
        row[grid.columns.index(column)]
        for title, grid in grids
        if column in grid.columns
        for row in grid.rows
        if labels in (row[: len(labels)], [title, *row][: len(labels)])
    ]
    if len(found) != 1:
        raise FigureError(f"{len(found)} cells in row {labels} and column {column!r} of the run")
    return found[0]


def _measured(
    metric: str, at: Mapping[str, Any], records: list[dict[str, Any]]
) -> dict[int, float]:
    """The metric of a point by replication, of those that have it; `at` may name its `control`.
    Raises FigureError."""
    control = at.get("control", "")
    wanted = {key: value for key, value in at.items() if key != "control"}
    alike = [record for record in records if record["control"] == control]
    exact = [each for each in alike if wanted.items() <= each["overrides"].items()]
    found: dict[int, float | None] = {}
    for record in exact or [each for each in alike if _named(wanted, each["overrides"])]:
        value: Any = record["metrics"]
        for key in metric.split("."):
            value = value[key]
        if record["replication"] in found:
            raise FigureError(f"{dict(at)} is more than one point of the run")
        found[record["replication"]] = value
    if not found:
        raise FigureError(f"no point {dict(at)} in the run")
    if not (there := {r: float(value) for r, value in found.items() if value is not None}):
        raise FigureError(f"no {metric} of the point {dict(at)}")
    return there


def _named(wanted: Mapping[str, Any], overrides: Mapping[str, Any]) -> bool:
    """Whether overrides are these, a mapping by its name."""
    names = {
        key: value.get("name") if isinstance(value, dict) and isinstance(wanted.get(key), str)
        else value for key, value in overrides.items()
    }  # fmt: skip
    return wanted.items() <= names.items()


def _rounded(found: Interval) -> Value:
    """The mean and its interval; the mean alone of one replication."""
    numbers = [float(value) for value in (found.mean, found.low, found.high)]
    return numbers if found.count > 1 else numbers[0]


def write_results(name: str, part: Mapping[str, Any], seed: int | None = None) -> None:
    """Write the file of a part that is done here, and copy its pictures to the pages."""
    folder = folder_of(name, seed)
    made = json.loads((folder / DONE).read_text(encoding="utf-8"))
    values = values_of(part, folder)
    file = ROOT / (RESULTS if seed is None else SECOND) / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(results_text(made["commit"], made["cpu_s"], values), encoding="utf-8")
    if seed is None:
        for picture in folder.glob("*.svg"):
            shutil.copy(picture, ROOT / "docs" / picture.name)


def run_parts(there: Mapping[str, dict[str, Any]], names: list[str], seed: int | None) -> None:
    """Run the parts that are named, or those that are not done. Raises ReleaseError."""
    if unknown := set(names) - there.keys():
        raise ReleaseError(f"no part {', '.join(sorted(unknown))}")
    check_commit(bool(names))
    for name, part in there.items():
        done = folder_of(name, seed) / DONE
        if name in names:
            done.unlink(missing_ok=True)
        if (name in names or not names) and not done.is_file():
            run_part(name, part, seed)
            write_results(name, part, seed)  # later parts read it


def claimed() -> dict[str, dict[str, Any]]:
    """The parts that claims of papers are of."""
    of = {claim.part() for claims in read_claims(ROOT)[1].values() for claim in claims.values()}
    return {name: part for name, part in parts().items() if name in of}


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    match arguments:
        case ["list"]:
            for name, part in parts().items():
                file = RUNS / name / DONE
                took = f"{json.loads(file.read_text())['cpu_s'] / 60:.1f}" if file.is_file() else ""
                print(f"{name:16} {took:>6}  {part['question']}")
        case ["take"]:
            for name, part in parts().items():
                if (RUNS / name / DONE).is_file():
                    write_results(name, part)
        case ["run" | "second" as word, *names]:
            try:
                if word == "run":
                    run_parts(parts(), names, None)
                else:
                    run_parts(claimed(), names, SEED)
                    run_parts(parts(), ["claims"], None)
            except (ReleaseError, FigureError) as error:
                print(error, file=sys.stderr)
                return 2
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
