"""Do links of the pages lead somewhere, and do the commands and examples that pages show work?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import yaml
from hwmodel.description.library import names
from sweeps.cli.main import app
from sweeps.cli.schema import SPECS
from sweeps.plan.plugged import load_plugin
from sweeps.plan.sweep import load_sweep, planned_kind
from sweeps.study.study_spec import load_study
from tests.rotation import shared
from tests.sweeps.cli.test_command_line import bankwise

ROOT = Path(__file__).parents[1]
PAGES = {
    str(page.relative_to(ROOT)): re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"))
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    if page.name != "CHANGELOG.md"  # what it links may be gone
}
LINK = re.compile(r"!?\[([^]]*)\]\(([^)\s]*)\)")
MADE = {"api.md", "command-line.md", "results.md", "yaml.md", *(f"yaml-{k}.md" for k in SPECS)}
"""Pages of the site alone; what they link and what links them: tests/tools/test_site_pages.py."""


def anchors(page: str) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_lead_somewhere(name: str) -> None:
    for _, target in LINK.findall(PAGES[name]):
        if target.startswith(("http:", "https:")) or target.partition("#")[0] in MADE:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def test_pages_that_code_names_are_there() -> None:
    rooms = ("bankwise", "hwmodel", "policies", "sweeps", "tests", "tools", "examples", "yaml")
    files = [each for room in rooms for each in (ROOT / room).rglob("*.*")]
    for file in (each for each in files if each.suffix in (".py", ".yaml", ".sh")):
        for name in re.findall(
            r"(?<!\.cpp )\bdocs/[a-z-]+\.md\b", file.read_text(encoding="utf-8")
        ):
            assert name in PAGES, (file, name)


def test_every_page_is_in_the_index() -> None:
    index = PAGES["docs/index.md"]
    pages = {Path(name).name for name in PAGES if name.startswith("docs/")}
    pages |= {"command-line.md", "results.md", "yaml.md"}
    assert {name for name in pages if f"({name})" not in index} == {"index.md"}


class Shown(NamedTuple):
    """A block of a page."""

    page: str
    language: str
    text: str

    @property
    def label(self) -> str:
        """Its page, and how it begins."""
        return f"{Path(self.page).stem}: {self.text.splitlines()[0][:60]}"


BLOCKS = [
    Shown(name, language, text)
    for name, page in sorted(PAGES.items())
    for language, text in re.findall(r"^```([^\n]+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
]
COMMANDS = [
    pytest.param(shlex.split(line, comments=True), id=f"{Path(name).stem}: {line[:60]}")
    for name, page in sorted(PAGES.items())
    for line in re.findall(r"^(?: {4})?(?:\$ )?(bankwise [a-z].*)$", page, re.MULTILINE)
    if "\\" not in line
]


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments of a command as typed, without running it."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("bankwise", words[1:])
    for _ in range(2):
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
        if not hasattr(command, "commands"):
            break
    return dict(context.params)


def has_placeholders(words: list[str]) -> bool:
    """Whether a command has a word that its reader replaces, or a plug-in that only he has."""
    return "--plugin" in words or any(re.fullmatch(r"[A-Z_]{3,}(\.\w+)?|\.\.\.", w) for w in words)


def of_the_reader(words: list[str]) -> bool:
    """Whether a command names what only its reader has: a description of his own."""
    files = [file for word in words for file in re.findall(r"[\w./-]+\.(?:yaml|py)\b", word)]
    missing = any(not (ROOT / file).is_file() for file in files)
    return missing or any(re.fullmatch(r"my-[\w-]+", word) for word in words)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_of_a_page_is_understood(words: list[str]) -> None:
    words = words[: words.index("|")] if "|" in words else words
    if has_placeholders(words):
        pytest.skip("a form to fill in")
    given = parsed(words)
    if words[1] == "run" and not of_the_reader(words):
        name = given["name"]
        path = ROOT / name if "/" in str(name) else name
        load = {"sweep": load_sweep, "study": load_study}[planned_kind(path)]
        assert load(path, given["overrides"] or ()).points


KINDS = {"sweep": load_sweep, "study": load_study}


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "yaml"], ids=lambda block: block.label
)
@pytest.mark.usefixtures("unplugged")
def test_yaml_of_a_page_is_sound(block: Shown, tmp_path: Path) -> None:
    content = yaml.safe_load(block.text)
    if not isinstance(content, dict) or "kind" not in content:
        return  # a part of a description
    if content.get("measure") == "kv_slots":
        load_plugin(ROOT / "examples/own_measure.py")
    file = tmp_path / "shown.yaml"
    file.write_text(block.text, encoding="utf-8")
    if content["kind"] in KINDS:
        assert KINDS[content["kind"]](file).points
    else:
        done = bankwise("check", file, cwd=tmp_path)
        assert done.returncode == 0, done


@pytest.mark.parametrize(
    "block",
    shared([each for each in BLOCKS if each.language == "python"], every=3),
    ids=lambda block: block.label,
)
@pytest.mark.usefixtures("unplugged")
def test_python_of_a_page_runs(
    block: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block.text, {"__name__": "__main__"})


README = PAGES["README.md"]


class Session(NamedTuple):
    """A command that a page shows, and the lines of its answer that follow it there."""

    page: str
    typed: str
    shown: list[str]

    @property
    def label(self) -> str:
        return f"{Path(self.page).stem}: {self.typed[:70]}"


def sessions() -> list[Session]:
    """Those of commands that need nothing but what ships."""
    found: list[Session] = []
    for name, page in sorted(PAGES.items()):
        for line in page.splitlines():
            line = line.removeprefix("    ") if name == "README.md" else line
            if line.startswith("$ "):
                found.append(Session(name, line.removeprefix("$ "), []))
            elif line.startswith("```") or (name == "README.md" and not line.strip()):
                found.append(Session(name, "", []))  # what follows is no answer
            elif found:
                found[-1].shown.extend(filter(str.strip, line.split("[...]")))
    return [
        each
        for each in found
        if each.shown and each.typed.startswith("bankwise ")
        and not re.search("quick|mine|dry-run|trace.txt|random.npz", each.typed)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(each, id=each.label, marks=pytest.mark.long if "size" in each.typed else ())
        for each in sessions()
    ],
)
def test_a_command_prints_what_its_page_shows(session: Session, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    done = bankwise(*shlex.split(session.typed)[1:], cwd=tmp_path)
    if "is not beside this file" in done.stdout + done.stderr:
        pytest.skip("the log of this server is not here")
    assert done.returncode == 0, done.stderr
    printed = " ".join((done.stdout + done.stderr).split())
    assert [line for line in session.shown if " ".join(line.split()) not in printed] == []


def test_readme_counts_what_ships() -> None:
    assert f"{len(names('accelerators'))} accelerators ship" in README


FLAGS = [
    pytest.param(cell, id=cell[:60])
    for line in PAGES["docs/from-vllm.md"].splitlines()
    if line.startswith("| ")
    for cell in re.findall(r"`((?:[a-z_]+\.)*[a-z_]+=[^`]+)`", line.rsplit(" | ", 1)[-1])
]


@pytest.mark.parametrize("assignment", FLAGS)
def test_what_a_flag_is_called_here_is_a_key(assignment: str) -> None:
    sets = [assignment]
    if assignment in ("load=null", "serving.kv_tokens=41392") or assignment.startswith("arrivals"):
        sets = ["load=null", "arrivals={process: all_at_once}", assignment]
    elif "like:" not in assignment and "name:" not in assignment:
        sets = ["serving.engine={name: v1}", assignment]
    assert load_sweep("smoke", sets).points


@pytest.mark.parametrize(
    "words", re.findall(r"^\| `([^`|]+)` \|", PAGES["docs/troubleshooting.md"], re.MULTILINE)
)
def test_a_message_of_the_page_is_one_that_is_said(words: str) -> None:
    sources = [path for room in ("sweeps", "policies") for path in (ROOT / room).rglob("*.py")]
    texts = (re.sub(r'"\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in sources)
    assert any(words in text for text in texts)
