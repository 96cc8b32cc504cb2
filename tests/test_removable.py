"""Can each feature be taken away by deleting its file and its registry line, and all else works?

The packages are copied, the feature's file and its lines in the registry go, and one process then
imports every module that is left, checks shipped descriptions that do not name the feature, and
serves with every feature that is left of the same kind.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rotation import LONG

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("hwmodel", "policies", "sweeps", "bankwise", "yaml")


class Registry(NamedTuple):
    """Where features of a kind are named, and how a description names one."""

    file: str
    variable: str
    setting: str
    """What serves with one, as `--set` takes it."""


TIERS = "serving.tiers={{host: {{link: nvme-pcie4, cpu_bytes_to_use: 1GB}}}}"
REGISTRIES = {
    "allocator": Registry("policies/allocators/registry.py", "POLICIES", "policy={}"),
    "router": Registry(
        "policies/routers/routers.py", "ROUTERS",
        "serving.cluster={{cards: 2, placement: {}}}",
    ),
    "predictor": Registry(
        "policies/predictors/predictors.py", "PREDICTORS", "serving.predictor={{kind: {}}}"
    ),
    "scheduler": Registry(
        "policies/engines/schedulers.py", "SCHEDULERS", "serving.engine={{name: {}}}"
    ),
    "connector": Registry("policies/transfers/connectors.py", "CONNECTORS", TIERS),
    "controller": Registry(
        "policies/serving/controllers.py", "CONTROLLERS",
        "serving.cluster={{cards: 2, {}: {{link: mooncake-rdma-400}}}}",
    ),
    "free list": Registry(
        "policies/allocators/free_lists/free_list_registry.py", "FREE_LISTS",
        "policy={{name: paged, free_list: {}}}",
    ),
    "source": Registry("policies/serving/sources.py", "SOURCES", "requests=8"),
    "placement": Registry(
        "policies/placements/placements.py", "PLACEMENTS", "serving.memories={{name: {}}}"
    ),
}  # fmt: skip
"""A kind is added by a line here."""
BASES = {
    ("allocator", "paged"): "the default policy, on which schedules and block tables of the real "
    "vLLM are replayed (`schedule_check`, `server_log`) and whose options say where hybrids keep "
    "states",
    ("scheduler", "v1"): "the default engine, and the one whose schedules are held against those "
    "of the real vLLM (`schedule_check`)",
    ("placement", "apart"): "the default one: `memories: {kv: lpddr}` means it without its name",
    ("placement", "interleaved"): "what `fit` and `size` take a device with several memories for "
    "(`policies/serving/rates`), which is part of their answer",
}
"""What cannot go, and why."""
WITH = {
    ("allocator", "odma"): [("allocator", "odma-best")],
}
"""What goes only together with others: odma-best is odma with other defaults."""
NEEDS = {
    ("scheduler", "sglang"): ["policy=radix"],
    ("predictor", "confusion"): ["serving.predictor.table=bert-lmsys-4"],
    ("source", "clients"): ["arrivals={process: closed, clients: 4}", "load=null"],
    **{("placement", name): ["device=hbm4-lpddr6"] for name in ("apart", "interleaved")},
    **{
        ("placement", f"by_{of}"): ["device=hbm4-lpddr6", "serving.memories.kv=lpddr"]
        for of in ("layer", "head", "request")
    },
    ("placement", "by_heat"): [
        "device=hbm4-lpddr6",
        "model=gpt-oss-20b",
        "serving.memories.experts=lpddr",
    ],
    ("placement", "recent"): [
        "device=hbm4-lpddr6",
        "serving.memories.kv=lpddr",
        "serving.memories.tokens=16",
    ],
}
"""Settings that a feature is served with."""


def entries(kind: str) -> dict[str, str]:
    """Name of each feature -> the class that its registry line names."""
    registry = REGISTRIES[kind]
    for node in ast.parse((ROOT / registry.file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == registry.variable:
            assert isinstance(node.value, ast.Dict)
            return {
                ast.literal_eval(key): ast.unparse(value)
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None
            }
    raise AssertionError(f"{registry.file} has no {registry.variable}")


FEATURES = [(kind, name) for kind in REGISTRIES for name in entries(kind)]
QUICK = {
    "allocator": "s3", "predictor": "confusion", "router": "prefix", "scheduler": "v0",
    "connector": "tiers", "controller": "migration", "free list": "runs", "source": "clients",
}  # fmt: skip
"""One of each kind, which the quick suite takes away together, with the compiled core; the long one
takes each alone."""


class _Without(ast.NodeTransformer):
    """A registry without the line of a feature; `module`: the one that it alone came from."""

    def __init__(self, name: str, cls: str, variable: str) -> None:
        self.name, self.cls, self.variable, self.module = name, cls, variable, ""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        left = [alias for alias in node.names if alias.name != self.cls]
        if not left:
            self.module = str(node.module)
            return None
        node.names = left
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef | None:
        """One that the registry's own file has goes with its options."""
        return None if node.name in (self.cls, f"{self.cls}Options") else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        if ast.unparse(node.target) == self.variable and isinstance(node.value, ast.Dict):
            pairs = list(zip(node.value.keys, node.value.values, strict=True))
            left = [pair for pair in pairs if ast.literal_eval(pair[0]) != self.name]  # type: ignore[arg-type]
            node.value.keys, node.value.values = [k for k, _ in left], [v for _, v in left]
        return node


