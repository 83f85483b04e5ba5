"""The public names, listed once, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import tritonstore

PUBLIC = [
    "TritonStoreError",
    "install",
    "installed",
    "keys",
    "open_store",
    "prewarm",
    "replacement",
    "stats",
    "uninstall",
]


def test_the_public_names_are_these() -> None:
    assert tritonstore.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(tritonstore))


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(tritonstore, name).__doc__
    assert name in (tritonstore.__doc__ or "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tritonstore.no_such_name  # noqa: B018


def test_the_version_is_that_of_the_package(root: Path) -> None:
    assert f"\nversion = {tritonstore.__version__}\n" in (root / "setup.cfg").read_text(encoding="utf-8")
    try:
        assert version("tritonstore") == tritonstore.__version__
    except PackageNotFoundError:
        assert tritonstore.__version__


def test_the_package_is_typed(root: Path) -> None:
    assert (root / "tritonstore" / "py.typed").is_file()


@pytest.mark.parametrize(
    "statement",
    [
        "import tritonstore",
        "import tritonstore.pytorch.autoload",
        "import tritonstore.pytorch",
        "from tritonstore import open_store; open_store('memory:')",
        "from tritonstore import TritonStoreError",
        "from tritonstore import install",
    ],
)
def test_importing_needs_neither_torch_nor_triton(statement: str, root: Path) -> None:
    program = f"{statement}\nimport sys\nprint([m for m in ('torch', 'triton', 'sympy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
