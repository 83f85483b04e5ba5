"""CODE: everything that code generation reads from Python for one kernel, and a cheap proof that it still holds.

The record is a list of nodes, in discovery order from the kernel: itself, then the JITFunctions handed to it as
arguments, then each helper that a node mentions. A node is its syntax, its parameters, and a token for every name it
mentions. Working that out takes about a millisecond, so it is kept on the kernel object; on every call the kept record
is checked against the world that it was read from (``Watch``), object by object. A stale record is impossible as long
as each value that the record speaks of is either watched by identity and immutable, or read again.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import sys
from collections.abc import Callable
from typing import Any

from triton.runtime.jit import JITFunction, get_full_name

from tritonstore.errors import Bypass
from tritonstore.keys.describe import NamedNode, Nodes
from tritonstore.keys.encoding import part_digest
from tritonstore.keys.integrity import watched_object
from tritonstore.keys.members import STUBS, own_object
from tritonstore.keys.reader import Reader
from tritonstore.keys.scope import Scope
from tritonstore.keys.syntax import read_source
from tritonstore.keys.values import Token, value_token
from tritonstore.keys.watch import ABSENT, OF_VALUES, OVERRIDES, Watch

_SLOT = "__tritonstore_code__"
_MAX_RECORDS = 64


class CodeRecord:
    """The CODE part for one kernel and the JITFunctions among its arguments."""

    __slots__ = ("digest", "functions", "keys", "nodes", "reader", "watch")

    def __init__(self, functions: tuple[Any, ...], nodes: tuple[NamedNode, ...], digest: str, watch: Watch):
        self.functions = functions
        self.nodes = Nodes(nodes)
        self.digest = digest
        self.watch = watch
        self.keys: dict[Any, Any] = {}
        self.reader = Reader(functions[0].params)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        # A kernel that is pickled or copied must not drag the module globals that we watch along with it.
        return _nothing, ()


def _bound_as_defined(function: Any) -> bool:
    """Whether a helper is bound as its parameters say: by its signature, or (Triton 3.6) by its Python function."""
    bound = list(function.signature.parameters.values())
    if [(each.name, each.kind) for each in bound] != [(each.name, each._param.kind) for each in function.params]:
        return False
    defaults = tuple(each.default for each in bound if each.default is not inspect.Parameter.empty)
    held = function.fn.__defaults__ or ()
    return len(held) == len(defaults) and all(map(operator.is_, held, defaults))


def _nothing() -> None:
    return None


def kept_record(kernel: Any, arguments: tuple[Any, ...] = ()) -> CodeRecord | None:
    """The record of a kernel with these JITFunctions, if there is one and it is still valid."""
    # Kept on the kernel itself: a table keyed by the kernel would call its __hash__, which computes Triton's
    # stateful cache_key, and a global table would keep every kernel that a notebook ever defined alive.
    records = kernel.__dict__.get(_SLOT)
    if records is None:
        return None
    record: CodeRecord | None = records.get(tuple(map(id, arguments)))
    # A shallow copy of a kernel shares this very dict with it, and may differ in its source.
    return record if record is not None and record.functions[0] is kernel and record.watch.holds() else None


def code_record(kernel: Any, arguments: tuple[Any, ...]) -> CodeRecord:
    """The valid record of a kernel with the JITFunctions handed to it as constexpr arguments. Raises Bypass."""
    record = kept_record(kernel, arguments)
    if record is not None:
        return record
    record = _build(kernel, arguments)
    records = kernel.__dict__.get(_SLOT)
    if records is None or len(records) >= _MAX_RECORDS or any(_foreign(r, kernel) for r in records.values()):
        records = {}
        kernel.__dict__[_SLOT] = records
    records[tuple(map(id, arguments))] = record
    return record


def _foreign(record: CodeRecord | None, kernel: Any) -> bool:
    # None is what a record became on its way through a pickle or a deep copy.
    return record is None or record.functions[0] is not kernel


def _build(kernel: Any, arguments: tuple[Any, ...]) -> CodeRecord:
    walk = _Walk(kernel, arguments)
    nodes = walk.nodes()
    named = tuple(
        (get_full_name(function), tuple(function.fn.__code__.co_freevars), node)
        for function, node in zip(walk.functions, nodes, strict=True)
    )
    return CodeRecord(tuple(walk.functions), named, part_digest("code", nodes), walk.watch)


class _Walk:
    """One walk over the functions reachable from a kernel; collects the watch as it reads."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        self.watch = Watch()
        self.functions: list[Any] = []
        self.index: dict[int, int] = {}
        self.full_names: dict[str, int] = {}
        # Where functions are handed around as values, an attribute of one is read off whatever holds it by then.
        self.handed = bool(arguments)
        self.read_off: set[str] = set()
        self.spells = False
        self.builtin = False  # whether one of Triton's builtins is handed around
        # The kernel is a node also where it is one of Triton's own: its text is what is asked about.
        self._add(kernel)
        for function in arguments:
            self.jit_token(function)

    def nodes(self) -> list[Token]:
        nodes = []
        # The list grows while it is walked.
        for position, function in enumerate(self.functions):
            nodes.append(self.node(function, root=position == 0))
        self._refuse_clashing_names()
        if self.builtin and self.spells:
            raise Bypass("identity", "a builtin may be turned into text, which tells where it lies in memory")
        if self.handed:
            self._refuse_looks_into_functions()
            if self.spells:
                # A function shows its name where it is turned into text.
                nodes = [(*node[:6], repr(each), *node[7:]) for node, each in zip(nodes, self.functions, strict=True)]
        return nodes

    def jit_token(self, function: Any) -> Token:
        """The token of a function to be called: one of Triton's own by its place, a user's by its index."""
        own = self.own(function)
        if own is not None:
            return own
        if type(function) is not JITFunction:
            raise Bypass("value-type", f"a {type(function).__name__} stands where a @triton.jit function is expected")
        if (function.__module__ or "").partition(".")[0] == "triton":
            # Triton names what it generates by module and name, and would take one for the other.
            raise Bypass("name", f"{get_full_name(function)} is named like a part of Triton, but is not")
        return ("jit", self._add(function))

    def _add(self, function: Any) -> int:
        position = self.index.setdefault(id(function), len(self.functions))
        if position == len(self.functions):
            self.functions.append(function)
        return position

    def node(self, function: Any, root: bool) -> Token:
        if not OVERRIDES.isdisjoint(vars(function)):
            raise Bypass("kernel-type", f"{get_full_name(function)} has methods of its own")
        if function.is_gluon():
            raise Bypass("kernel-type", f"{get_full_name(function)} is a Gluon kernel")
        self.watch.function(function)
        syntax = read_source(function._src)
        if not root and not _bound_as_defined(function):
            raise Bypass("parameters", f"{get_full_name(function)} has another signature than it was defined with")
        parameters = []
        for parameter in function.params:
            constexpr = bool(parameter.is_constexpr)
            unspecialised = bool(parameter.do_not_specialize or parameter.do_not_specialize_on_alignment)
            default: Token = ()
            bound = function.signature.parameters.get(parameter.name)
            if not root and bound is not None and bound.default is not inspect.Parameter.empty:
                # A helper is bound with its default *object*, which its source does not tell.
                default = (self.value(bound.default),)
            parameters.append(
                (parameter.name, str(parameter._param.kind), constexpr, constexpr and unspecialised, default)
            )
        if [entry[0] for entry in parameters] != function.arg_names:
            raise Bypass("parameters", f"{get_full_name(function)}.arg_names are not its parameters")
        scope = Scope(function, syntax, self)
        self.read_off |= syntax.uses.read_off
        self.spells |= syntax.uses.spells
        scope.refuse_identity()
        arguments = []
        for argument, parameter in zip(syntax.arguments, function.params, strict=True):
            written = argument.default
            if written is not None and argument.names:
                constexpr = scope.is_constexpr(argument.names)
                literal = written[0] == "literal"
                if root and literal and constexpr:
                    written = None
                elif constexpr != bool(parameter.is_constexpr) and not (root and literal):
                    # The default may be of a type that only a constexpr takes: Triton looks at what the annotation is.
                    written = (written, "constexpr" if constexpr else "not constexpr")
            if syntax.entangled:
                written = argument.text
            arguments.append((argument.name, argument.annotation, written))
        names = [entry for mention in syntax.mentions for entry in scope.tokens(mention)]
        full_name = self.full_names.setdefault(get_full_name(function), len(self.full_names))
        noinline = not root and bool(function.noinline)
        must_use = bool(getattr(function, "_must_use_result", False))
        return ("node", tuple(arguments), syntax.body, tuple(parameters), noinline, must_use, full_name, tuple(names))

    def own(self, value: Any) -> Token | None:
        """The token of one of Triton's own objects, whose inside is watched as well."""
        identity = watched_object(value)
        if identity is None:
            return None
        self.watch.inside(value)
        if identity.startswith(STUBS + ":"):
            self._device_functions(identity.partition(":")[2])
        return ("triton", identity)

    def _device_functions(self, name: str) -> None:
        """Each backend puts a function of its own in a stub's place; which one, the target says."""
        for backend in ("cuda", "hip"):
            place = f"triton.language.extra.{backend}.libdevice"
            module = sys.modules.get(place, ABSENT)
            self.watch.item(sys.modules, place, module)
            if module is not ABSENT:
                found = vars(module).get(name, ABSENT)
                self.watch.item(vars(module), name, found)
                if found is not ABSENT and own_object(found) is None:
                    raise Bypass("patched", f"{place}.{name} is not Triton's")
                self.watch.inside(found)

    def value(self, value: Any) -> Token:
        token = value_token(value, self._handed_token)
        self.watch.value(value, token)
        return token

    def _handed_token(self, function: Any) -> Token:
        self.handed = True
        return self.jit_token(function)

    def _refuse_looks_into_functions(self) -> None:
        """What a function that stands for a value is called, and what was set on it, must not decide anything."""
        unknown = sorted(self.read_off - OF_VALUES)
        if unknown:
            raise Bypass("jit-attribute", f"{unknown[0]} may be read off a function that is handed around as a value")
        for function in self.functions:
            # Triton tells them apart by the former where they are handed to one helper; we name them by the latter.
            if (function.module, function.fn.__qualname__) != (function.__module__, function.__qualname__):
                raise Bypass("name", f"{get_full_name(function)} was renamed after it was made")

    def _refuse_clashing_names(self) -> None:
        # Triton names a generated helper "<full name>__<types>" and reuses a function of that name without looking at
        # its body; two names of which one continues the other could meet there.
        for shorter, longer in itertools.permutations(self.full_names, 2):
            if longer.startswith(shorter + "__"):
                raise Bypass("name", f"the helpers {shorter} and {longer} could get one generated name")
