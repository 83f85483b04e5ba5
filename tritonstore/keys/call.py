"""The key of one launch: TOOLCHAIN, TARGET, OPS, ARGUMENTS and CODE, put together."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection
from typing import Any

from triton.runtime.jit import JITFunction

from tritonstore.errors import Bypass
from tritonstore.keys.arguments import argument_tokens, effective, overridden, popped, tensor_flags, unwrap
from tritonstore.keys.code import CodeRecord, code_record, kept_record
from tritonstore.keys.describe import listed
from tritonstore.keys.encoding import key_digest, part_digest
from tritonstore.keys.integrity import snapshot, watched_object
from tritonstore.keys.ops import ops_detail, ops_digest
from tritonstore.keys.target import TargetPart, target_part
from tritonstore.keys.toolchain import Toolchain, toolchain
from tritonstore.keys.values import Token

PARTS = ("toolchain", "target", "ops", "arguments", "code")

_MAX_KEYS = 1024
"""Keys kept per kernel; past that they are worked out again, which costs microseconds and no answer."""


class CallKey:
    """The exact question that a launch asks.

    ``digest`` (64 hex digits) names it; ``parts`` holds one digest for each of PARTS, in order, so that two keys can
    be told apart part by part; ``describe()`` says in plain data what each part was made of.
    """

    __slots__ = ("_arguments", "_code", "_target", "_toolchain", "_watch", "digest", "kernel", "parts")

    def __init__(
        self,
        kernel: Any,
        compiler: Toolchain,
        target: TargetPart,
        ops: str,
        arguments: tuple[Token, ...],
        code: CodeRecord,
    ) -> None:
        self.kernel = (str(kernel.__module__), str(kernel.__qualname__))
        self._toolchain = compiler
        self._target = target
        self._arguments = arguments
        self._code = code.nodes
        # A key may outlive the kernel, whose globals the watch holds.
        self._watch = weakref.ref(code.watch)
        self.parts = {
            "toolchain": compiler.digest,
            "target": target.digest,
            "ops": ops,
            "arguments": part_digest("arguments", arguments),
            "code": code.digest,
        }
        self.digest = key_digest(self.parts)

    def describe(self, parts: Collection[str] = PARTS) -> dict[str, Any]:
        """What these parts say, as plain data: enough to explain a difference and to ask the question again.

        Keys share these descriptions, so nobody may change them.
        """
        say: dict[str, Callable[[], Any]] = {
            "toolchain": lambda: self._toolchain.detail,
            "target": lambda: self._target.detail,
            "ops": lambda: ops_detail(self.parts["ops"]),
            "arguments": lambda: listed(self._arguments),
            "code": self._code.described,
        }
        return {"kernel": list(self.kernel), **{part: say[part]() for part in PARTS if part in parts}}

    def moment(self) -> list[int] | None:
        """Equal at two times: no module that the kernel uses was changed in between, not even for a while.

        None where that cannot be told.
        """
        watch = self._watch()
        return None if watch is None else watch.moment()

    def __repr__(self) -> str:
        return f"CallKey({self.kernel[1]}, {self.digest[:16]})"


def call_key(kernel: Any, kwargs: dict[str, Any], tma_descriptor_metadata: dict[str, Any] | None = None) -> CallKey:
    """The key of the question that PyTorch's analysis would now be asked with these arguments.

    Ask before the analysis: that one edits ``kwargs``; this function changes nothing. Raises Bypass for every call
    that the store must leave to PyTorch, with the reason.
    """
    try:
        return _call_key(kernel, kwargs, tma_descriptor_metadata)
    except Bypass:
        raise
    except Exception as error:
        # A key that cannot be worked out is no key: PyTorch must answer.
        raise Bypass("error", f"working out the key failed: {type(error).__name__}: {error}") from error


def _call_key(kernel: Any, kwargs: dict[str, Any], metadata: dict[str, Any] | None) -> CallKey:
    function, config = unwrap(kernel)
    target = target_part()
    memory = snapshot()
    compiler = toolchain(memory)
    ops = ops_digest()
    given = effective(function, kwargs, config, target.option_names)
    replaced = overridden(kwargs, config)

    # What was asked before, in the short way: a valid record, and arguments that give the tokens of an earlier call.
    record = kept_record(function)
    short = None if record is None or metadata else record.reader.read(given)
    if record is not None and short is not None:
        _check_names(kernel, record)
        key: CallKey | None = record.keys.get((compiler, target, ops, short, replaced))
        if key is not None:
            return key

    functions: list[Any] = []

    def jit_token(value: Any) -> Token:
        # The kernel itself is node 0; functions handed over as arguments follow in parameter order.
        own = watched_object(value)
        if own is not None:
            return ("triton", own)
        if value is function:
            raise Bypass("value-type", "the kernel is handed to itself")
        for position, known in enumerate(functions, 1):
            if known is value:
                return ("jit", position)
        functions.append(value)
        return ("jit", len(functions))

    tokens = argument_tokens(function, given, metadata, jit_token)
    if record is None or functions:
        record = code_record(function, tuple(functions))
    _check_names(kernel, record)
    slot = (compiler, target, ops, tuple(tokens), replaced)
    key = record.keys.get(slot)
    if key is None:
        if snapshot(deep=True).digest != memory.digest:
            return _call_key(kernel, kwargs, metadata)
        flags = tensor_flags(tokens, replaced, function.arg_names)
        arguments = tuple(zip(function.arg_names, tokens, flags, strict=True))
        key = CallKey(function, compiler, target, ops, arguments, record)
        _keep(record, slot, key)
    if short is not None:
        _keep(record, (compiler, target, ops, short, replaced), key)
    return key


def _keep(record: CodeRecord, slot: Any, key: CallKey) -> None:
    if len(record.keys) >= _MAX_KEYS:
        record.keys.clear()
    record.keys[slot] = key


def _check_names(kernel: Any, record: CodeRecord) -> None:
    """PyTorch fails where the kernel's ``__name__`` is not part of its name in the TTIR."""
    written = record.functions[0]._fn_name
    inner = kernel.fn.__name__
    if not _is_part(inner, written):
        raise Bypass("name", f"the kernel's name {inner!r} is not part of its generated name {written!r}")
    for reached in record.functions:
        # Triton's hash of a helper, once failed, leaves a placeholder and then passes: the answer would depend on
        # how often it was asked.
        held = reached.hash
        if type(held) is str and held.startswith("recursion:"):
            raise Bypass("helper-hash", f"Triton could not hash {reached.__name__}, and fails or passes by turns")


@functools.lru_cache(maxsize=1024)
def _is_part(inner: str, written: str) -> bool:
    name = written.rpartition(".")[2]
    return name.isascii() and name.isidentifier() and inner in name


def popped_options(kernel: Any, kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The names that PyTorch's analysis removes from the caller's dict: backend options given to a plain kernel.

    An Autotuner with configurations gets a merged copy, so the caller's dict stays. For a question that has a key,
    which holds an argument for each parameter: what is more than these are options. Raises Bypass as `call_key`.
    """
    function, config = unwrap(kernel)
    if (type(kernel) is not JITFunction and config is not None) or len(kwargs) == len(function.arg_names):
        return ()
    return popped(function, kwargs, target_part().option_names)


__all__ = ["PARTS", "CallKey", "call_key", "popped_options"]
