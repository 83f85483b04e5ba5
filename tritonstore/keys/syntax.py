"""What the source of one kernel function says: its syntax as plain data, and every name that it mentions.

PyTorch's answer follows ``JITFunction._src``, never the file nor the bytecode, so that string is all this module
reads. Left out, because nothing of it reaches the reads and writes in the TTIR: positions, decorators, the docstring,
the return annotation, the function's own name, annotations that merely name a type, and literal defaults.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tritonstore.errors import Bypass

BODY, DEFAULT, ANNOTATION, EXPRESSION = "body", "default", "annotation", "annotation-expression"


class Mention(NamedTuple):
    """A name, or a name with the attributes read off it (``tl.load``: root "tl", path ("load",)), and where it stands.

    Triton looks a name up differently in a parameter's default (any global is allowed there), and it evaluates
    defaults and annotations before the parameters are bound.
    """

    root: str
    path: tuple[str, ...]
    place: str


class Argument(NamedTuple):
    """One parameter as the source writes it.

    ``annotation`` is the expression where it is more than a name, a dotted name or a literal: it could then fail in
    ways that only its text tells. ``default`` likewise where it is not a literal; a literal that code generation
    cannot turn into a tensor (text, an integer beyond 64 bits) is ("literal", value): it fails a parameter that is
    not a constexpr. ``names`` is the annotation as a dotted name, if it is one; ``text`` the default as it stands.
    """

    name: str
    annotation: Any
    default: Any
    names: tuple[str, ...]
    text: Any


class Syntax(NamedTuple):
    """``bound`` are the names that the body never looks up outside: its parameters, and the locals that a plain
    assignment sets before any use. ``entangled``: one default mentions another parameter, whose default it then reads.
    ``uses``: what the body does with its names and values.
    """

    arguments: tuple[Argument, ...]
    body: tuple[Any, ...]
    mentions: tuple[Mention, ...]
    bound: frozenset[str]
    entangled: bool
    uses: Uses


class Uses(NamedTuple):
    """``handed`` are the names, with their attributes, that are mentioned other than to be called; ``stored`` those
    that are set anywhere; ``spelled`` those that an f-string turns into text, and ``spells`` whether anything else may
    be turned into text; ``read_off`` the attributes read off what an expression gives. ``same``: for each question
    whether two values are one object, the names that stand there as they are written.
    """

    handed: frozenset[tuple[str, tuple[str, ...]]]
    stored: frozenset[str]
    spelled: frozenset[str]
    spells: bool
    read_off: frozenset[str]
    same: tuple[tuple[tuple[str, ...], ...], ...]


@functools.lru_cache(maxsize=4096)
def read_source(source: str) -> Syntax:
    """The syntax of one function's source. Raises Bypass("source" or "parameters") where it is not one plain def,
    and Bypass("identity")."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Bypass("source", f"the kernel's source does not parse: {error}") from error
    if len(module.body) != 1 or type(module.body[0]) is not ast.FunctionDef:
        raise Bypass("source", "the kernel's source is not exactly one function")
    function = module.body[0]
    parameters = function.args
    if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs:
        raise Bypass("parameters", "the kernel has *args, **kwargs, keyword-only or positional-only parameters")

    mentions: set[Mention] = set()
    seen = _Seen()
    missing: list[ast.expr | None] = [None] * (len(parameters.args) - len(parameters.defaults))
    arguments = []
    for parameter, default in zip(parameters.args, missing + list(parameters.defaults), strict=True):
        annotation = parameter.annotation
        if annotation is not None:
            mentions.update(_mentions(annotation, ANNOTATION if _is_name(annotation) else EXPRESSION))
        if default is not None:
            mentions.update(_mentions(default, DEFAULT))
        for written in filter(None, (annotation, default)):
            seen.visit(written)
        arguments.append(
            Argument(
                parameter.arg,
                None if annotation is None or _is_name(annotation) or _is_literal(annotation) else _plain(annotation),
                _default(default),
                _dotted(annotation),
                None if default is None else _plain(default),
            )
        )
    body = function.body
    for statement in body:
        mentions.update(_mentions(statement, BODY))
        seen.visit(statement)
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and type(body[0].value.value) is str:
        body = body[1:]
    ordered = tuple(sorted(mentions))
    names = frozenset(argument.name for argument in arguments)
    entangled = any(mention.place == DEFAULT and mention.root in names for mention in ordered)
    bound = names | _set_before_use(body)
    uses = Uses(
        frozenset(seen.handed),
        frozenset(seen.stored),
        frozenset(seen.spelled),
        seen.spells,
        frozenset(seen.read_off),
        tuple(seen.same),
    )
    return Syntax(tuple(arguments), tuple(_plain(statement) for statement in body), ordered, bound, entangled, uses)


