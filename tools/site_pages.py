"""The pages of the site as files: those of `docs`, and those that the code makes.

    python -m tools.site_pages FOLDER    # write all of them; make docs builds the site of FOLDER

Made are the API, the command line and the keys of descriptions, and the results of the release run.
Links out of `docs` lead to copies of what they name, and flowcharts are drawn.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tools.figures import RESULTS, ROOT, Value, read_part
from tools.flowchart import svg
from tools.reference_pages import reference_pages
from tools.release import parts

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
"""A link to a file or folder of the repository outside of `docs`."""
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
API = """# Python

What `import bankwise` gives; examples are in [reading results](reading-results.md).

::: bankwise
"""
_RESULTS = f"""# Results of the release run

Every figure that README and the pages quote, made by `make release-run`. A text names a value by \
its part and key. Ratios are ratios: 1.87 is +87 %. The last two columns are the ends of an \
interval of 95 % over replications; a value without them is of one run, or a count. The repository \
has a file for each part in `{RESULTS}`.
"""


def made_pages() -> dict[str, str]:
    """The pages that the code makes, by name."""
    return {"api.md": API, "results.md": results_page(), **reference_pages()}


def results_page() -> str:
    """The values of the release run, part by part."""
    page = [_RESULTS]
    for name, part in parts().items():
        if not (ROOT / RESULTS / f"{name}.json").is_file():
            page.append(f"## {name}\n\n{part['question']}\n\nNot run yet.\n")
            continue
        made = read_part(ROOT / RESULTS / f"{name}.json")
        typed = "; ".join(each.replace("{run}", "RUN") for each in part.get("commands", ()))
        by = f"`{typed}`" if typed else "Read by `tools.release_readers`"
        took = f"{made['cpu_s'] / 60:.1f} CPU minutes at commit `{made['commit']}`"
        rows = "\n".join(_row(key, value) for key, value in made["values"].items())
        head = "| key | value | low | high |\n|---|---:|---:|---:|"
        page.append(f"## {name}\n\n{part['question']}\n\n{by} ({took})\n\n{head}\n{rows}\n")
    if names := [path.parent.name for path in _reports()]:
        listed = ", ".join(f"[{name}](reports/{name}.html)" for name in names)
        page.append(f"Reports: {listed}.\n")
    return "\n".join(page)


def _row(key: str, value: Value) -> str:
    cells = [f"{each:.6g}" if isinstance(each, float) else str(each) for each in _cells(value)]
    return f"| `{key}` | {' | '.join([*cells, '', ''][:3])} |"


def _cells(value: Value) -> list[float | str]:
    return list(value) if isinstance(value, list) else [value]


def write_pages(folder: Path) -> None:
    """Write all pages, and what they link, into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=lambda where, names: {Path(RESULTS).name} & {*names})
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    for name, text in {**pages, **made_pages()}.items():
        (folder / name).write_text(_led(text), encoding="utf-8")
        for linked in LINK.findall(text):
            _copy(linked.rstrip("/"), folder / "files")
    for path in _reports():
        to = folder / f"reports/{path.parent.name}.html"
        to.parent.mkdir(exist_ok=True)
        shutil.copy(path, to)


def _led(text: str) -> str:
    """A page whose links out of `docs` lead to copies in the site, with its flowcharts drawn."""
    text = LINK.sub(lambda match: f"](files/{_target(match[1])}", text)
    return MERMAID.sub(lambda match: svg(match[1]), text)


def _target(name: str) -> str:
    """The copy that a link leads to: a file, or the page that lists a folder."""
    return f"{name.rstrip('/')}/index.md" if (ROOT / name).is_dir() else name


def _copy(name: str, files: Path) -> None:
    """Copy what a page links: a file, or the files of a folder and a page that lists them."""
    source, to = ROOT / name, files / name
    if not source.is_dir():
        to.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_bytes()
        to.write_bytes(text.replace(b"](docs/", b"](../") if source.suffix == ".md" else text)
        return
    inside = [path for path in sorted(source.rglob("*")) if _is_source(path)]
    for path in inside:
        _copy(str(path.relative_to(ROOT)), files)
    links = "".join(f"- [{(at := path.relative_to(source))}]({at})\n" for path in inside)
    (to / "index.md").write_text(f"# {name}\n\n{links}", encoding="utf-8")


def _is_source(path: Path) -> bool:
    """Whether a folder's page lists it."""
    return path.is_file() and "__pycache__" not in path.parts


def _reports() -> list[Path]:
    """Reports of the release run on this machine."""
    return sorted((ROOT / "runs/release").glob("*/report.html"))


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    write_pages(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
