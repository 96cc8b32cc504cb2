"""Does what a package brings say how to install it, and join what ships once it is there?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.cli.packaged import PACKAGES
from tests.sweeps.cli.test_command_line import ROOT, refusal

VERB = "def command(name: str) -> None:\n    'Say a word.'\n    print('said', name)\n"


@pytest.mark.parametrize("verb", PACKAGES)
def test_a_verb_that_is_not_installed_says_how_to(verb: str, tmp_path: Path) -> None:
    said = refusal(*verb.split(), "anything", cwd=tmp_path)
    assert said == f"bankwise {verb}: pip install ./examples/packages/{PACKAGES[verb]}"
    assert (ROOT / "examples/packages" / PACKAGES[verb] / "pyproject.toml").is_file()


@pytest.mark.parametrize("verb", ["speak", "new speech"])
def test_a_package_brings_a_verb(verb: str, tmp_path: Path) -> None:
    info = tmp_path / "speaking-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: speaking\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[bankwise.verbs]\n{verb} = speaking:command\n")
    (tmp_path / "speaking.py").write_text(VERB)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    def said(*words: str) -> str:
        command = [sys.executable, "-m", "sweeps.cli.main", *words]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said(*verb.split(), "hello") == "said hello\n"
    assert "Say a word." in said(*verb.split()[:-1], "--help")
