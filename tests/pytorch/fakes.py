"""PyTorch's analysis in miniature, in both forms, so that every way it can go is tested under any PyTorch.

A "kernel" here is an object whose `script` says what the analysis does; see `FakeModule`. Real kernels through the
real analysis are in test_flow.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from torch.utils._ordered_set import OrderedSet

SOURCE = """
import dataclasses

@dataclasses.dataclass
class TensorAccesses:
    read_writes: object
    can_fuse_epilogue: bool

class Memo:
    def __init__(self, fn):
        self.fn = fn
        self.reset()
    def __call__(self, functions, name, *args):
        key = (name, *args)
        if key not in self.cache:
            self.cache[key] = None
            self.cache[key] = self.fn(functions, name, *args)
        if self.cache[key] is None:
            raise RuntimeError("Recursion is not supported")
        return self.cache[key]
    def reset(self):
        self.cache = {}

@Memo
def get_tma_stores(functions, name):
    return set()

def generate_ttir(kernel, kwargs, tma_descriptor_metadata):
    kernel.script("generate")
    return "module", list(kernel.arg_names)

def _failed(kwargs):
    every = OrderedSet(StarDep(name) for name in kwargs)
    return TensorAccesses(ReadWrites(every, every, OrderedSet()), False)
"""

NEWER = """
@Memo
def analyze_kernel_access(functions, name, count, names, tensors):
    if name == "kernel":
        analyze_kernel_access(functions, "helper", count, names, None)
    functions("walk " + name)
    reads, writes = OrderedSet([StarDep(names[0])]), OrderedSet([StarDep(names[1])])
    return TensorAccesses(ReadWrites(reads, writes, OrderedSet()), True)

def identify_accessed_tensors(kernel, kwargs, tma_descriptor_metadata):
    try:
        _, names = generate_ttir(kernel, kwargs, tma_descriptor_metadata)
        analyze_kernel_access.reset()
        answer = analyze_kernel_access(kernel.script, "kernel", len(names), tuple(names), frozenset())
        kernel.script("end")
        return answer
    except Exception:
        return _failed(kwargs)
"""

OLDER = """
@Memo
def analyze_kernel_mutations(functions, name, count):
    if name == "kernel":
        analyze_kernel_mutations(functions, "helper", count)
    functions("walk " + name)
    return [False, True] + [False] * (count - 2)

def identify_mutated_tensors(kernel, kwargs, tma_descriptor_metadata):
    try:
        _, names = generate_ttir(kernel, kwargs, tma_descriptor_metadata)
        analyze_kernel_mutations.reset()
        mutations = analyze_kernel_mutations(kernel.script, "kernel", len(names))
        kernel.script("end")
        return [names[i] for i, written in enumerate(mutations) if written]
    except Exception:
        return list(kwargs)
"""


@dataclasses.dataclass(frozen=True)
class StarDep:
    name: str
    mode: str | None = None


@dataclasses.dataclass
class ReadWrites:
    reads: Any
    writes: Any
    index_exprs: Any


class FakeModule(ModuleType):
    """Stands for PyTorch's module. Steps told to `kernel.script`: generate, walk helper, walk kernel, end."""

    def __init__(self, kind: str) -> None:
        super().__init__("fake_wrap")
        self.__dict__.update(OrderedSet=OrderedSet, StarDep=StarDep, ReadWrites=ReadWrites)
        text = SOURCE + (NEWER if kind == "accesses" else OLDER)
        exec(compile(text, "fake_wrap.py", "exec", dont_inherit=True), self.__dict__)


def no_script(step: str) -> None:
    """Everything goes well."""


def kernel(script: Callable[[str], None] = no_script) -> Any:
    return SimpleNamespace(arg_names=["x", "y", "n"], script=script, fn=SimpleNamespace(__name__="kernel"))


def failing_at(where: str, error: BaseException | None = None) -> Any:
    """A kernel whose analysis raises at one step."""

    def script(step: str) -> None:
        if step == where:
            raise error or RuntimeError(where)

    return kernel(script)


def question(asked: Any = None) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    return asked or kernel(), {"x": 1, "y": 2, "n": 3}, {}
