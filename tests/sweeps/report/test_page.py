"""Is a page well put together, and does nothing load what draws it before it is drawn?"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.analyse.statistics import Interval
from sweeps.report.drawing import script
from sweeps.report.page import fragment, page
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.section import Grid, Listing, Say, Section

RATES = Bars("Output tokens/s", [Bar("a<b", Interval(5.0, 4.0, 6.0, 3))], "Note & all.")
BLOCKS = [
    Say("Is </script> safe?", "question"),
    Say("card: 30 % more", "lead"),
    RATES,
    Grid("table", ["name", "value"], [["x", "1"], ["y", "2"]], frozenset({0}), frozenset({1})),
    Section("Folded", [Listing("list", {"key": "value"})], folded=True),
]


def test_a_page_has_its_blocks_in_order_and_one_script() -> None:
    text = page([Section("run <1>", BLOCKS, compared=("a<b", "c")), Section("two", [RATES])])
    body = re.sub("<script.*?</script>", "", text[text.index("<body>") :], flags=re.S)
    order = ["run &lt;1&gt;", "question", "lead", "Output tokens/s", "<caption>table", "Folded"]
    assert [body.index(part) for part in order] == sorted(body.index(part) for part in order)
    assert "<b>card</b>: 30\xa0% more" in body and "Is &lt;/script&gt; safe?" in body
    assert '<tr class="control">' in body and '<tr class=" marked">' in body
    assert text.count("window.vegaEmbed=") == 1 and text.count('class="chart"') == 2
    packed = re.findall('id="specs">(.*?)</script>', text)[0]
    first, second = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert "a<b,a<b,5,4,6" in first["data"]["values"] and second["data"] == first["data"]
    assert re.search('data-compared="{&#34;a\\\\u003cb&#34;: ?&#34;#[0-9a-f]{6}&#34;', text)


def test_a_page_without_charts_has_no_drawing_script() -> None:
    text = page([Section("run", [Say("words")])])
    assert "vega-lite" not in text and len(text) < 30_000


def test_a_notebook_has_pictures_and_no_script() -> None:
    text = fragment([Section("run", BLOCKS)])
    assert "<svg" in text and "<script" not in text and "<h3>run</h3>" in text


def test_the_script_is_bundled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vl_convert

    calls = []

    def bundled(*given: str) -> str:
        calls.append(given)
        return "let a = '</script>';"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", bundled)
    assert script() == script() == "let a = '<\\/script>';"
    assert len(calls) == 1 and len(list((tmp_path / "bankwise/charts").iterdir())) == 1
    (tmp_path / "bankwise/charts").rename(tmp_path / "gone")
    (tmp_path / "bankwise/charts").write_text("no directory")
    assert script() == script() and len(calls) == 3


def test_what_draws_is_loaded_when_it_draws() -> None:
    code = "import sys, sweeps.cli.main, sweeps.cli.reporting; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jinja2", "vl_convert", "altair"} & set(done.stdout.split())
