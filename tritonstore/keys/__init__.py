"""Keys: exactly what PyTorch's analysis of a Triton launch depends on, and nothing more.

    encoding    plain values → bytes → SHA-256
    values      compile-time values → tokens, by exact type
    syntax      a function's source → its tree and the names it mentions
    filestat    digests of files, remembered by inode
    members     what one object of Triton's front end is, and whether it is Triton's
    integrity   is the Triton in memory the one on disk?
    versions    was a dict changed since it was last looked at?
    watch       a cheap proof that what was read is unchanged
    scope       how a function's names would be resolved
    toolchain, target, ops, arguments, code     the five parts
    reader      the arguments of a call that was seen before, in short
    call        puts them together
    describe    the code part in plain data, for diff
    diff, diff_code, words     what differs between two described keys, in words
    reasons     why a call has no key, in words

A record holds the whole question: if two launches have equal records, PyTorch's code generation and its walk run
through the same steps and give the same answer. Whatever cannot be put in a record raises Bypass with its reason.

Importing this package imports neither torch nor triton; the first use of its names does. Tools that only read keys
from a store (`encoding`, `diff`, `words`, `reasons`) need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonstore.keys.call import PARTS, CallKey, call_key, popped_options

__all__ = ["PARTS", "CallKey", "call_key", "popped_options"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tritonstore.keys import call

    # Bound here at once, so that the way through this function is taken once a process.
    globals().update({each: getattr(call, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
