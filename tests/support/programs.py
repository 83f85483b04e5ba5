"""Random programs: a kernel with helpers, made from independent semantic switches and cosmetic noise.

`Meaning` is all that the answer may depend on; `Looks` is all that it may not. A program's text comes from both. Two
programs of equal meaning ask one question; of different meaning, they may or may not have one answer.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import torch

from tests.support.analysis import NEWER
from tests.support.calls import Call
from tests.support.sources import load

ROUTES = ("name", "alias", "module", "closure", "argument")
DTYPES = (torch.float32, torch.float16, torch.int32)


class Meaning(NamedTuple):
    """`flag` decides a branch of the kernel, `helper_flag` one of the helper; `route` is how the kernel reaches it,
    `depth` over how many functions; `one_name` gives both helpers the same name, so that one body serves for both."""

    stores_x: bool = True
    flag: int | str | bool | float = 1
    helper_flag: int = 1
    helper_default: int = 1
    module_value: int = 1
    route: str = "name"
    depth: int = 1
    loop: bool = False
    noinline: bool = False
    swapped: bool = False
    one_name: bool = False
    dtype: torch.dtype = torch.float32
    wide: bool = False
    constexpr: int = 16


class Looks(NamedTuple):
    """The seed draws comments, docstrings, blank lines, names, defaults and decorators' arguments."""

    seed: int = 0
    module: str = "kernels_under_test"
    lines_before: int = 0
    values: int = 1
    shape: int = 4


class _Writer:
    def __init__(self, looks: Looks) -> None:
        self.random = random.Random(looks.seed)
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        for line in text.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if indent and self.random.random() < 0.2:
                self.lines.append(f"{indent}# {self.random.randint(0, 999)}")
            if self.random.random() < 0.1:
                self.lines.append("")
            comment = f"  # {self.random.randint(0, 9)}" if self.random.random() < 0.2 else ""
            self.lines.append(line + comment)

    def name(self, stem: str) -> str:
        return f"{stem}_{self.random.choice('abcdefgh')}{self.random.randint(0, 9)}"

    def docstring(self) -> str:
        return f'    """{self.random.randint(0, 99)}"""\n' if self.random.random() < 0.5 else ""

    def decorator(self, *fixed: str) -> str:
        options = ("debug=True", "version=3", "do_not_specialize=[1]")
        chosen = [option for option in options if self.random.random() < 0.3]
        return f"@triton.jit({', '.join([*fixed, *chosen])})"


def build(meaning: Meaning, looks: Looks) -> Call:
    """The call of a freshly executed program."""
    writer = _Writer(looks)
    names = [writer.name("helper"), writer.name("other"), writer.name("middle"), writer.name("kernel")]
    if meaning.one_name:
        names[1] = names[0]
    writer.lines += [""] * looks.lines_before
    writer.add(f"import types\ncfg = types.ModuleType('cfg')\ncfg.VALUE = {meaning.module_value}")
    writer.add(f"FLAG = tl.constexpr({meaning.flag!r})\nHELPER_FLAG = tl.constexpr({meaning.helper_flag})")
    _helpers(writer, meaning, names)
    _kernel(writer, meaning, names)
    namespace = load("\n".join(writer.lines), module=looks.module)
    arguments: dict[str, Any] = {name: torch.zeros(looks.shape * 2, 2) for name in "yabcdg"}
    arguments |= {name: torch.zeros(looks.shape, dtype=meaning.dtype) for name in "xe"}
    arguments |= {"n": 2**40 + looks.values if meaning.wide else looks.values, "SIZE": meaning.constexpr}
    if meaning.route == "argument":
        arguments["f"] = namespace["reached"]
    order = list(arguments)
    writer.random.shuffle(order)
    return Call(namespace["launched"], {name: arguments[name] for name in order})


def _helpers(writer: _Writer, meaning: Meaning, names: list[str]) -> None:
    helper, other, middle, _ = names
    parameters = "q, p" if meaning.swapped else "p, q"
    noinline = ("noinline=True",) if meaning.noinline else ()
    writer.add(f"DEFAULT = {meaning.helper_default}\n{writer.decorator(*noinline)}")
    writer.add(f"def {helper}({parameters}, extra: tl.constexpr = DEFAULT):\n{writer.docstring()}")
    writer.add("    if HELPER_FLAG == 1:\n        tl.store(p, 1)\n    if extra == 1:")
    writer.add("        tl.store(q, 1)\n    tl.load(p)")
    writer.add(f"DEFAULT = {meaning.helper_default}\nreached = {helper}\n{writer.decorator()}")
    writer.add(f"def {other}(p, q, extra: tl.constexpr = DEFAULT):\n{writer.docstring()}    tl.load(q)")
    writer.add(f"second = {other}\nDEFAULT = 0")
    for level in range(1, meaning.depth):
        writer.add(f"inner{level} = reached\n{writer.decorator()}")
        writer.add(f"def {middle}{level}(p, q):\n    inner{level}(p, q)\nreached = {middle}{level}")


def _kernel(writer: _Writer, meaning: Meaning, names: list[str]) -> None:
    called = {"name": "reached", "alias": "alias", "module": "cfg.f", "closure": "captured", "argument": "f"}
    call = f"{called[meaning.route]}(x, y)"
    parameters = f"x, y, a, b, c, d, e, g, n, SIZE: tl.constexpr = {writer.random.randint(1, 9)}"
    if meaning.route == "argument":
        parameters += ", f: tl.constexpr = None"
    body = [
        writer.decorator(),
        f"def {names[3]}({parameters}):",
        *writer.docstring().splitlines(),
        *(["    tl.store(x, 1)"] if meaning.stores_x else []),
        "    if FLAG == 1:",
        "        tl.store(a, 1)",
        "    if f'{FLAG}' == '1':",
        "        tl.load(a)",
        "    if f'{FLAG}' == '0.0':",
        "        tl.load(b)",
        "    if cfg.VALUE == 1:",
        "        tl.store(b, 1)",
        "    if SIZE == 16:",
        "        tl.store(c, 1)",
        # torch 2.11 hands n over as a constant, which has no dtype.
        "    if n.dtype == tl.int64:" if NEWER else "    if n > 2147483647:",
        "        tl.store(d, 1)",
        "    if x.dtype.element_ty == tl.float16:",
        "        tl.load(d)",
        *(["    for _ in range(n):", f"        {call}"] if meaning.loop else [f"    {call}"]),
        "    second(e, g)",
    ]
    writer.add("alias = reached\ncfg.f = reached")
    if meaning.route == "closure":
        writer.add("def make(captured):")
        writer.add("\n".join(f"    {line}" for line in body))
        writer.add(f"    return {names[3]}\nlaunched = make(reached)")
    else:
        writer.add("\n".join(body))
        writer.add(f"launched = {names[3]}")
