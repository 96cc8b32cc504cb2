"""Do texts say what the release run found, and is what does not belong refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import figures

RESULTS: figures.Results = {
    "made/gap": [1.8704, 1.80474, 1.93846],
    "made/loss": [0.76, 0.73, 0.79],
    "made/loss: nine in ten": 0.3,
    "made/rates/short/paged": 3847.4,
    "made/rates/short/best": "odma",
    "made/rates/long/paged": 12.0,
}


def test_the_texts_of_this_repository_say_what_the_results_say() -> None:
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
def test_how_a_value_is_written(value: figures.Value, how: str, text: str) -> None:
    assert figures.written(value, how) == text


def test_a_page_is_rewritten_once_and_for_all() -> None:
    page = "by <!--made/gap:change-->?<!--/-->, <!--made/loss:less alone-->?<!--/--> less\n"
    page += "or <!--made/loss: nine in ten:share-->?<!--/-->\n"
    page += "<!--table made/rates:,.0f;-->\n<!--/table-->\n"
    new = figures.rewritten(page, RESULTS)
    assert "-->+87 % (80 to 94)<!--/-->, <!--made/loss:less alone-->24 %<!--/--> less" in new
    assert "<!--made/loss: nine in ten:share-->30 %<!--/-->" in new
    rows = "| | paged | best |\n|---|---:|---|\n| short | 3,847 | odma |\n| long | 12 |  |\n"
    assert new.endswith(f"{rows}<!--/table-->\n")
    assert figures.rewritten(new, RESULTS) == new


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("by <!--other/gap:change-->1<!--/-->", r"other/gap: not in docs/release/results"),
        ("by <!--made/gap:percent-->1<!--/-->", "no format 'percent'"),
        ("<!--table made/none-->\n<!--/table-->", "no rows"),
        ("<!--table made/rates:.0f;.0f;.0f-->\n<!--/table-->", "2 columns, but 3 formats"),
        ("by <!--made/gap:change-->1, and no end", "is no figure"),
        ("- <!--made/gap:change-->1<!--/-->", "begins a line"),
        ("by <!-- to do -->", "is no figure"),
    ],
)
def test_what_a_page_may_not_have(page: str, sentence: str) -> None:
    with pytest.raises(figures.FigureError, match=sentence):
        figures.rewritten(page, RESULTS)


def test_results_are_read_as_they_are_written_and_a_text_that_differs_is_told(
    tmp_path: Path,
) -> None:
    file = tmp_path / figures.RESULTS / "made.json"
    file.parent.mkdir(parents=True)
    values = {key.removeprefix("made/"): value for key, value in RESULTS.items()}
    file.write_text(figures.results_text("f" * 40, 90.4, values))
    assert figures.read_results(tmp_path) == RESULTS
    assert figures.read_part(file) | {"values": {}} == {
        "commit": "f" * 12, "cpu_s": 90, "values": {},
    }  # fmt: skip
    (tmp_path / "README.md").write_text("By <!--made/gap:change-->+86 %<!--/-->.\n")
    told = "README.md: differs from docs/release/results; make figures"
    assert list(figures.problems(tmp_path)) == [told]
    assert figures.write(tmp_path) == [tmp_path / "README.md"]
    assert list(figures.problems(tmp_path)) == []
    for text, sentence in {
        "## made": "no JSON",
        '{"values": {}}': "has not a commit",
        '{"commit": "f", "cpu_s": 1, "values": {"gap": [1, 2]}}': "no value of a result: gap",
        '{"commit": "f", "cpu_s": 1, "values": {"gap": null}}': "no value of a result: gap",
    }.items():
        file.write_text(text)
        with pytest.raises(figures.FigureError, match=sentence):
            figures.read_results(tmp_path)
