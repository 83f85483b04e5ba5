"""One answer of PyTorch's analysis as plain data, and what must hold for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tritonstore.errors import FormatError

__all__ = ["AccessResult"]


class AccessResult(NamedTuple):
    """The arguments that one launch reads and writes, by parameter name and in parameter order.

    `reads` and `can_fuse_epilogue` are None where PyTorch does not say (torch 2.11 answers with the written
    names only).
    """

    reads: tuple[str, ...] | None
    writes: tuple[str, ...]
    can_fuse_epilogue: bool | None

    def check_shape(self) -> None:
        """Check what holds for every answer, whatever the kernel. Raises FormatError.

        A checksum protects bytes, not truth: this refuses a well-packed answer that PyTorch could not have
        given.
        """
        if (self.reads is None) is not (self.can_fuse_epilogue is None):
            raise FormatError("reads and can_fuse_epilogue are given together or not at all")
        if self.can_fuse_epilogue is not None and type(self.can_fuse_epilogue) is not bool:
            raise FormatError("can_fuse_epilogue is not a bool")
        for kind, names in (("reads", self.reads), ("writes", self.writes)):
            if names is None and kind == "reads":
                continue
            if type(names) is not tuple:
                raise FormatError(f"{kind} is not a tuple of names")
            for name in names:
                if type(name) is not str or not name:
                    raise FormatError(f"{kind} holds something that is not a name")
            if len(set(names)) != len(names):
                raise FormatError(f"{kind} holds a name twice")
        if self.can_fuse_epilogue and (len(self.writes) != 1 or self.writes[0] in (self.reads or ())):
            raise FormatError("can_fuse_epilogue needs exactly one write, of an argument that is not read")

    def check(self, parameters: Sequence[str], tensors: Collection[str]) -> None:
        """Check this answer for a kernel with `parameters` of which `tensors` hold tensors. Raises
        FormatError.

        Names must be parameters, in parameter order; in the newer form each is a tensor. (The older form may
        name scalars: torch 2.11 answers so.)
        """
        self.check_shape()
        position = {name: index for index, name in enumerate(parameters)}
        for kind, names in (("reads", self.reads or ()), ("writes", self.writes)):
            last = -1
            for name in names:
                here = position.get(name)
                if here is None:
                    raise FormatError(f"{kind} names {name!r}, which is not a parameter of the kernel")
                if here < last:
                    raise FormatError(f"{kind} is not in parameter order at {name!r}")
                if self.reads is not None and name not in tensors:
                    raise FormatError(f"{kind} names {name!r}, which is not a tensor in this call")
                last = here