def take_away(root: Path, kind: str, name: str) -> None:
    """Delete a feature from a copy of the packages."""
    registry, cls = REGISTRIES[kind], entries(kind)[name]
    without = _Without(name, cls, registry.variable)
    file = root / registry.file
    changed = without.visit(ast.parse(file.read_text(encoding="utf-8")))
    file.unlink()  # the copy is of links
    file.write_text(ast.unparse(changed), encoding="utf-8")
    if without.module:
        (root / Path(*without.module.split("."))).with_suffix(".py").unlink()


def names_it(text: str, name: str) -> bool:
    """Whether a description names a feature."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


SCRIPT = """
import importlib, json, pkgutil, sys
given = json.loads(sys.argv[1])
for package in ("hwmodel", "policies", "sweeps", "bankwise"):
    for each in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(each.name)
import bankwise
for file in given["files"]:
    bankwise.load(file)
rate = "load={rate_per_s: 20}"  # none is measured first
for settings in given["served"]:
    few = ["requests=8", "warmup_requests=2", "serving.memory={efficiency: 0.9}"]
    few += [rate] * ("load=null" not in settings)
    found = bankwise.simulate("smoke", set=["policy=paged", *few, *settings])
    assert found["metrics"]["finished"] == 10, settings
print("served", len(given["served"]))
"""


def take_the_compiled_core_away(root: Path) -> None:
    shutil.rmtree(root / "policies/serving/plain")
    file = root / "policies/serving/simulation.py"
    text = file.read_text(encoding="utf-8")
    for line in (
        "from policies.serving.plain.plain_run import ran_plain\n",
        "        if ran_plain(self):\n            return\n",
    ):
        assert line in text
        text = text.replace(line, "")
    file.unlink()  # the copy is of links
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "gone",
    [
        [*QUICK.items()],
        *(
            pytest.param([each, *WITH.get(each, [])], marks=pytest.mark.long)
            for each in FEATURES
            if each not in BASES
        ),
    ],
    ids=str,
)
def test_all_else_works_without(gone: list[tuple[str, str]], tmp_path: Path) -> None:
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored, copy_function=os.link)
    for kind, name in gone:
        take_away(tmp_path, kind, name)
    if gone == [*QUICK.items()]:
        take_the_compiled_core_away(tmp_path)
    shipped = {
        file.stem: file.read_text(encoding="utf-8")
        for file in sorted((tmp_path / "yaml/sweeps").glob("*.yaml"))
    }
    files = [
        file for file, text in shipped.items() if not any(names_it(text, name) for _, name in gone)
    ]
    plain = [] if ("source", "open") in gone else [[]]
    served = plain + [
        [REGISTRIES[kind].setting.format(other), *NEEDS.get((kind, other), [])]
        for kind, _ in gone for other in entries(kind)
        if (kind, other) not in gone
    ]  # fmt: skip
    given = {"files": files if LONG else files[::8], "served": served}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(given)], cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["served", str(len(served))]


def test_what_cannot_go_is_there() -> None:
    assert BASES.keys() <= set(FEATURES) and set(FEATURES) - BASES.keys() >= set(QUICK.items())
