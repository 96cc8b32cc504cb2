"""Does `bankwise fit` answer as a user types it?"""

from __future__ import annotations

from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise


def test_a_device_alone_is_a_table_and_its_picture(tmp_path: Path) -> None:
    done = bankwise("fit", "mlu370-x4", "--weights", "w4a16", "--save", "b.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "qwen2.5-32b" in done.stdout and "fits with --cards" in done.stdout
    assert "Capacity against what models need" in (tmp_path / "b.html").read_text()
