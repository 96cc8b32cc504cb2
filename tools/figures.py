"""Figures of runs in the texts: each stands in one small file, `docs/figures/NAME.json`.

    python -m tools.figures take NAME RUN_DIR   # the values of a run into docs/figures/NAME.json
    python -m tools.figures write               # from these files into README.md and docs
    python -m tools.figures check               # what differs; exit status 1 where anything does

A text names a value, how it is written, and has what is written between two comments:

    paged serves <!--quickstart/mlu370-x4/paged over odma:change-->+87 % (80 to 94)<!--/--> more

    <!--table oaken/batch:,.0f;.2f-->
    (rows of values, written as a table; a format for each column, or one for all)
    <!--/table-->

A value is a number, `[mean, low, high]`, a word, or a mapping: `of` (a metric's path), `at` (the
overrides of its point, or the `contender` in a study's finale), `over` (those that the point it is
divided by has instead) and `is`; or `cell` (the first words of a row of the run's report, behind
its section's title or not, and the column) and `is`.
Formats: one of Python's for numbers (`,.0f`), or of ratios `change` (+87 %), `more` (87 %) and
`less`, and `share`, with `.N` digits (tenths below 10 %); ` alone` leaves the interval out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from sweeps.analyse.statistics import Interval, interval, relative_gap
from sweeps.report.contents import read_report
from sweeps.report.section import Block, Grid, Section
from sweeps.run.provenance import commit
from sweeps.run.store import CONFIG, RunDirectory

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = {"command", "commit", "date", "values"}
"""Keys of a file; `stated` is the page that stated its values where they were not taken."""
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
INLINE = re.compile(r"<!--(?!table |/)([^:>]+):?([^>]*)-->([^\n]*?)<!--/-->")
TABLE = re.compile(r"<!--table ([^:>]+):?([^>]*)-->\n(.*?)<!--/table-->", re.DOTALL)
AT_START = re.compile(r"^[ \t>*-]*(<!--(?!table |/table-->).*?-->)", re.MULTILINE)
"""A comment that begins a line, which makes a block of raw HTML of it."""
FORMAT = re.compile(r"(change|more|less|share|,?(?=\.|f|$))(\.\d+)?f?( alone)?")
ELSEWHERE = {"--out", "--jobs", "--cluster"}
"""Options of a run that its figures do not depend on."""
NONE = ""
"""A cell without a value."""

Files = dict[str, dict[str, Any]]
"""Name of a file -> what it says."""


class FigureError(Exception):
    """A marker or a file that says nothing, in one sentence."""


def read_files(root: Path = ROOT) -> Files:
    """The files of figures by name. Raises FigureError where a file lacks a key."""
    files = {}
    for path in sorted((root / "docs/figures").glob("*.json")):
        files[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        if missing := REQUIRED - files[path.stem].keys():
            raise FigureError(f"{path.relative_to(root)}: no {', '.join(sorted(missing))}")
    return files


def texts(root: Path = ROOT) -> list[Path]:
    """The pages that may have figures."""
    return [
        path for folder in ("", "docs", "docs/results") for path in (root / folder).glob("*.md")
    ]


def named(files: Files, name: str) -> Any:
    """The value at `FILE/KEY/...`. Raises FigureError."""
    file, *keys = name.split("/")
    if file not in files:
        raise FigureError(f"no docs/figures/{file}.json")
    value = files[file]["values"]
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise FigureError(f"no {key!r} in docs/figures/{file}.json")
        value = value[key]
    return plain(value)


def plain(value: Any) -> Any:
    """A value without where it was taken from."""
    return value["is"] if _placed(value) else value


def _placed(value: Any) -> bool:
    """Whether a value says which of the run it is."""
    return isinstance(value, dict) and not value.keys().isdisjoint(("of", "cell"))


def written(value: Any, how: str) -> str:
    """A value as the format says. Raises FigureError."""
    if value is None or isinstance(value, str):
        return value or NONE
    form = FORMAT.fullmatch(how)
    if form is None:
        raise FigureError(f"no format {how!r}")
    if isinstance(value, dict):
        raise FigureError("names several values, not one")
    word, digits, alone = form.groups()
    numbers = value if isinstance(value, list) else [value]
    scaled, unit, sign = _scaled(numbers, word)
    if not (unit or digits):
        first, *ends = (f"{number:,.6g}" for number in scaled)
    else:
        places = int(digits[1:]) if digits else 0 if abs(scaled[0]) >= 10 else 1
        first, *ends = (f"{round(number, places) + 0.0:,.{places}f}" for number in scaled)
    if sign and not first.startswith("-"):
        first = f"+{first}"
    aside = f" ({ends[0]} to {ends[1]})" if ends and not alone else ""
    return f"{first}{unit}{aside}"


def _scaled(numbers: list[float], word: str) -> tuple[list[float], str, bool]:
    """The numbers to write, their unit, and whether a sign stands before the first."""
    if word == "share":
        return [100 * number for number in numbers], " %", False
    if word in ("change", "more"):
        return [100 * (number - 1) for number in numbers], " %", word == "change"
    if word == "less":
        mean, *ends = (100 * (1 - number) for number in numbers)
        return [mean, *reversed(ends)], " %", False
    return numbers, "", False


def table(value: Any, how: str) -> str:
    """Rows of values by name as a Markdown table. Raises FigureError."""
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise FigureError("names no rows")
    columns = list(dict.fromkeys(column for row in value.values() for column in row))
    formats = how.split(";") if ";" in how else [how] * len(columns)
    if len(formats) != len(columns):
        raise FigureError(f"{len(columns)} columns, but {len(formats)} formats")
    cells = {
        label: [written(plain(row.get(c)), f) for c, f in zip(columns, formats, strict=True)]
        for label, row in value.items()
    }
    words = [all(isinstance(r.get(c), str | None) for r in value.values()) for c in columns]
    lines = [f"| | {' | '.join(columns)} |"]
    lines += ["|---|" + "|".join("---" if word else "---:" for word in words) + "|"]
    lines += [f"| {label} | {' | '.join(row)} |" for label, row in cells.items()]
    return "".join(f"{line}\n" for line in lines)


def rewritten(text: str, files: Files) -> str:
    """A page with its figures as the files have them. Raises FigureError."""

    def inline(match: re.Match[str]) -> str:
        name, how, _ = match.groups()
        value = _told(name, lambda: written(named(files, name), how))
        return f"<!--{name}{_after(how)}-->{value}<!--/-->"

    def block(match: re.Match[str]) -> str:
        name, how, _ = match.groups()
        value = _told(name, lambda: table(named(files, name), how))
        return f"<!--table {name}{_after(how)}-->\n{value}<!--/table-->"

    rest = COMMENT.search(TABLE.sub("", INLINE.sub("", text)))
    if rest is not None:
        raise FigureError(
            f"the comment {rest[0]!r} is no figure: <!--FILE/VALUE:FORMAT-->...<!--/-->"
        )
    if (start := AT_START.search(text)) is not None:
        raise FigureError(f"{start[1]!r} begins a line, which Markdown then leaves as it is")
    return TABLE.sub(block, INLINE.sub(inline, text))


def _after(how: str) -> str:
    return f":{how}" if how else ""


def _told(name: str, make: Any) -> str:
    """What `make` returns; its mistake with the marker's name before it."""
    try:
        return str(make())
    except FigureError as error:
        raise FigureError(f"{name}: {error}") from None


