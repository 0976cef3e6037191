#!/usr/bin/env python3
"""Installs a wheel of Commonhold into empty environments, and has two processes share memory in each.

    tests/wheel.py WHEEL [--roots DIRECTORY]

Prints what failed, and at the end `install.wheel_failures N`. With `--roots` also within the folders of Debian 12 and 13, which
debootstrap makes there (as root, over the network; those that are there are used again).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SHARE = """
import subprocess, sys
import commonhold as ch, numpy as np
if len(sys.argv) > 1:
    ch.array("/wheel")[7] += 35
else:
    array = ch.zeros("/wheel", 1000, "u4")
    array[7] = 7
    subprocess.run([sys.executable, __file__, "child"], check=True)
    assert array[7] == 42, array[7]
    ch.remove("/wheel")
"""
SHARE_BYTES = """
import subprocess, sys
import commonhold as ch
if len(sys.argv) > 1:
    with ch.open("/wheel", "r+") as opened, opened.map() as mapping:
        mapping[0:5] = b"hello"
else:
    with ch.create("/wheel", 4096) as opened, opened.map() as mapping:
        subprocess.run([sys.executable, __file__, "child"], check=True)
        assert mapping[0:5] == b"hello", mapping[0:5]
    try:
        ch.array("/wheel")
    except ImportError as error:
        assert "pip install numpy" in str(error), error
    else:
        raise AssertionError("an array without NumPy")
    ch.remove("/wheel")
"""
SUITES = {"bookworm": "3.11", "trixie": "3.13"}


def run(command: list[str | Path], **more: object) -> None:
    """Runs a command; what it printed is only shown if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-3000:]}")


class Environment:
    """An empty virtual environment, with a host of its own, whose state is in its folder."""

    def __init__(self, folder: Path, inside: list[str] | None = None, root: Path = Path("/")) -> None:
        self.inside = inside or []
        self.folder = folder
        (root / str(folder).lstrip("/")).mkdir(parents=True)
        self.on_disk = root / str(folder).lstrip("/")
        path = f"{folder}/venv/bin:/usr/bin:/bin"
        self.variables = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": path, "LANG": "C.UTF-8",
                          "COMMONHOLD_HOST": ""} | {
            name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")
        }  # fmt: skip
        python = "/usr/bin/python3" if inside or Path("/usr/bin/python3").exists() else sys.executable
        self.run(python, "-m", "venv", folder / "venv")

    def run(self, *command: str | Path) -> None:
        run([*self.inside, *command], env=self.variables)

    def install(self, *what: str | Path) -> None:
        self.run(self.folder / "venv/bin/python", "-m", "pip", "install", "--quiet", *what)

    def shares(self, program: str) -> None:
        (self.on_disk / "share.py").write_text(program)
        self.run(self.folder / "venv/bin/python", self.folder / "share.py")

    def end(self) -> None:
        stop = [*self.inside, self.folder / "venv/bin/commonhold", "host", "stop", "--force"]
        if (self.on_disk / "venv/bin/commonhold").exists():
            subprocess.run(stop, env=self.variables, capture_output=True, check=False)
        shutil.rmtree(self.on_disk, ignore_errors=True)


class Wheels:
    """The wheel, and beside it NumPy's, for machines without a network."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.wheel, self.folder = wheel, folder

    def beside(self, python: str) -> Path:
        """A folder with both, for that version of Python."""
        folder = self.folder / f"wheels-{python}"
        if not folder.exists():
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--no-deps"]
            run([*download, "--python-version", python, "--dest", folder, "numpy"])
            shutil.copy(self.wheel, folder)
        return folder


def from_the_network(environment: Environment, wheels: Wheels) -> None:
    environment.install(wheels.wheel)
    environment.shares(SHARE)


def without_a_compiler(environment: Environment, wheels: Wheels) -> None:
    for tool in ("cc", "gcc", "cargo", "rustc", "maturin"):
        (environment.folder / "venv/bin" / tool).write_text("#!/bin/sh\nexit 127\n")
        (environment.folder / "venv/bin" / tool).chmod(0o755)
    environment.install("--only-binary", ":all:", wheels.wheel)
    environment.shares(SHARE)


def without_a_network(environment: Environment, wheels: Wheels) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not environment.inside:
        asked = [environment.folder / "venv/bin/python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    environment.install("--no-index", "--find-links", wheels.beside(version), "commonhold")
    environment.shares(SHARE)


def without_numpy(environment: Environment, wheels: Wheels) -> None:
    environment.install("--no-deps", wheels.wheel)
    environment.shares(SHARE_BYTES)


def in_root(suite: str, roots: Path) -> Callable[[Environment, Wheels], None]:
    def shares(environment: Environment, wheels: Wheels) -> None:
        beside = wheels.beside(SUITES[suite])
        shutil.copytree(beside, environment.on_disk / "wheels")
        environment.install("--no-index", "--find-links", environment.folder / "wheels", "commonhold")
        environment.shares(SHARE)

    root = roots / suite
    roots.mkdir(parents=True, exist_ok=True)
    if not (root / "usr/bin/python3").exists():
        shutil.rmtree(root, ignore_errors=True)
        packages = "python3,python3-venv"
        run(["debootstrap", "--variant=minbase", f"--include={packages}", suite, root])
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--roots", type=Path)
    arguments = parser.parse_args()
    roots = arguments.roots.absolute() if arguments.roots else None
    failures = 0

    def attempt(what: str, begin: Callable[[], Environment], job: Callable[[Environment, Wheels], None]) -> None:
        nonlocal failures
        environment = None
        try:
            environment = begin()
            job(environment, wheels)
            print(f"ok      {what}", flush=True)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            failures += 1
            print(f"FAILED  {what}: {error}", flush=True)
        finally:
            if environment is not None:
                environment.end()

    with tempfile.TemporaryDirectory(prefix="commonhold-wheel-") as folder:
        wheels = Wheels(arguments.wheel.resolve(), Path(folder))
        for job in (from_the_network, without_a_compiler, without_a_network, without_numpy):
            place = Path(folder) / job.__name__
            attempt(job.__name__.replace("_", " "), lambda place=place: Environment(place), job)
        for suite in SUITES if roots else ():
            place = Path("/root/commonhold-wheel")
            root = roots / suite
            # Its own processes and mounts: what is started there ends with it.
            inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", f"--root={root}"]
            try:
                job = in_root(suite, roots)
            except RuntimeError as error:
                failures += 1
                print(f"FAILED  {suite}: {error}", flush=True)
                continue
            attempt(f"root of Debian {suite}", lambda: Environment(place, inside, root), job)
    print(f"install.wheel_failures {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
