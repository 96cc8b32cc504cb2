"""Pages of docs, schemas and runs as one static site that needs no network.

The site has the folders of the clone: `docs/fit.md` becomes `docs/fit.html`, README the first page.
What a page links to comes along: another page, a picture, a description. A diagram of mermaid is
shown as its text. Every link between files of the site is checked afterwards.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from hwmodel.description.description import DescriptionError
from sweeps.report.chart import file_name
from sweeps.report.contents import Report
from sweeps.report.explorer import explorer
from sweeps.report.page import page, rendered
from sweeps.run.store import write_atomically

INDEX = "search-index.js"
"""Holds what the search looks through; by it a folder is known as a site."""
_LETTERS = 1_500
"""Of a section that the search looks through, beside its headings: figures of long tables are not
looked for."""
_OUTSIDE = re.compile(r"[a-z]+:|//", re.IGNORECASE)


class Part(NamedTuple):
    """A heading and what stands under it."""

    level: int
    heading: str
    anchor: str
    text: str


class Page(NamedTuple):
    """A page of the site. `path`: in the site; `linked`: files of the source that it links to."""

    path: str
    parts: list[Part]
    html: str
    linked: list[str]

    @property
    def title(self) -> str:
        return self.parts[0].heading if self.parts else self.path


class Site(NamedTuple):
    """What was written: pages, checked links, those that lead nowhere, as `PAGE: TARGET`."""

    pages: int
    links: int
    broken: list[str]


def write_site(
    out: Path, source: Path, schemas: Mapping[str, str], reports: Sequence[Report]
) -> Site:
    """Write the site of a clone, of schemas (text by name) and of runs into a folder, and check its
    links. Raises DescriptionError where the folder has other files."""
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / INDEX).is_file())):
        raise DescriptionError("is no site and not empty; name a new folder", str(out))
    pages = _pages(source, out)
    for name, text in schemas.items():
        _write(out / f"schemas/{name}.json", text)
    names = [f"{name}.json" for name in schemas]
    pages.append(_listing("schemas", "JSON Schemas", names, source))
    runs = _runs(out, reports)
    groups = _groups(pages)
    for each in pages:
        root = "../" * each.path.count("/")
        _write(out / each.path, rendered(
            "site.html", title=each.title, root=root, path=each.path, groups=groups,
            within=[part for part in each.parts if part.level == 2], runs=None,
            content=Markup(each.html),
        ))  # fmt: skip
    _write(out / "runs/index.html", rendered(
        "site.html", title="Runs", root="../", path="runs/index.html", groups=groups, within=[],
        runs=runs, content="",
    ))  # fmt: skip
    told = [(p.path, p.title, part.anchor, part.heading, part.text[:_LETTERS])
            for p in pages for part in p.parts]  # fmt: skip
    told += [(f"runs/{r['file']}", r["name"], "", r["question"], r["lead"]) for r in runs]
    _write(out / INDEX, f"const PARTS = {json.dumps(told, ensure_ascii=False)};\n")
    return checked(out)


def checked(out: Path) -> Site:
    """Do the links between pages of a folder lead to files and anchors that are there?"""
    read = {file.resolve(): _Links(file) for file in sorted(out.rglob("*.html"))}
    count, broken = 0, []
    for file, found in read.items():
        for target in found.targets:
            if _OUTSIDE.match(target):
                continue
            count += 1
            path, _, anchor = unquote(target).partition("#")
            to = (file.parent / path).resolve() if path else file
            there = to.is_file() and to.is_relative_to(out.resolve())
            if not there or (anchor and to in read and anchor not in read[to].anchors):
                broken.append(f"{file.relative_to(out.resolve())}: {target}")
    return Site(len(read), count, broken)


class _Links(HTMLParser):
    """Where a page leads, and the anchors in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def _pages(source: Path, out: Path) -> list[Page]:
    """The pages of a clone; other files that they link to are copied."""
    docs = sorted(str(file.relative_to(source)) for file in source.glob("docs/**/*.md"))
    wanted = ["README.md", "docs/index.md", *docs]
    found: dict[str, Page] = {}
    while wanted:
        path = wanted.pop(0)
        file = source / path
        if path in found or not file.resolve().is_relative_to(source) or not file.exists():
            continue  # a link to it is found broken
        if file.is_dir():
            inner = sorted(each.name for each in file.iterdir() if each.is_file())
            found[path] = _listing(path, path, inner, source)
            wanted += [f"{path}/{name}" for name in inner]
        elif file.suffix == ".md":
            found[path] = markdown_page(path, file.read_text(encoding="utf-8"), source)
            wanted += found[path].linked
        else:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, out / path)
    return list(found.values())


