"""The package as others get it: what is in the wheel, both kinds of install, the layers, and a cheap import."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

# The layers of the package, lowest first. A file imports only from files further up in this list.
LAYERS = (
    *("values", "errors", "born", "forks", "settings", "speak", "counters", "access", "backends.folders"),
    *("runrecord", "journal_timeline", "leaving", "journal_parts", "journal"),
    "keys",
    *("entry", "signing"),
    *("backends.base", "backends.trust", "backends.options", "backends.wrappers", "backends.leases"),
    *(
        "backends.memory",
        "backends.files",
        "backends.diskcache",
        "backends.redis_faults",
        "backends.redis_limits",
        "backends.redis",
        "backends.objectstore",
    ),
    *("backends.registry", "backends"),
    *("quarantine", "tiers", "flight", "store"),
    *("maintenance.inventory", "maintenance.bundle", "maintenance.verify", "maintenance.runs"),
    *("recipes.recipe", "recipes.newest", "recipes.sources", "recipes.workers", "recipes.prewarm", "recipes.ahead"),
    "pytorch",
    *("replacement.verdicts", "replacement.capability", "replacement.call", "replacement.registry"),
    *("replacement.guards", "replacement.kernels", "replacement.planners.common", "replacement.planners"),
    *("replacement.writes", "replacement.snapshot", "replacement.planning", "replacement.rewrite", "replacement"),
    "recipes",
    *("maintenance", "cli", "__main__"),
)

BUILD_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
COMMAND = "[console_scripts]\ntritonstore = tritonstore.cli.main:entry"
ENTRY_POINT = "[torch.backends]\ntritonstore = tritonstore.pytorch.autoload:activate"


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A copy to build from, because a build leaves its files in the source folder."""
    copy = tmp_path / "checkout"
    shutil.copytree(root / "tritonstore", copy / "tritonstore", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILD_FILES:
        shutil.copy(root / name, copy)
    for folder in ("tests", "scripts"):  # what must stay out of the wheel
        (copy / folder).mkdir()
        (copy / folder / "__init__.py").touch()
    return copy


def pip(*arguments: str, python: str = sys.executable) -> None:
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "--python", python, arguments[0], *offline, *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_holds_nothing_but_the_package(checkout: Path, tmp_path: Path) -> None:
    sources = {path.relative_to(checkout).as_posix() for path in (checkout / "tritonstore").rglob("*.py")}
    pip("wheel", "--wheel-dir", str(tmp_path / "wheels"), str(checkout))
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = [name for name in names if name.startswith("tritonstore-")]
        assert set(names) - set(info) == sources | {"tritonstore/py.typed"}
        assert {Path(name).parts[0] for name in info} == {"tritonstore-0.1.0.dist-info"}
        assert any(name.endswith("/LICENSE") for name in info)
        (entry_points,) = (archive.read(name).decode() for name in info if name.endswith("/entry_points.txt"))
        (metadata,) = (archive.read(name).decode() for name in info if name.endswith("/METADATA"))
    assert ENTRY_POINT in entry_points
    assert COMMAND in entry_points
    assert "Requires-Dist: msgpack" in metadata
    assert "Apache-2.0" in metadata


@pytest.mark.parametrize("editable", [False, True], ids=["normal", "editable"])
def test_install(checkout: Path, tmp_path: Path, editable: bool) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    (site,) = venv.glob("lib/python*/site-packages")
    # The new environment sees this one's msgpack, torch and setuptools, but runs none of its .pth files.
    here = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (site / "here.pth").write_text("\n".join(sorted(here)))
    pip("install", *(["--editable"] if editable else []), str(checkout), python=python)
    program = (
        "import tritonstore, json, importlib.metadata as m; "
        "points = [p.value for p in m.entry_points(group='torch.backends') if p.name == 'tritonstore']; "
        "print(json.dumps([tritonstore.__file__, points[:1], tritonstore.__version__]))"
    )
    done = subprocess.run([python, "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    file, points, version = json.loads(done.stdout)
    assert Path(file).is_relative_to(checkout if editable else site)
    assert points == ["tritonstore.pytorch.autoload:activate"]
    assert version == "0.1.0"


def test_import_needs_neither_torch_nor_triton(root: Path) -> None:
    program = (
        "import sys, tritonstore, tritonstore.store, tritonstore.entry; "
        "print(sorted({'torch', 'triton', 'sympy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def layer(module: str) -> int | None:
    """The place in LAYERS of `tritonstore.<module>`; None if it has none."""
    while module:
        if module in LAYERS:
            return LAYERS.index(module)
        module = module.rpartition(".")[0]
    return None


def imports(path: Path, package: str) -> set[str]:
    """The modules of the package that the file imports, at any depth, without the leading `tritonstore.`"""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            prefix = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {name.removeprefix("tritonstore.") for name in found if name.startswith("tritonstore.")}


def test_layers(root: Path) -> None:
    wrong = []
    for path in sorted((root / "tritonstore").rglob("*.py")):
        module = ".".join(path.relative_to(root / "tritonstore").with_suffix("").parts)
        if module == "__init__":
            continue  # the public names, imported when they are asked for
        package = ".".join(["tritonstore", *module.split(".")[:-1]])
        own = layer(module.removesuffix(".__init__"))
        assert own is not None, f"{module} has no place in LAYERS"
        for name in sorted(imports(path, package)):
            other = layer(name)
            if other is not None and other > own:
                wrong.append(f"{module} imports {name}, which is further down")
            if other is None and name not in ("__version__",):
                wrong.append(f"{module} imports {name}, which has no place in LAYERS")
    assert wrong == []
