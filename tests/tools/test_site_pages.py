"""Do the pages that the code makes leave nothing out, and does what pages link come along?"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.cli.schema import SPECS
from sweeps.cli.verbs import VERBS
from tools.figures import RESULTS, ROOT, read_results
from tools.release import parts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    # NOTE: in a process of its own, where no test has registered a policy.
    words = [sys.executable, "-m", "tools.site_pages", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def anchors(page: str) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_verb_and_every_kind_has_a_heading(site: Path) -> None:
    verbs, kinds = ((site / f"{name}.md").read_text("utf-8") for name in ("command-line", "yaml"))
    assert [f"bankwise {name}" for name in VERBS] == re.findall(r"^### (.+)$", verbs, re.MULTILINE)
    assert set(SPECS) == set(re.findall(r"^\| \[`(\w+)`\]", kinds, re.MULTILINE))


def test_every_result_has_a_row(site: Path) -> None:
    page = (site / "results.md").read_text("utf-8")
    assert list(parts()) == re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert len(re.findall(r"^\| `", page, re.MULTILINE)) == len(read_results())
    made = json.loads((ROOT / RESULTS / "quickstart.json").read_text("utf-8"))
    mean, low, high = made["values"]["served/mlu370-x4/paged over odma"]
    section = page.partition("\n## quickstart\n")[2].partition("\n## ")[0]
    assert f"| `served/mlu370-x4/paged over odma` | {mean} | {low} | {high} |\n" in section
    assert f"at commit `{made['commit']}`" in section


def test_links_of_the_site_lead_to_its_files_and_headings(site: Path) -> None:
    pages = {path: path.read_text("utf-8") for path in site.glob("*.md")}
    assert len(pages) > 30
    for path, text in pages.items():
        for target in re.findall(r"\]\(([^)\s]*)\)", re.sub(r"`[^`]*`", "", text)):
            if target.startswith(("http:", "https:")):
                continue
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            assert file.exists(), (path.name, target)
            if anchor:
                assert anchor in anchors(file.read_text("utf-8")), (path.name, target)


def test_the_site_lists_every_page(site: Path) -> None:
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    for path in site.glob("*.md"):
        assert re.search(rf"\b{path.name}\b", listed), path.name
