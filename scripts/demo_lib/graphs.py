"""An exported method as text, so that the same export gives the same text in each process.

Only what is a property of the process and not of the export is replaced:

- `kernel_idx` and `constant_args_idx` number PyTorch's process-wide kernel table: the kernel's name and the constant
  arguments themselves stand in their place;
- `graph_id` in `from_node` is the address of a graph: numbered in order of appearance;
- `seq_nr` counts autograd nodes since the process began: counted from the method's first one;
- a path below the checkout is written as <root>, so that a checkout may lie elsewhere; where torch is installed, as
  <packages>, because that may be in the checkout's .venv and does not move with a copy.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

TABLE_INDEX = re.compile(r"'(kernel_idx|constant_args_idx)': \d+")
GRAPH_ID = re.compile(r"graph_id=(\d+)")


class Describer:
    """The text of one exported program; holds the numbering of that program's ids."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._graph_ids: dict[str, int] = {}
        self._first_seq: int | None = None

    def program(self, exported: Any) -> str:
        lines = [self._node(node) for node in exported.graph.nodes]
        lines.append(f"signature {exported.graph_signature}")
        lines.append(f"ranges {sorted((str(k), str(v)) for k, v in exported.range_constraints.items())}")
        lines.append(f"calls {exported.module_call_graph}")
        for name, tensor in [*exported.state_dict.items(), *exported.constants.items()]:
            lines.append(f"tensor {name} {self._value(tensor)} {_content(tensor)}")
        return self._neutral("\n".join(lines)) + "\n"

    def _node(self, node: Any) -> str:
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        kwargs = dict(node.kwargs)
        if "kernel_idx" in kwargs:
            kernel = kernel_side_table.get_kernel(kwargs["kernel_idx"])
            kwargs["kernel_idx"] = f"{kernel.fn.__module__}.{kernel.fn.__name__}"
        if "constant_args_idx" in kwargs:
            kwargs["constant_args_idx"] = kernel_side_table.get_constant_args(kwargs["constant_args_idx"])
        meta = {name: self._meta(name, value) for name, value in node.meta.items()}
        if "eager_input_vals" in meta:
            meta["eager_input_vals"] = TABLE_INDEX.sub(r"'\1': _", meta["eager_input_vals"])
        return f"{node.op} {node.name} {node.target} {node.args} {kwargs}\n    " + "\n    ".join(
            f"{name}: {meta[name]}" for name in sorted(meta)
        )

    def _meta(self, name: str, value: Any) -> str:
        if name == "seq_nr":
            self._first_seq = value if self._first_seq is None else self._first_seq
            return str(value - self._first_seq)
        return self._value(value)

    def _value(self, value: Any) -> str:
        import torch

        if isinstance(value, torch.Tensor):
            facts = [value.dtype, tuple(value.shape), value.stride(), value.device, value.requires_grad]
            return f"{type(value).__name__}({', '.join(map(str, facts))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self._value(v)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}(" + ", ".join(self._value(item) for item in value) + ")"
        return str(value)

    def _neutral(self, text: str) -> str:
        import torch

        def number(match: re.Match[str]) -> str:
            return f"graph_id={self._graph_ids.setdefault(match[1], len(self._graph_ids))}"

        packages = os.path.dirname(os.path.dirname(torch.__file__))
        return GRAPH_ID.sub(number, text.replace(packages, "<packages>").replace(self._root, "<root>"))


def _content(tensor: Any) -> str:
    import torch

    if not isinstance(tensor, torch.Tensor):
        return repr(tensor)
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).tolist()
    return hashlib.sha256(bytes(data)).hexdigest()
