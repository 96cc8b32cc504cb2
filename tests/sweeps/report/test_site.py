"""Does the site hold the pages, their links, what is searched for, and runs?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeps.cli.schema import DESCRIPTIONS
from sweeps.report.contents import read_report
from sweeps.report.site import INDEX, write_site
from tests.sweeps.made import made
from tests.sweeps.report.browser import CHROMIUM, Browser
from tools import site as tool

ROOT = Path(__file__).resolve().parents[3]
README = """# front

See [all pages](docs/index.md), [a part](docs/fit.md#the-inverse-question), [files](yaml/links).
"""
FIT = """# Does it fit

Closed forms. <!--a mark-->5<!--/-->

| policy | tokens |
|---|---:|
| `odma` | 1 |

## The inverse question

What serves a load of trombones? ![map](map.svg) [front](../README.md) [out](https://example.org)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    found = tmp_path / "clone"
    for name, text in {
        "README.md": README, "docs/fit.md": FIT, "docs/map.svg": "<svg/>",
        "docs/index.md": "# Pages\n\n## How-to\n\n- [fit](fit.md)\n", "yaml/links/one.yaml": "a: 1",
    }.items():  # fmt: skip
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(text)
    return found


def test_pages_link_to_pages_and_bring_what_they_show(clone: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = write_site(out, clone, {"memory": "{}"}, [])
    assert done.broken == []
    front, fit = ((out / name).read_text() for name in ("index.html", "docs/fit.html"))
    for target in (
        "docs/index.html",
        "docs/fit.html#the-inverse-question",
        "yaml/links/index.html",
    ):
        assert f'href="{target}"' in front
    assert 'href="../index.html"' in fit and (out / "docs/map.svg").read_text() == "<svg/>"
    assert 'id="the-inverse-question"' in fit and "<table>" in fit
    assert (out / "yaml/links/one.yaml").exists() and (out / "schemas/memory.json").exists()


def test_contents_are_those_of_the_map_of_pages(clone: Path, tmp_path: Path) -> None:
    write_site(tmp_path / "out", clone, {}, [])
    page = (tmp_path / "out/docs/fit.html").read_text()
    assert page.index("How-to") < page.index('aria-current="page">Does it fit')
    assert '<a href="#the-inverse-question">' in page


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("docs/index.md", "docs/indx.md"),
        ("#the-inverse", "#the-other"),
        ("yaml/links", "../secret"),
    ],
)
def test_a_link_that_leads_nowhere_is_said(old: str, new: str, clone: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (clone / "README.md").write_text(README.replace(old, new))
    (found,) = write_site(tmp_path / "out", clone, {}, []).broken
    assert found.startswith("index.html: ") and new.removesuffix(".md") in found


def test_a_broken_link_ends_the_tool_with_1(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (clone / "README.md").write_text("# front\n\n[gone](gone.md)\n")
    monkeypatch.setattr(tool, "ROOT", clone)
    monkeypatch.setattr(tool, "texts", lambda kinds: {"memory": "{}"})
    assert tool.main([str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert err == "broken link: index.html: gone.html\n" and "1 broken" in out


def test_runs_have_pages_an_index_and_no_markup_of_their_own(clone: Path, tmp_path: Path) -> None:
    tables = [read_report(made(tmp_path / name / "run <b>")) for name in "ab"]
    done = write_site(tmp_path / "out", clone, {}, tables)
    assert done.broken == []
    assert {each.name for each in (tmp_path / "out/runs").iterdir()} == {
        "0-run-b.html", "1-run-b.html", "explore.html", "index.html",
    }  # fmt: skip
    index = (tmp_path / "out/runs/index.html").read_text()
    assert "run <b>" not in index and "run &lt;b&gt;" in index


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_search_finds_a_section_by_its_words(clone: Path, tmp_path: Path) -> None:
    write_site(tmp_path / "out", clone, {}, [])
    ask = """(async words => {
      const box = document.getElementById("search");
      box.value = words;
      await search();
      return [...document.querySelectorAll("#found a")].map(a => a.getAttribute("href"));
    })"""
    with Browser(tmp_path) as browser:
        browser.open(tmp_path / "out/docs/fit.html", 390)
        found = browser.value(f'{ask}("load TROMB")')
        nothing = browser.value(f'{ask}("load tuba")')
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
    assert found == ["../docs/fit.html#the-inverse-question"] and nothing == []


def test_no_link_of_what_ships_is_broken(tmp_path: Path) -> None:
    done = write_site(tmp_path / "out", ROOT, {}, [])
    assert done.broken == [] and done.pages > 60
    assert (tmp_path / "out" / INDEX).stat().st_size < 540_000


@pytest.mark.long  # builds every schema
def test_schemas_are_published_with_the_docs(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ROOT", clone)
    assert tool.main([str(tmp_path / "out")]) == 0
    for kind in DESCRIPTIONS:
        assert json.loads((tmp_path / f"out/schemas/{kind}.json").read_text())["title"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["full"], "full: is no site and not empty; name a new folder"),
        (["file.txt"], "file.txt: is no site and not empty; name a new folder"),
        (["out", "quickstrat"], "quickstrat: no such directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(tool, "texts", lambda kinds: {"memory": "{}"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("x")
    (tmp_path / "file.txt").write_text("x")
    assert tool.main(arguments) == 2
    assert capsys.readouterr().err == f"{said}\n"
    assert not (tmp_path / "out").exists()
