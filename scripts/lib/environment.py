"""The Python environment that the scripts run in. Needs only a bare Python 3.10 or newer, and works from any folder.

An environment that already holds what a script needs is used as it is. Otherwise `.venv` in the checkout is made: on
top of the active environment if that has a fitting torch and triton (of which there are many builds, and the one that
works on a machine is the one to keep), else with the versions in constraints.txt.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "tritonstore-stamp.json"
BIG = ("torch", "triton")
NEED_TORCH = ("liger-kernel",)
EXTRAS = ("demo", "test", "bench", "dev")
BOUND_FILES = ("constraints.txt", "setup.cfg", "pyproject.toml", "scripts/lib/environment.py")


def run_module(module: str, arguments: list[str], extras: tuple[str, ...], *, installed: bool) -> NoReturn:
    """Become `python -m module arguments` in a fitting environment.

    `extras` of setup.cfg are needed; `installed` says that the package itself must be installed, too, with its entry
    point, and that the small packages must have exactly the versions in constraints.txt.
    """
    if sys.version_info < (3, 10):  # noqa: UP036  (this runs under whatever python3 is)
        raise SystemExit(f"tritonstore: Python 3.10 or newer is needed, this is {sys.version.split()[0]}")
    if Path(sys.prefix).resolve() != VENV.resolve() and _satisfied(extras, exact=installed, itself=installed):
        python = sys.executable
    else:
        python = str(_venv())
    paths = [str(ROOT / "scripts"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.execv(python, [python, "-m", module, *arguments])


def requirements(*extras: str) -> list[tuple[str, str]]:
    """(name, lower bound) of what setup.cfg asks for."""
    config = configparser.RawConfigParser()
    config.read(ROOT / "setup.cfg")
    blocks = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    return sorted({tuple(line.split(">=")) for block in blocks for line in block.split()})  # type: ignore[misc]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def _numbers(version: str) -> list[int]:
    """The release numbers of a version: [2, 13, 0] of 2.13.0+cpu."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = "".join(c for c in part if c.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return numbers


def _found(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fits(name: str, bound: str) -> bool:
    found = _found(name)
    return found is not None and _numbers(found) >= _numbers(bound)


def _satisfied(extras: tuple[str, ...], *, exact: bool, itself: bool) -> bool:
    for name, bound in requirements(*extras):
        if not _fits(name, bound) or (exact and name not in BIG and _found(name) != pins()[name]):
            return False
    if not itself:
        return True
    try:
        origin = metadata.distribution("tritonstore").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return False
    return origin is not None and json.loads(origin).get("url") == ROOT.as_uri()


def _base() -> dict[str, str]:
    """The active environment's fitting torch and triton, and where they lie; empty if there are none."""
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    bounds = dict(requirements())
    if inside or not all(_fits(name, bounds[name]) for name in BIG):
        return {}
    folders = {str(metadata.distribution(name).locate_file("")) for name in BIG}
    return {"folders": "\n".join(sorted(folders))} | {name: _found(name) or "" for name in BIG}


def _venv() -> Path:
    """The Python of an up-to-date `.venv`; made or renewed if need be."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() == VENV.resolve():
        base = json.loads(STAMP.read_text())["base"] if STAMP.exists() else {}
    else:
        base = _base()
    content = "".join((ROOT / name).read_text() for name in BOUND_FILES)
    stamp = {
        "files": hashlib.sha256(content.encode()).hexdigest(),
        "python": sysconfig.get_config_var("VERSION"),
        "base": base,
        "place": str(ROOT),
    }
    with _one_at_a_time():
        if python.exists() and STAMP.exists() and json.loads(STAMP.read_text()) == stamp:
            return python
        what = f"torch {base['torch']} and triton {base['triton']} as they are" if base else "all it needs"
        _say(f"making {VENV} with {what} (once; later calls use it)")
        _make(python, base)
        STAMP.write_text(json.dumps(stamp))
        _say("ready")
    return python


def _make(python: Path, base: dict[str, str]) -> None:
    STAMP.unlink(missing_ok=True)
    python_itself = getattr(sys, "_base_executable", sys.executable)  # not the one that --clear removes
    _call([python_itself, "-m", "venv", "--clear", str(VENV)], "a virtual environment could not be made")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = [*pip, "--constraint", str(ROOT / "constraints.txt")]
    failure = "the packages could not be installed"
    if not base:
        _call([*pinned, "--editable", f"{ROOT}[{','.join(EXTRAS)}]"], failure)
        return
    # Not --system-site-packages: inside another virtual environment that would show the wrong one.
    site = next(VENV.glob("lib/python*/site-packages"))
    (site / "base.pth").write_text(base["folders"] + "\n")
    # What needs torch goes in without its needs: pip would complete a torch that came without its CUDA packages.
    small = [name for name, _ in requirements(*EXTRAS) if name not in (*BIG, *NEED_TORCH)]
    _call([*pinned, *small], failure)
    _call([*pip, "--no-deps", "--editable", str(ROOT), *(f"{name}=={pins()[name]}" for name in NEED_TORCH)], failure)


def _call(command: list[str], failure: str) -> None:
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(f"tritonstore: {failure}; the failed command: {' '.join(command)}")


def _say(text: str) -> None:
    print(f"tritonstore: {text}", file=sys.stderr, flush=True)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two scripts started together must not make one `.venv` at the same time."""
    with open(ROOT / ".venv-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
