"""What `mkdocs.yml` adds to the pages: the API, files that pages link, reports of runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
"""A link to a file of the repository outside of `docs`."""
API = """# Python

What `import bankwise` gives; examples are in [reading results](reading-results.md).

::: bankwise
"""
linked: set[str] = set()
"""Files outside of `docs` that pages link, found as the pages are read."""


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the API."""
    files.append(File.generated(config, "api.md", content=API))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of `docs` to copies in the site; on the results, list reports of the runs."""
    linked.update(match[1].rstrip("/") for match in LINK.finditer(markdown))
    markdown = LINK.sub(lambda match: f"](files/{match[1]}", markdown)
    if page.file.src_uri == "results.md" and (names := [path.parent.name for path in reports()]):
        listed = ", ".join(f"[{name}](reports/{name}.html)" for name in names)
        markdown += f"\n\nReports: {listed}.\n"
    return markdown


def reports() -> list[Path]:
    """Reports of the release run on this machine."""
    return sorted((ROOT / "runs/release").glob("*/report.html"))


def on_post_build(config: Any) -> None:
    """Copy what pages link, and the reports."""
    site = Path(config["site_dir"])
    for name in sorted(linked):
        source, target = ROOT / name, site / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
    for path in reports():
        (site / "reports").mkdir(exist_ok=True)
        shutil.copy(path, site / "reports" / f"{path.parent.name}.html")
