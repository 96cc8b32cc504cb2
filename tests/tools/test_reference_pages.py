"""Are the pages that the code writes fresh, and do they leave nothing out?"""

from __future__ import annotations

import re
import subprocess
import sys

from sweeps.cli.schema import SPECS
from sweeps.cli.verbs import VERBS
from tools.reference_pages import DOCS


def test_the_pages_are_fresh() -> None:
    # NOTE: in a process of its own, where no test has registered a policy.
    words = [sys.executable, "-m", "tools.reference_pages", "check"]
    done = subprocess.run(words, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_verb_and_every_kind_has_a_heading() -> None:
    verbs = (DOCS / "command-line.md").read_text(encoding="utf-8")
    kinds = (DOCS / "yaml.md").read_text(encoding="utf-8")
    assert [f"bankwise {name}" for name in VERBS] == re.findall(r"^### (.+)$", verbs, re.MULTILINE)
    assert set(SPECS) == set(re.findall(r"^## (\w+)$", kinds, re.MULTILINE))


def test_links_within_the_page_of_descriptions_lead_to_its_headings() -> None:
    text = (DOCS / "yaml.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= slugs
