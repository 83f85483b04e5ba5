"""Nothing executes data: no place in the package can, but those named here, each with its reason."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

CALLS = {"eval", "exec", "compile", "__import__", "execfile", "input", "breakpoint"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "imp", "runpy", "code", "codeop", "ctypes", "yaml"}
ATTRIBUTES = {"import_module", "exec_module", "load_module", "system", "popen", "loads", "load_source", "FunctionType"}
ATTRIBUTES |= {"CodeType", "unsafe_load", "set_start_method", "__reduce_ex__", "find_spec", "module_from_spec"}

_CONSTANT = "the name is one of this file's own constants"
# file or folder → what it may → why
ALLOWED: dict[str, dict[str, str]] = {
    "__init__.py": {"import_module": _CONSTANT},
    "replacement/__init__.py": {"import_module": _CONSTANT},
    "backends/registry.py": {"import_module": "a scheme chooses a line of the table SCHEMES"},
    "cli/main.py": {"import_module": "a command chooses a line of the table COMMANDS"},
    "pytorch/artifacts.py": {"import_module": _CONSTANT},
    "pytorch/install.py": {"import_module": _CONSTANT},
    "pytorch/probe.py": {"import_module": _CONSTANT},
    "pytorch/seam.py": {"import_module": _CONSTANT},
    "pytorch/autoload.py": {
        "exec_module": "the loader of PyTorch's own module, which somebody is importing",
        "find_spec": "of PyTorch's own module",
    },
    "keys/versions.py": {"exec": "text written in that file"},
    "maintenance/doctor.py": {"loads": "JSON, from a child that it has started itself"},
    "maintenance/prune.py": {"find_spec": "of torch and triton, to read their version files"},
    "pytorch/rebuild.py": {
        "import_module": "prewarm and verify --recompute import the kernels that entries name, when a person asks",
        "find_spec": "to look whether such a module is there",
    },
}


def uses(tree: ast.AST) -> Iterator[str]:
    """Whatever could run code or load a module by a name that is not written there."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"import {name}" for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if isinstance(function, ast.Name) and name in CALLS:
                yield name
            elif name in ATTRIBUTES:
                first = node.args[0] if node.args else None
                if name != "import_module" or not isinstance(first, ast.Constant):
                    yield name
            for keyword in node.keywords:
                literal = isinstance(keyword.value, ast.Constant) and keyword.value.value in (False, None, 0)
                if keyword.arg in ("shell", "object_hook", "ext_hook", "object_pairs_hook") and not literal:
                    yield f"{keyword.arg}="


def found(root: Path) -> dict[str, Counter[str]]:
    package = root / "tritonstore"
    each = {
        path.relative_to(package).as_posix(): Counter(uses(ast.parse(path.read_text())))
        for path in sorted(package.rglob("*.py"))
    }
    return {name: used for name, used in each.items() if used}


def test_only_the_named_places_could(root: Path) -> None:
    wrong = []
    for file, used in found(root).items():
        allowed = next((reasons for name, reasons in ALLOWED.items() if file == name or file.startswith(name)), {})
        wrong += [f"{file}: {what}" for what in used if what not in allowed]
    assert wrong == []


def test_every_exception_is_still_needed(root: Path) -> None:
    places = found(root)
    for name, reasons in ALLOWED.items():
        used = [used for file, used in places.items() if file == name or file.startswith(name)]
        for what in reasons:
            assert any(what in each for each in used), f"{name} has no {what} any more"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("eval(x)", "eval"),
        ("exec(x)", "exec"),
        ("compile(x, '', 'exec')", "compile"),
        ("__import__(x)", "__import__"),
        ("import pickle", "import pickle"),
        ("from marshal import loads", "import marshal"),
        ("importlib.import_module(entry.module)", "import_module"),
        ("import_module(f'a.{x}')", "import_module"),
        ("pickle.loads(x)", "loads"),
        ("os.system(x)", "system"),
        ("subprocess.run(x, shell=True)", "shell="),
        ("msgpack.unpackb(x, ext_hook=f)", "ext_hook="),
    ],
)
def test_it_would_be_noticed(source: str, what: str) -> None:
    assert what in list(uses(ast.parse(source)))


def test_a_literal_is_no_data() -> None:
    assert list(uses(ast.parse("importlib.import_module('torch'); subprocess.run(x, shell=False)"))) == []
