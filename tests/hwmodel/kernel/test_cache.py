"""Are compiled kernels kept where they can be, by nobody else's hand, and used from a wheel?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hwmodel.kernel import cache

SHOWS = (
    "import numba; from hwmodel.kernel import jit;"
    "print(numba.config.CACHE_DIR, jit.KEPT, numba.config.CPU_NAME)"
)

READS_A_KERNEL = (
    "from sweeps.cli.main import main; from hwmodel.kernel import jit; main(['--version'])"
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments in a new process, which keeps kernels where it would by itself
    in that environment."""
    left_out = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME")
    clean = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, *arguments], env=clean | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def kept(**environment: str) -> list[str]:
    """Directory of kernels, whether they are kept, and for which processor, in a new process."""
    return run("-c", SHOWS, **environment).stdout.split()


def test_kernels_are_kept_in_the_cache_of_the_user(tmp_path: Path) -> None:
    name = f"kernels-{cache.source_digest()}"
    assert kept(XDG_CACHE_HOME=str(tmp_path)) == [str(tmp_path / "bankwise" / name), "True", "None"]
    assert kept(HOME=str(tmp_path))[0] == str(tmp_path / ".cache" / "bankwise" / name)


def test_without_a_home_that_can_be_written_they_are_kept_among_temporary_files(
    tmp_path: Path,
) -> None:
    place = kept(HOME="/proc/nobody", TMPDIR=str(tmp_path))[0]
    base = tmp_path / f"bankwise-{os.getuid()}"
    assert Path(place).parent == base
    assert base.stat().st_mode & 0o077 == 0


def test_what_others_may_have_written_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / f"bankwise-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"bankwise-{os.getuid()}").chmod(0o777)
    assert kept(HOME="/proc/nobody", TMPDIR=str(tmp_path))[-2:] == ["False", "None"]


def test_a_command_says_in_one_line_that_kernels_are_kept_nowhere(tmp_path: Path) -> None:
    (tmp_path / f"bankwise-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"bankwise-{os.getuid()}").chmod(0o777)
    commands = ("-m", "sweeps.cli.main", "list", "links"), ("-c", READS_A_KERNEL)
    told = [
        run(*each, HOME="/proc/nobody", TMPDIR=str(tmp_path)).stderr.splitlines()
        for each in commands
    ]
    assert told[0] == []
    assert len(told[1]) == 1 and "XDG_CACHE_HOME" in told[1][0]


def test_kernels_of_a_wheel_are_used_until_there_are_those_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = tmp_path / "carried"
    name = f"kernels-{cache.source_digest()}"
    version = "py{}{}".format(*sys.version_info)
    (carried / name / "hwmodel.kernel").mkdir(parents=True)
    (carried / name / "hwmodel.kernel" / f"channel.runner-1.{version}.1.nbc").write_bytes(b"code")
    monkeypatch.setattr(cache, "CARRIED", carried)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = cache.cache_directory()
    assert here is not None
    assert [file.read_bytes() for file in here.rglob("*.nbc")] == [b"code"]
    monkeypatch.setattr(
        cache.binding, "get_host_cpu_features", lambda: dict.fromkeys(cache._NEEDS, True)
    )
    assert cache._is_portable(here)
    (here / cache.NATIVE).touch()
    assert not cache._is_portable(here)
    (here / cache.NATIVE).unlink()
    monkeypatch.setattr(cache.binding, "get_host_cpu_features", lambda: {"avx2": True})
    assert not cache._is_portable(here)


def test_what_was_compiled_of_other_numbers_or_types_is_not_even_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A type that is no more cannot be read; a number that a kernel has is in it."""
    from policies.serving.plain.core import core

    def place() -> str:
        function = core.py_func  # type: ignore[attr-defined]
        return cache.KernelLocator(function, function.__code__.co_filename).get_cache_path()

    before, digest = place(), cache._digest
    assert place() == before
    for name in ("plain_state.py", "stretch_rows.py", "plain_blocks.py", "core.py"):
        monkeypatch.setattr(
            cache, "_digest", lambda file, name=name: digest(file) + name * file.endswith(name)
        )
        assert place() != before, name