def used(text: str) -> set[str]:
    """Names of the files that a page takes figures from."""
    markers = [*INLINE.finditer(text), *TABLE.finditer(text)]
    return {match[1].split("/")[0] for match in markers}


def problems(root: Path = ROOT) -> Iterator[str]:
    """What is wrong with texts and files, a sentence each."""
    files = read_files(root)
    unused = set(files)
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        unused -= used(text)
        try:
            if rewritten(text, files) != text:
                yield f"{path.relative_to(root)}: differs from its figures; make figures"
        except FigureError as error:
            yield f"{path.relative_to(root)}: {error}"
    yield from (f"docs/figures/{name}.json: no text uses it" for name in sorted(unused))


def write(root: Path = ROOT) -> list[Path]:
    """Rewrite the texts; those that changed. Raises FigureError."""
    files = read_files(root)
    changed = []
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        try:
            new = rewritten(text, files)
        except FigureError as error:
            raise FigureError(f"{path.relative_to(root)}: {error}") from None
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


def keep(name: str, command: str, values: Any, **more: Any) -> None:
    """Write a file of values that a command found, here and now; `more`: further keys."""
    head = {"command": command, "commit": commit()["commit"],
            "date": datetime.now(UTC).date().isoformat(), **more}  # fmt: skip
    text = dumped({**head, "values": values})
    (ROOT / f"docs/figures/{name}.json").write_text(f"{text}\n", encoding="utf-8")