def markdown_page(path: str, text: str, source: Path) -> Page:
    """A page of Markdown at this path of the clone `source`."""
    reader = MarkdownIt("commonmark").enable("table")
    tokens = reader.parse(text)
    linked: list[str] = []
    for token in _walk(tokens):
        for name in ("href", "src"):
            target = str(token.attrs.get(name, ""))
            if target and not _OUTSIDE.match(target):
                to, mark, anchor = target.partition("#")
                if to:
                    linked.append(os.path.normpath(os.path.join(os.path.dirname(path), to)))
                    placed = _placed(linked[-1], source)
                    to = os.path.relpath(placed, os.path.dirname(path) or ".")
                token.attrSet(name, to + mark + anchor)
    parts = _parts(tokens)
    html = reader.renderer.render(tokens, reader.options, {})
    html = html.replace("<table>", '<div class="wide"><table>')
    html = html.replace("</table>", "</table></div>")
    return Page(_placed(path, source), parts, html, linked)


def _placed(path: str, source: Path) -> str:
    """Where a file or a folder of the clone is in the site."""
    if path == "README.md":
        return "index.html"
    if path.endswith(".md"):
        return f"{path[:-3]}.html"
    return f"{path}/index.html" if (source / path).is_dir() else path


def _walk(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or ())


def _parts(tokens: Sequence[Token]) -> list[Part]:
    """Headings with what stands under them; gives each heading its anchor, as GitHub does."""
    found: list[Part] = []
    known: dict[str, int] = {}
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            heading = _text(token)
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            known[anchor] = again = known.get(anchor, -1) + 1
            anchor += f"-{again}" * (again > 0)
            before.attrSet("id", anchor)
            found.append(Part(int(before.tag[1:]), heading, anchor, ""))
        elif found and (token.type in ("fence", "code_block") or token.children):
            last = found[-1]
            found[-1] = last._replace(text=f"{last.text} {_text(token)}".strip())
    return found


def _text(token: Token) -> str:
    """What of it is read."""
    if token.children is None:
        return " ".join(token.content.split())
    shown = ("text", "code_inline")
    return "".join(
        each.content if each.type in shown else " " * each.type.endswith("break")
        for each in token.children
    )


def _listing(path: str, title: str, names: Sequence[str], source: Path) -> Page:
    """The page of a folder."""
    lines = "".join(f"- [{name}]({name})\n" for name in names)
    return markdown_page(f"{path}/index.md", f"# {title}\n\n{lines}", source)


def _runs(out: Path, reports: Sequence[Report]) -> list[dict[str, str]]:
    """Write a page for each run and one to explore them; a line each for their index."""
    found: list[dict[str, str]] = []
    for number, report in enumerate(reports):
        table = report.table
        file = f"{number}-{file_name(table.path.name)}.html"
        _write(out / "runs" / file, page([report.section], "index.html"))
        found.append({
            "file": file, "name": table.path.name, "lead": report.sentences[0],
            "question": table.question or str(table.config.get("summary", "")),
        })  # fmt: skip
    if reports:
        _write(out / "runs/explore.html", explorer(reports, "index.html"))
    return found


def _groups(pages: Sequence[Page]) -> dict[str, list[tuple[str, str]]]:
    """Path and title of pages for the contents list, under the headings of docs/index.md; then
    what is not on it."""
    by_path = {each.path: each for each in pages}
    index = by_path["docs/index.html"]
    top = [("index.html", "bankwise"), ("runs/index.html", "Runs")]
    found: dict[str, list[tuple[str, str]]] = {"": top}
    seen = {"index.html", index.path}
    for heading, body in re.findall(r"<h2[^>]*>(.*?)</h2>(.*?)(?=<h2|\Z)", index.html, re.DOTALL):
        for target in re.findall(r'href="([^"#]+)', body):
            path = os.path.normpath(f"docs/{target}")
            if path in by_path and path not in seen:
                found.setdefault(heading, []).append((path, by_path[path].title))
                seen.add(path)
    for each in pages:
        if each.path not in seen:
            folder = each.path.split("/")[-2] if "/" in each.path else "about"
            found.setdefault(folder.capitalize(), []).append((each.path, each.title))
    return found


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
