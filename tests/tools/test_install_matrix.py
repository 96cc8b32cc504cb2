"""Does the install matrix find Pythons, measure what it starts, and say why something failed?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.install_matrix import VERSIONS, call, python_of, size_mb


def test_the_versions_are_those_that_the_package_allows() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    first, last = VERSIONS[0], VERSIONS[-1]
    after = f"3.{int(last.removeprefix('3.')) + 1}"
    assert f'requires-python = ">={first},<{after}"' in project


def test_a_python_that_is_not_there_is_none() -> None:
    assert python_of("3.999") is None


def test_a_command_is_measured_in_a_home_of_its_own(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; assert pathlib.Path.home() == pathlib.Path.cwd(); print(len('a' * 9))"
    )
    took = call([sys.executable, "-c", code], tmp_path)
    assert took.wall_s > 0 and took.cpu_s > 0 and took.peak_mb > 1
    assert (tmp_path / "log").read_text() == "9\n" and size_mb(tmp_path) == pytest.approx(2e-6)


def test_a_command_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        call([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path)
