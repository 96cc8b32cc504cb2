"""Does what strangers install run? Wheel and sdist, in a new environment of each Python there is.

    python -m tools.install_matrix [--wheel DIR]

For each Python from 3.11 to 3.14: the wheel with its dependencies into an empty environment, and
questions, a sweep and its report with an empty home; then its kernels are compiled for a common
processor. A wheel with the kernels of all these Pythons follows, whose first call must compile
nothing, and which `--wheel` keeps. Last the sdist, in the first of them. Where a Python or a
processor is not there, it is only asked whether all dependencies have wheels for it. Prints a line
for each step, and exits with 1 where one fails. Needs an index of packages.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FIRST = "memory mlu370-x4 --pattern sequential"
"""Compiles a kernel, or finds it in the wheel."""
ASKED = ("fit rtx-4090 llama-3.1-8b", FIRST, "run smoke", "report smoke")
ELSEWHERE = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
X86 = platform.machine() == "x86_64"
"""Kernels for a wheel are for processors of this kind."""
KEPT = ("PATH", "LANG", "PIP_INDEX_URL")
"""Variables of the environment that reach what is tried."""


class Took(NamedTuple):
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s, {self.cpu_s:.1f} of CPU, {self.peak_mb:.0f} MB"


def say(words: str) -> None:
    print(words, flush=True)


def python_of(version: str) -> str | None:
    """The interpreter of a version on the path, or among those of pyenv; None where none starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = (shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python")))
    for each in filter(None, known):
        if not subprocess.run([each, "-c", "import ensurepip"], capture_output=True).returncode:
            return each
    return None


def call(command: list[str], home: Path) -> Took:
    """Run a command whose home is a folder. Raises RuntimeError with its last words."""
    log, began = home / "log", time.perf_counter()
    environment = {key: os.environ[key] for key in KEPT if key in os.environ}
    with log.open("w") as out:
        started = subprocess.Popen(
            command, cwd=home, stdout=out, stderr=subprocess.STDOUT,
            env={**environment, "HOME": str(home)},
        )  # fmt: skip
        _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise RuntimeError(f"{' '.join(command)}: {log.read_text().strip()[-500:]}")
    wall_s = time.perf_counter() - began
    return Took(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def size_mb(path: Path) -> float:
    """Of a file, or of all files below a folder."""
    files = [path] if path.is_file() else list(path.rglob("*"))
    return sum(each.lstat().st_size for each in files if each.is_file()) / 1e6


def built(sdist: Path | None, out: Path, kernels: Path | None = None) -> Path:
    """The sdist of this clone; or a wheel of the sdist, with these kernels in it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    if sdist is None:
        made = [*command, "--sdist", str(ROOT)]
    else:
        shutil.unpack_archive(sdist, out / "source")
        source = next((out / "source").iterdir())
        if kernels is not None:
            shutil.copytree(kernels, source / "hwmodel/kernels")
        made = [*command, "--wheel", str(source)]
    subprocess.run(made, check=True, capture_output=True)
    return next(out.glob("*.whl" if sdist else "*.tar.gz"))


def installed(environment: Path, what: Path, *options: str) -> str:
    """The command of an environment, into which a wheel or sdist was put."""
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    call([*pip, *options, str(what)], environment.parent)
    return str(environment / "bin/bankwise")


def try_plain(version: str, python: str, wheel: Path, home: Path, kernels: Path) -> None:
    """The wheel without kernels in a new environment; its kernels go where all are collected."""
    home.mkdir()
    call([python, "-m", "venv", "venv"], home)
    command = installed(home / "venv", wheel)
    say(f"{version}: installed from {wheel.name}: {size_mb(home / 'venv'):.0f} MB")
    for asked in ASKED:
        say(f"{version}: bankwise {asked}: {call([command, *asked.split()], home)}")
    if X86:
        took = call([command, "new", "kernels", "--portable", str(kernels)], home)
        say(f"{version}: kernels compiled for the wheel: {took}")


def try_with_kernels(version: str, wheel: Path, home: Path) -> None:
    """The wheel that has kernels, in the same environment, with another empty home."""
    command = installed(home / "venv", wheel, "--no-deps", "--force-reinstall")
    (empty := home / "empty").mkdir()
    began = time.time()
    took = call([command, *FIRST.split()], empty)
    compiled = [f for f in empty.rglob("*.nbc") if f.stat().st_mtime > began]
    if compiled or not any(empty.rglob("*.nbc")):
        raise RuntimeError(f"the kernels of {wheel.name} are not used")
    again = call([command, *FIRST.split()], empty)
    say(f"{version}: bankwise {FIRST}, with the wheel's kernels: {took}; again: {again}")


def resolve(wheel: Path, words: str, *options: str) -> None:
    """Say whether all dependencies have wheels for another Python or processor."""
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--only-binary"]
        command += [":all:", "--target", target, *options, str(wheel)]
        has = "have" if not subprocess.run(command, capture_output=True).returncode else "lack"
    say(f"{words}: not there, so not tried; all its dependencies {has} wheels")


def tried(work: Path, keep: Path | None) -> bool:
    """Try everything in a folder; whether all went well."""
    (work / "sdist").mkdir()
    sdist, kernels = built(None, work / "sdist"), work / "kernels"
    wheel = built(sdist, work / "plain")
    say(f"{wheel.name}: {size_mb(wheel):.1f} MB; {sdist.name}: {size_mb(sdist):.1f} MB")
    there, failed = [], False
    for version in VERSIONS:
        if (python := python_of(version)) is None:
            resolve(wheel, f"Python {version}", "--python-version", version)
            continue
        try:
            try_plain(version, python, wheel, work / version, kernels)
            there.append(version)
        except RuntimeError as error:
            say(f"{version}: FAILS: {error}")
            failed = True
    platforms = [word for each in ELSEWHERE for word in ("--platform", each)]
    if X86:
        resolve(wheel, "aarch64", *platforms)
    if not (there and X86):
        return bool(there) and not failed
    full = built(sdist, work / "full", kernels)
    say(f"{full.name} with kernels of {', '.join(there)}: {size_mb(full):.1f} MB")
    try:
        for version in there:
            try_with_kernels(version, full, work / version)
        command = installed(work / there[0] / "venv", sdist, "--no-deps", "--force-reinstall")
        say(f"{there[0]}: from {sdist.name}: {call([command, *FIRST.split()], work / there[0])}")
    except RuntimeError as error:
        say(f"FAILS: {error}")
        failed = True
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        say(f"wrote {shutil.copy(full, keep)}")
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, metavar="DIR", help="keep the wheel with kernels")
    keep = parser.parse_args().wheel
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        sys.exit(not tried(Path(folder), keep))


if __name__ == "__main__":
    main()
