"""One question, one key: in every process, under every path, in every folder; and the parts that are pinned."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from tests.support.analysis import CUDA_90, HIP_942, target
from tests.support.calls import Call
from tests.support.elsewhere import ROOT, run_python
from tests.support.kernels import CASES
from tests.support.sources import load
from tests.support.switch import launch
from tritonstore.errors import Bypass
from tritonstore.keys import call_key

GOLDEN = ROOT / "tests" / "golden" / "keys-v1.json"

# Everything that a session with several kernels would hold, asked for in a given order.
REPORT = """
import json, random, sys
from tests.support.analysis import CUDA_90, target
from tests.support.kernels import CASES
from tritonstore.keys import call_key
from tritonstore.errors import Bypass
cases = list(CASES)
random.Random(int(sys.argv[1])).shuffle(cases)
keys = {}
with target(*CUDA_90):
    for case in cases:
        try:
            keys[case.name] = call_key(case.kernel, case.kwargs(), case.tma).digest
        except Bypass as bypass:
            keys[case.name] = bypass.reason
print(json.dumps(keys, sort_keys=True))
"""

MODULE = """{before}
import triton
import triton.language as tl

LIMIT = tl.constexpr({limit})

@triton.jit
def helper(p, q):
    tl.store(q, tl.load(p))

@triton.jit
def kernel(x, y, n: tl.constexpr):
    for _ in range(LIMIT):
        helper(x, y)
"""
IMPORTED = """
import sys, torch
from importlib import import_module
from tests.support.analysis import CUDA_90, target
from tritonstore.keys import call_key
with target(*CUDA_90):
    for name in sys.argv[1:]:
        kernel = import_module(name).kernel
        print(call_key(kernel, {"x": torch.zeros(4), "y": torch.zeros(4), "n": 4}).digest)
"""


def here() -> dict[str, str]:
    keys: dict[str, str] = {}
    with target(*CUDA_90):
        for case in random.Random(7).sample(CASES, len(CASES)):
            try:
                keys[case.name] = call_key(case.kernel, case.kwargs(), case.tma).digest
            except Bypass as bypass:
                keys[case.name] = bypass.reason
    return keys


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, str]:
    keys: dict[str, str] = json.loads(run_python(REPORT, "1", environ={"PYTHONHASHSEED": "1"}))
    return keys


def test_another_process_with_another_hash_seed_has_the_same_keys(elsewhere: dict[str, str]) -> None:
    assert here() == elsewhere


def test_the_order_of_questions_and_the_folder_do_not_matter(elsewhere: dict[str, str], tmp_path: Path) -> None:
    other = run_python(REPORT, "2", environ={"PYTHONHASHSEED": "4242"}, folder=tmp_path)
    assert json.loads(other) == elsewhere


def write_module(root: Path, name: str, before: str = "", limit: int = 3) -> Path:
    place = root.joinpath(*name.split(".")).with_suffix(".py")
    place.parent.mkdir(parents=True)
    place.write_text(MODULE.format(before=before, limit=limit))
    return root


def test_path_line_and_module_name_do_not_matter_but_content_does(tmp_path: Path) -> None:
    roots = [
        write_module(tmp_path / "one", "kernels"),
        write_module(tmp_path / "another place", "package.inner.other", before="# moved\n\n" * 30),
        write_module(tmp_path / "three", "changed", limit=4),
    ]
    first, moved, changed = run_python(IMPORTED, "kernels", "package.inner.other", "changed", path=roots).split()
    assert moved == first
    assert changed != first


def test_optimised_python_has_keys_of_its_own(elsewhere: dict[str, str]) -> None:
    """Triton's checks are asserts: what fails without -O may pass with it."""
    optimised = json.loads(run_python(REPORT, "1", flags=["-O"]))
    for name, key in elsewhere.items():
        assert (optimised[name] == key) == (len(key) != 64), name


HELPERS = """
FLAG = tl.constexpr({flag})

@triton.jit
def read(p, q):
    tl.store(q, tl.load(p))

@triton.jit
def write(p, q, times: tl.constexpr = 2):
    if FLAG == 1:
        tl.store(p, times)
"""
PLAIN = """
@triton.jit
def kernel(x, y, size: tl.constexpr):
    offsets = tl.arange(0, size)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < 3, other=0.5) * -1)
"""
TWO_HELPERS = """
@triton.jit
def kernel(x, y, size: tl.constexpr):
    for step in range(size):
        read(x, y)
        while step < 2:
            write(x, q=y)
"""
ARGUMENT = """
@triton.jit
def kernel(x, y, f: tl.constexpr):
    f(x, y)
"""


def golden_calls() -> dict[str, Call]:
    """Programs that every Python parses alike, with arguments that every torch takes alike."""
    named = load(HELPERS.format(flag="'1'") + ARGUMENT)
    half = {"x": torch.zeros(4, dtype=torch.float16), "y": torch.zeros(4)}
    return {
        "plain": launch(load(PLAIN)["kernel"], size=64),
        "another element type": Call(load(PLAIN)["kernel"], half | {"size": 64}),
        "two helpers": launch(load(HELPERS.format(flag=1) + TWO_HELPERS)["kernel"], size=(1, True, None, 0.5, "a")),
        "helper as an argument": launch(named["kernel"], f=named["write"]),
        "autotuned": launch(triton.autotune([triton.Config({"size": 32})], key=[])(load(PLAIN)["kernel"])),
    }


def pinned(parts: Sequence[str]) -> dict[str, dict[str, str]]:
    """The parts that are made of the program and its arguments: CODE names Triton's own objects, version by version."""
    with target(*CUDA_90):
        keys = {name: call_key(call.kernel, call.kwargs) for name, call in golden_calls().items()}
    return {name: {part: key.parts[part] for part in parts} for name, key in keys.items()}


def write_golden() -> None:
    """Pin the present parts: python -c "from tests.keys.test_processes import write_golden; write_golden()"."""
    golden = {"triton": triton.__version__, "calls": pinned(["arguments", "code"])}
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


def test_the_golden_parts() -> None:
    """Where these change, every stored answer is out of reach: that is a new key version, for the changelog to say."""
    golden = json.loads(GOLDEN.read_text())
    parts = ["arguments", "code"] if golden["triton"] == triton.__version__ else ["arguments"]
    assert pinned(parts) == {name: {part: call[part] for part in parts} for name, call in golden["calls"].items()}


def test_the_parts_are_in_order_and_make_the_digest() -> None:
    with target(*CUDA_90):
        key = call_key(*golden_calls()["plain"])
    assert list(key.parts) == ["toolchain", "target", "ops", "arguments", "code"]
    for digest in (key.digest, *key.parts.values()):
        assert re.fullmatch("[0-9a-f]{64}", digest)


def plain(data: Any) -> bool:
    """Made of nothing but None, bool, int, float, str, bytes, lists, and dictionaries with str keys; exact types."""
    if type(data) is dict:
        return all(type(name) is str and plain(value) for name, value in data.items())
    return all(map(plain, data)) if type(data) is list else type(data) in (type(None), bool, int, float, str, bytes)


@pytest.mark.parametrize("place", [CUDA_90, HIP_942], ids=str)
def test_a_description_is_plain_data(place: tuple[str, Any, int]) -> None:
    with target(*place):
        for name, call in golden_calls().items():
            assert plain(call_key(call.kernel, call.kwargs).describe()), name
