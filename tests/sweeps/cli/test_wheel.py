"""Does the wheel, installed away from the clone, carry the library and run the command line?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import yaml

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("bankwise", "hwmodel", "policies", "sweeps")
PARTS = (*PACKAGES, "yaml", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the clone."""
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has our dependencies, but neither us nor the clone."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    command = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install"]
    subprocess.run(
        [*command, "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    # a path file would run the .pth files of an editable install too; a plain line does not
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin/bankwise"


def run(command: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_the_library_rides_inside_a_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "hwmodel/library/accelerators/mlu370-x4.yaml" in names
    assert "sweeps/report/templates/page.html" in names
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {*PACKAGES}


def test_it_runs_from_the_wheel_and_not_from_the_clone(installed: Path, tmp_path: Path) -> None:
    code = "import bankwise, yaml; print(bankwise.__file__); yaml.safe_load('a: 1')"
    done = run(installed.with_name("python"), "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_the_source_distribution_has_what_the_tests_need(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inner = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"bankwise/__init__.py", "examples/what_if.py", "tests/test_examples.py"} <= inner
    assert {"sweeps/py.typed", "docs/reading-results.md", "yaml/sweeps/smoke.yaml"} <= inner
    assert {"CONTRIBUTING.md", "research/README.md"} <= inner  # docs link to them
    assert {"CITATION.cff", "LICENSE", "README.md", "examples/notebooks/odma_map.ipynb"} <= inner


def test_what_is_cited_is_what_is_released() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == project["version"] and cited["license"] == project["license"]
    assert cited["cff-version"] == "1.2.0" and cited["authors"] and cited["message"]


def test_the_command_works_from_any_folder(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "--help", cwd=tmp_path).returncode == 0
    found = json.loads(run(installed, "list", "devices", "--json", cwd=tmp_path).stdout)
    assert "mlu370-x4" in [device["name"] for device in found["devices"]]
    checked = run(installed, "check", "mlu370-x4", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.long  # compiles all kernels
def test_the_wheel_runs_a_sweep(installed: Path, tmp_path: Path) -> None:
    ran = run(installed, "run", "smoke", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    record = json.loads((tmp_path / "runs/smoke-1/provenance.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert record["commit"] is None and record["version"] == project["version"]
