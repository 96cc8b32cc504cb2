"""Do texts say what the figures' files say, and is what does not belong refused?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.plan.test_crossing import run as search
from tests.sweeps.study.test_study_report import study
from tools import figures

FILES: figures.Files = {
    "made": {
        "values": {
            "gap": [1.8704, 1.80474, 1.93846],
            "loss": {"of": "x", "at": {}, "is": [0.76, 0.73, 0.79]},
            "rates": {"short": {"paged": 3847.4, "best": "odma"}, "long": {"paged": None}},
        }
    }
}


def test_the_texts_of_this_repository_say_what_their_files_say() -> None:
    assert list(figures.problems()) == []


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        ([1.8704, 1.80474, 1.93846], "change", "+87 % (80 to 94)"),
        ([0.9913, 0.982, 1.0014], "change", "-0.9 % (-1.8 to 0.1)"),
        ([1.8704, 1.80474, 1.93846], "more alone", "87 %"),
        ([0.76, 0.73, 0.79], "less", "24 % (21 to 27)"),
        (0.301, "share", "30 %"),
        ([0.9999, 0.9, 1.1], "change.0", "+0 % (-10 to 10)"),
        (3847.4, ",.0f", "3,847"),
        ([1.8704, 1.80474, 1.93846], ".2f", "1.87 (1.80 to 1.94)"),
        (21, "", "21"),
        (0.96, "", "0.96"),
        ("odma", "change", "odma"),
    ],
)
def test_how_a_value_is_written(value: object, how: str, text: str) -> None:
    assert figures.written(value, how) == text


def test_a_page_is_rewritten_once_and_for_all() -> None:
    page = "by <!--made/gap:change-->?<!--/-->, <!--made/loss:less alone-->?<!--/--> less\n"
    page += "<!--table made/rates:,.0f-->\n<!--/table-->\n"
    new = figures.rewritten(page, FILES)
    assert "-->+87 % (80 to 94)<!--/-->, <!--made/loss:less alone-->24 %<!--/--> less" in new
    rows = "| | paged | best |\n|---|---:|---|\n| short | 3,847 | odma |\n| long |  |  |\n"
    assert new.endswith(f"{rows}<!--/table-->\n")
    assert figures.rewritten(new, FILES) == new


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("by <!--other/gap:change-->1<!--/-->", "no docs/figures/other.json"),
        ("by <!--made/gape:change-->1<!--/-->", "no 'gape' in docs/figures/made.json"),
        ("by <!--made/gap:percent-->1<!--/-->", "no format 'percent'"),
        ("by <!--made/rates-->1<!--/-->", "names several values"),
        ("<!--table made/gap-->\n<!--/table-->", "names no rows"),
        ("<!--table made/rates:.0f;.0f;.0f-->\n<!--/table-->", "2 columns, but 3 formats"),
        ("by <!--made/gap:change-->1, and no end", "is no figure"),
        ("- <!--made/gap:change-->1<!--/-->", "begins a line"),
        ("by <!-- to do -->", "is no figure"),
    ],
)
def test_what_a_page_may_not_have(page: str, sentence: str) -> None:
    with pytest.raises(figures.FigureError, match=sentence):
        figures.rewritten(page, FILES)


def repository(root: Path, page: str, values: dict[str, object]) -> Path:
    (root / "docs/figures").mkdir(parents=True)
    (root / "README.md").write_text(page)
    told = {"command": "bankwise run made", "commit": "0" * 40, "date": "2026-11-22"}
    (root / "docs/figures/made.json").write_text(json.dumps({**told, "values": values}))
    return root


def test_a_text_that_differs_and_a_file_without_a_text_are_told(tmp_path: Path) -> None:
    root = repository(tmp_path, "By <!--made/gap:change-->+86 %<!--/-->.\n", {"gap": 1.87})
    assert list(figures.problems(root)) == ["README.md: differs from its figures; make figures"]
    assert figures.write(root) == [root / "README.md"]
    assert list(figures.problems(root)) == []
    (root / "README.md").write_text("nothing\n")
    assert list(figures.problems(root)) == ["docs/figures/made.json: no text uses it"]


def test_a_file_says_where_its_values_are_from(tmp_path: Path) -> None:
    root = repository(tmp_path, "", {})
    (root / "docs/figures/made.json").write_text('{"values": {}, "date": "2026-11-22"}')
    with pytest.raises(figures.FigureError, match=r"made.json: no command, commit"):
        figures.read_files(root)


def test_a_cell_is_taken_from_the_tables_of_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(tmp_path / "run", monkeypatch)
    file = tmp_path / "made.json"
    value = {"cell": ["cost", "break-even"]}
    file.write_text(json.dumps({"values": {"speed": value}}))
    figures.take(file, tmp_path / "run")
    told = json.loads(file.read_text())["values"]["speed"]
    assert told == {**value, "is": "711ns (521ns to 970ns)"}
    assert figures.plain(told) == told["is"]
    behind = {"cell": ["Break-evens", "cost", "break-even"]}  # its section's title
    file.write_text(json.dumps({"values": {"speed": behind}}))
    figures.take(file, tmp_path / "run")
    assert json.loads(file.read_text())["values"]["speed"]["is"] == told["is"]
    for label, column in (("costs", "break-even"), ("cost", "break even")):
        file.write_text(json.dumps({"values": {"speed": {"cell": [label, column]}}}))
        with pytest.raises(figures.FigureError, match=f"0 cells in row .'{label}'"):
            figures.take(file, tmp_path / "run")


def test_of_a_study_values_are_those_of_its_finale(tmp_path: Path) -> None:
    run, file = study(tmp_path / "run"), tmp_path / "made.json"
    told = json.loads((run / "provenance.json").read_text()) | {"command": ["bankwise", "study"]}
    (run / "provenance.json").write_text(json.dumps(told))
    value = {"of": "output_tokens_per_s", "at": {"contender": "best"}}
    file.write_text(json.dumps({"values": {"gain": {**value, "over": {"contender": "base"}}}}))
    figures.take(file, run)
    gain = json.loads(file.read_text())["values"]["gain"]["is"]
    assert gain == pytest.approx([147.5 / 110] * 3, rel=1e-5)


def test_values_are_taken_from_a_run_paired_by_replication(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "made.json"
    run.mkdir()
    rates = {"paged": [30.0, 44.0], "odma": [15.0, 22.0]}
    records = [
        {
            "control": "",
            "overrides": {"policy": p},
            "replication": i,
            "metrics": {"rate": {"mean": v}},
        }
        for p, values in rates.items()
        for i, v in enumerate(values)
    ]
    (run / "results.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    command = ["bankwise", "run", "made", "--out", "run"]
    (run / "provenance.json").write_text(json.dumps({"command": command, "commit": "f" * 40}))
    mean = {"of": "rate.mean", "at": {"policy": "paged"}}
    gap = {**mean, "over": {"policy": "odma"}}
    file.write_text(json.dumps({"values": {"paged": mean, "by": {"gap": gap}, "cells": 21}}))
    figures.take(file, run)
    told = json.loads(file.read_text())
    assert (told["command"], told["commit"]) == ("bankwise run made", "f" * 40)
    assert told["values"]["by"]["gap"]["is"] == [2.0, 2.0, 2.0]
    assert told["values"]["paged"]["is"][0] == 37.0
    assert told["values"]["cells"] == 21
    file.write_text(json.dumps({"values": {"s3": {"of": "rate.mean", "at": {"policy": "s3"}}}}))
    with pytest.raises(figures.FigureError, match="no point"):
        figures.take(file, run)
    file.write_text(json.dumps({"values": {"cells": 21}}))
    with pytest.raises(figures.FigureError, match="no value says which of the run it is"):
        figures.take(file, run)
