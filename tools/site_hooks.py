"""What `mkdocs.yml` adds to the pages: the API, files that pages link, drawings, reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tools.flowchart import svg

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
"""A link to a file or folder of the repository outside of `docs`."""
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
API = """# Python

What `import bankwise` gives; examples are in [reading results](reading-results.md).

::: bankwise
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the API, reports of runs, and what pages link outside of `docs`: files, and
    of a folder the files in it and a page that lists them."""
    files.append(File.generated(config, "api.md", content=API))
    for path in reports():
        to = f"reports/{path.parent.name}.html"
        files.append(File.generated(config, to, abs_src_path=str(path)))
    pages = sorted((ROOT / "docs").glob("*.md"))
    linked = {name.rstrip("/") for page in pages for name in LINK.findall(page.read_text("utf-8"))}
    for name in sorted(linked):
        if (ROOT / name).is_dir():
            inside = [path for path in sorted((ROOT / name).rglob("*")) if is_source(path)]
            links = [f"- [{(at := path.relative_to(ROOT / name))}]({at})\n" for path in inside]
            listed = f"# {name}\n\n{''.join(links)}"
            files.append(File.generated(config, f"files/{name}/index.md", content=listed))
        else:
            inside = [ROOT / name]
        for path in inside:
            to = f"files/{path.relative_to(ROOT)}"
            if files.get_file_from_path(to) is None:
                files.append(File.generated(config, to, abs_src_path=str(path)))
    return files


def is_source(path: Path) -> bool:
    """Whether a folder's page lists it."""
    return path.is_file() and "__pycache__" not in path.parts


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of `docs` to copies in the site, and out of copies to the pages; draw
    flowcharts; on the results, list reports of the runs."""
    if page.file.src_uri.startswith("files/"):
        return markdown.replace("](docs/", "](../")
    markdown = LINK.sub(lambda match: f"](files/{target(match[1])}", markdown)
    markdown = MERMAID.sub(lambda match: svg(match[1]), markdown)
    if page.file.src_uri == "results.md" and (names := [path.parent.name for path in reports()]):
        listed = ", ".join(f"[{name}](reports/{name}.html)" for name in names)
        markdown += f"\n\nReports: {listed}.\n"
    return markdown


def target(name: str) -> str:
    """The copy that a link leads to: a file, or the page that lists a folder."""
    return f"{name.rstrip('/')}/index.md" if (ROOT / name).is_dir() else name


def reports() -> list[Path]:
    """Reports of the release run on this machine."""
    return sorted((ROOT / "runs/release").glob("*/report.html"))