_READERS = frozenset({"getattr", "hasattr"})
"""The builtins that read an attribute by a name."""

_PLAIN_SPECIAL = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__file__", "__version__"})
"""Special names whose value, where one can be read at all, is in a module's namespace as any other's."""


class _Seen(ast.NodeVisitor):
    """Collects what ``Uses`` says. Raises Bypass("identity") where the body asks for more than a value: for a special
    attribute (``v.__hash__()`` of a text differs from process to process).
    """

    def __init__(self) -> None:
        self.handed: set[tuple[str, tuple[str, ...]]] = set()
        self.stored: set[str] = set()
        self.spelled: set[str] = set()
        self.spells = False
        self.read_off: set[str] = set()
        self.same: list[tuple[tuple[str, ...], ...]] = []

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _READERS:
            asked = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
            if type(asked) is not str:
                raise Bypass("identity", f"{node.func.id}() is asked for an attribute that only running it tells")
            self._reads((asked,))
            self.read_off.add(asked)
        elif _is_name(node.func):
            self._reads(_dotted(node.func))
        else:
            self.visit(node.func)
        for given in (*node.args, *node.keywords):
            self.visit(given)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            if node.id in _READERS:
                raise Bypass("identity", f"{node.id} is used as a value, and may be asked for anything")
            self.handed.add((node.id, ()))
        else:
            self.stored.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root, *path = _dotted(node) or ("",)
        self._reads(path or (node.attr,))
        if path:
            self.handed.add((root, tuple(path)))
        else:
            self.read_off.add(node.attr)
            self.visit(node.value)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        if isinstance(node.value, ast.Name):
            self.spelled.add(node.value.id)
        else:
            self.spells = True
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        # Of numbers a remainder, of a text what is put into it.
        if isinstance(node.op, ast.Mod) and not isinstance(node.right, ast.Constant):
            self.spells = True
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = (node.left, *node.comparators)
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(operator, (ast.Is, ast.IsNot)) and not (_is_singleton(left) or _is_singleton(right)):
                self.same.append(tuple(filter(None, map(_dotted, (left, right)))))
        self.generic_visit(node)

    def _reads(self, path: Sequence[str]) -> None:
        for name in path:
            if name.startswith("__") and name.endswith("__") and name not in _PLAIN_SPECIAL:
                raise Bypass("identity", f"{name} is read, by which equal values can be told apart")
        # The name of a tuple's type holds the texts of what is in it.
        self.spells |= "name" in path


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or type(node.value) is bool)


def _set_before_use(body: list[ast.stmt]) -> set[str]:
    """Names whose first mention, in the order of evaluation, is the target of a plain assignment of the body itself."""
    seen: set[str] = set()
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            seen.update(mention.root for mention in _mentions(statement.value, BODY))
            if isinstance(target, ast.Name) and target.id not in seen:
                found.add(target.id)
        seen.update(mention.root for mention in _mentions(statement, BODY))
    return found


def _dotted(node: ast.expr | None) -> tuple[str, ...]:
    if node is None or not _is_name(node):
        return ()
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    assert isinstance(node, ast.Name)
    return (node.id, *reversed(path))


def _plain(node: Any) -> Any:
    """A syntax tree as nested tuples of plain data, without positions."""
    if isinstance(node, ast.AST):
        # "kind" tells u"text" from "text", which are equal.
        fields = ((name, value) for name, value in ast.iter_fields(node) if name != "kind")
        return (type(node).__name__, *((name, _plain(value)) for name, value in fields))
    if isinstance(node, list):
        return ("list", *(_plain(item) for item in node))
    if type(node) is complex:
        return ("complex", node.real, node.imag)
    if node is Ellipsis:
        return ("ellipsis",)
    # Constants keep their Python type in the encoding, so 1, True and 1.0 stay apart.
    return node


def _is_name(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and type(node.op) is ast.USub and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return isinstance(value, (int, float)) and type(value) is not bool and value < 2**63
    return isinstance(node, ast.Constant) and type(node.value) in (bool, int, float, str, type(None))


def _default(node: ast.expr | None) -> Any:
    if node is None:
        return None
    if not _is_literal(node):
        return _plain(node)
    value = node.value if isinstance(node, ast.Constant) else None  # a negative number fits
    fits = type(value) is not str and not (type(value) is int and value >= 2**63)
    return None if fits else ("literal", value)


def _mentions(node: ast.AST, place: str) -> Iterator[Mention]:
    path: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        path.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield Mention(inner.id, tuple(reversed(path)), place)
        return
    for child in ast.iter_child_nodes(inner):
        yield from _mentions(child, place)