def take(file: Path, run: Path) -> None:
    """Put the values of a run into a file that says which they are; says so where the run lacks
    results. Raises FigureError."""
    told = json.loads(file.read_text(encoding="utf-8"))
    if not _says(told["values"]):
        raise FigureError(f"{file.name}: no value says which of the run it is (`of`, `at`)")
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    results = run / "results.jsonl"
    records = RunDirectory(run).records()
    report = read_report(run) if (run / CONFIG).is_file() else None
    shown = None if report is None else report.table
    grids = [] if report is None else list(_grids(report.tables))
    if shown is not None and any("trial" in record for record in records):
        records = [
            {"control": "", "overrides": row.overrides, "replication": r, "metrics": metrics}
            for group in shown.groups
            for row in group.rows
            for r, metrics in row.replications.items()
        ]
    day = datetime.fromtimestamp(results.stat().st_mtime, UTC).date()
    head = {
        "command": _command(provenance["command"]),
        "commit": provenance["commit"],
        "date": day.isoformat(),
    }
    if provenance.get("dirty"):
        head["dirty"] = True
    rest = {key: told[key] for key in told if key not in {*head, "dirty", "values"}}
    new = {**head, **rest, "values": _taken(told["values"], records, grids)}
    file.write_text(f"{dumped(new)}\n", encoding="utf-8")
    if shown is not None and shown.state.startswith("unfinished"):
        print(f"{run}: {shown.state}", file=sys.stderr)


def _command(words: list[str]) -> str:
    """What was typed, without the options that say where and by how many processes it ran."""
    kept = ["bankwise"]
    for before, word in pairwise(word for word in words if word != "--resume"):
        if not {before, word} & ELSEWHERE:
            kept.append(word)
    return " ".join(kept)


def _says(value: Any) -> bool:
    """Whether any of these values is one that a run has."""
    return _placed(value) or (isinstance(value, dict) and any(map(_says, value.values())))


def _taken(value: Any, records: list[dict[str, Any]], grids: list[tuple[str, Grid]]) -> Any:
    if not isinstance(value, dict):
        return value
    if not _placed(value):
        return {key: _taken(each, records, grids) for key, each in value.items()}
    if "cell" in value:
        *labels, column = value["cell"]
        return {**value, "is": _cell(labels, column, grids)}
    at = value["at"]
    ours = _measured(value["of"], at, records)
    if "over" in value:
        theirs = _measured(value["of"], {**at, **value["over"]}, records)
        both = sorted(ours.keys() & theirs.keys())
        paired = relative_gap([ours[i] for i in both], [theirs[i] for i in both])
        found = paired.mapped(lambda gap: 1 + gap)
    else:
        found = interval(list(ours.values()))
    return {**value, "is": _rounded(found)}


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
    """The metric of a point by replication; `at` may name its `control`. Raises FigureError."""
    control = at.get("control", "")
    wanted = {key: value for key, value in at.items() if key != "control"}
    found = {}
    for record in records:
        if record["control"] == control and wanted.items() <= record["overrides"].items():
            value: Any = record["metrics"]
            for key in metric.split("."):
                value = value[key]
            if record["replication"] in found:
                raise FigureError(f"{dict(at)} is more than one point of the run")
            found[record["replication"]] = float(value)
    if not found:
        raise FigureError(f"no point {dict(at)} in the run")
    return found


def _rounded(found: Interval) -> Any:
    """Six significant digits; the mean alone of one replication."""
    numbers = [float(f"{value:.6g}") for value in (found.mean, found.low, found.high)]
    return numbers if found.count > 1 else numbers[0]


def dumped(value: Any, indent: str = "") -> str:
    """JSON with a line for each value, so that a change of one is a line of a diff."""
    if not isinstance(value, dict) or _placed(value):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + "  "
    lines = [
        f"{inner}{json.dumps(k, ensure_ascii=False)}: {dumped(v, inner)}" for k, v in value.items()
    ]
    if (
        indent
        and sum(map(len, lines)) < 100
        and not any(isinstance(v, dict) for v in value.values())
    ):
        return "{" + ", ".join(line.strip() for line in lines) + "}"
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main(arguments: list[str]) -> int:
    """The command line of the module's docstring; the exit status."""
    try:
        match arguments:
            case ["take", name, run]:
                take(ROOT / f"docs/figures/{name}.json", Path(run))
            case ["write"]:
                print(*(f"wrote {path.relative_to(ROOT)}" for path in write()), sep="\n")
            case ["check"]:
                found = list(problems())
                print(*found, sep="\n")
                return int(bool(found))
            case _:
                print(__doc__)
                return 2
    except (FigureError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
