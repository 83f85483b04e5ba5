"""Why a call has no key, and what would give it one, in words. The table in docs/keys.md says the same; a test holds
them together.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["REASONS", "Reason", "reason_of"]


class Reason(NamedTuple):
    """What kind of call it is, and what would make it cacheable; `remedy` is empty where nothing would."""

    call: str
    remedy: str


_TYPE = Reason(
    "`@triton.heuristics`, nested autotuners, Gluon kernels, kernel classes that compute their `fn` or `configs`",
    "a plain `@triton.jit` function, or `@triton.autotune` directly over one",
)
_SOURCE = Reason(
    "the source does not parse as one function; `*args`, keyword-only or positional-only parameters",
    "ordinary parameters",
)
_NAMES = Reason(
    "a module handed around as a value, a module of a class of its own or with attributes made on demand, an attribute "
    "read off a `@triton.jit` function or, where such functions are handed around as values, one that no tensor has",
    "name the value itself",
)
_UNSET = Reason(
    "a backend from outside Triton, compiler plugins, `TRITON_INTERPRET`, `TRITON_ALLOW_NON_CONSTEXPR_GLOBALS`",
    "unset the variable",
)
_RANGE = Reason("an element type without a Triton name; an integer beyond 64 bits", "")

REASONS: dict[str, Reason] = {
    "kernel-type": _TYPE,
    "kernel-repr": Reason("the kernel has `repr=`", "leave `repr=` out"),
    "name": Reason(
        "the kernel was renamed after it was made, or two helpers' names could clash, also with Triton's own",
        "keep the names that `def` gave",
    ),
    "source": _SOURCE,
    "parameters": _SOURCE,
    "value-type": Reason(
        "a compile-time value with behaviour of its own: enum, dataclass, namedtuple, aggregate, object, Python "
        "callable, a `constexpr_function` or builtin from outside Triton, a dtype or constexpr with attributes set on "
        "it, a NaN in a tuple",
        "pass plain numbers, text, dtypes or tuples of them",
    ),
    "module-value": _NAMES,
    "lazy-module": _NAMES,
    "jit-attribute": _NAMES,
    "identity": Reason(
        "two values compared with `is`, where neither is written `None`, `True`, `False` or as a dtype of Triton's; a "
        "special attribute (`v.__hash__`); an attribute whose name is worked out (`getattr(v, NAME)`)",
        "compare with `==`",
    ),
    "argument-names": Reason(
        "the arguments are not exactly the kernel's parameters (PyTorch refuses such a call too)",
        "pass every parameter",
    ),
    "argument-type": Reason(
        "a tuple, list or function for an ordinary parameter; tensor subclasses; tensors without a data pointer",
        "tensors and numbers",
    ),
    "dtype": _RANGE,
    "integer-range": _RANGE,
    "tma": Reason(
        "host-side TMA descriptors: PyTorch's answer depends on the machine that exports", "device-side descriptors"
    ),
    "no-target": Reason("no GPU driver, and no declared target", "`TRITONSTORE_TARGET=cuda:90:32`"),
    "backend": _UNSET,
    "plugins": _UNSET,
    "interpret": _UNSET,
    "non-constexpr-globals": _UNSET,
    "access-ops": Reason("a function from outside PyTorch in its table of operations", ""),
    "patched": Reason(
        "Triton's front end or PyTorch's analysis has been patched in memory; the message names the member",
        "undo the patch",
    ),
    "helper-hash": Reason("Triton cannot hash a helper, and fails or passes by turns", ""),
    "toolchain": Reason("Triton's or torch's files changed after the process started", "start the process again"),
    "error": Reason("working out the key raised an exception", "report it"),
    # Not of the call, but of the store at that moment.
    "key-fault": Reason("working out the key raised an exception", "report it"),
    "store-fault": Reason("the store failed while it was asked", "`tritonstore doctor` looks for the cause"),
    "no-store": Reason("the store could not be opened", "`tritonstore doctor` looks for the cause"),
    "stopped": Reason("a verification found a wrong answer, and this process stopped using the store", "report it"),
}


def reason_of(reason: str) -> Reason:
    """The words for a reason; of an unknown one (another version's record), that it is unknown."""
    return REASONS.get(reason, Reason("a reason that this version does not know", ""))
