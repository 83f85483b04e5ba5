"""The access check: does the operator write what it must, and nothing else? The store answers for its kernels.

The operator is opened on fake tensors, as export does it later. PyTorch then asks of each launch which tensors it
writes; the answer comes from the installed store (a stored one costs no analysis) and stands in the opened graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from tritonstore.replacement.call import same, values
from tritonstore.replacement.guards import no_new_guards

__all__ = ["objection", "question"]

_EMPTY = ("aten::empty", "aten::new_empty")


def objection(target: Any, args: Any, kwargs: dict[str, Any], output: Any) -> str | None:
    """Why `target(*args, **kwargs)` cannot stand for a pure call with that output; None if it can."""
    if not isinstance(target, torch._ops.OpOverload):
        return f"{target} is no operator: a graph keeps only operators that torch.library knows"
    if target._schema.is_mutable:
        return f"{target} says itself that it writes its arguments"
    opened, found = _opened(target, values(args), values(kwargs))
    launches = [node for node in opened.nodes if "tensors_to_clone" in node.kwargs]
    if not launches:
        return f"{target} launches no Triton kernel that can be seen (torch.library.triton_op shows them)"
    return _written_inputs(opened, launches) or _unwritten_outputs(opened) or _other_outputs(found, output)


def question(target: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """All that `objection` depends on, within one program; hashable. Which of the tensors are one is part of it."""
    numbers: dict[int, int] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            number = numbers.setdefault(id(value), len(numbers))
            facts = (*value.shape, "strides", *value.stride(), value.dtype, value.device)
            return (number, *map(str, facts))
        if isinstance(value, dict):
            return tuple((key, plain(item)) for key, item in value.items())
        if isinstance(value, (list, tuple)):
            return (type(value).__name__, *map(plain, value))
        return (type(value).__name__, str(value))

    return (target, plain(values(args)), plain(values(kwargs)), plain(output))


def _opened(target: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The graph of the operator's body, in functional form, and what it returns as fake tensors."""
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    tensors = [index for index, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def body(*given: Any) -> Any:
        filled = list(flat)
        for index, value in zip(tensors, given, strict=True):
            filled[index] = value
        again, keywords = torch.utils._pytree.tree_unflatten(filled, spec)
        return target(*again, **keywords)

    modes = {id(mode): mode for mode in (getattr(flat[index], "fake_mode", None) for index in tensors) if mode}
    with contextlib.ExitStack() as stack:
        for mode in modes.values():
            stack.enter_context(mode)
            stack.enter_context(no_new_guards(mode.shape_env))
        module = make_fx(dispatch_functionalize(body, FunctionalTensorMode()))(*(flat[index] for index in tensors))
    (output,) = module.graph.find_nodes(op="output")
    return module.graph, values(output.args[0])


def _source(node: Any) -> Any:
    """The node whose memory `node` is: itself, or what it is a view of."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.args[0]
    return node


def _written_inputs(graph: Any, launches: list[Any]) -> str | None:
    inputs = list(graph.find_nodes(op="placeholder"))
    for launch in launches:
        for name in launch.kwargs["tensors_to_clone"]:
            source = _source(launch.kwargs["kwargs"][name])
            if source in inputs:
                return f"kernel {_kernel(launch)} writes {name}, which is an input of the op"
    return None


def _unwritten_outputs(graph: Any) -> str | None:
    (output,) = graph.find_nodes(op="output")
    for index, node in enumerate(_outputs(output)):
        source = _source(node)
        if source.op == "placeholder":
            return f"output {index} is an input's memory"
        schema = getattr(source.target, "_schema", None)
        if schema is not None and schema.name.startswith(_EMPTY):
            return f"no kernel writes output {index}"
    return None


def _outputs(output: Any) -> Iterator[Any]:
    found = output.args[0]
    yield from found if isinstance(found, (list, tuple)) else (found,)


def _other_outputs(found: Any, wanted: Any) -> str | None:
    """What of the outputs differs from the replaced call's; views downstream were traced for the old strides."""
    new, old = (list(v) if isinstance(v, (list, tuple)) else [v] for v in (found, wanted))
    if len(new) != len(old):
        return f"{len(new)} outputs instead of {len(old)}"
    for index, (mine, theirs) in enumerate(zip(new, old, strict=True)):
        for fact in ("dtype", "device"):
            if getattr(mine, fact) != getattr(theirs, fact):
                return f"output {index} has {fact} {getattr(mine, fact)} instead of {getattr(theirs, fact)}"
        if not same(list(mine.shape), list(theirs.shape)):
            return f"output {index} has shape {list(mine.shape)} instead of {list(theirs.shape)}"
        long = [dim for dim in range(mine.dim()) if not same(mine.shape[dim], 1)]
        if not all(same(mine.stride(dim), theirs.stride(dim)) for dim in long):
            return f"output {index} has strides {tuple(mine.stride())} instead of {tuple(theirs.stride())}"
    return None


def _kernel(launch: Any) -> str:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = kernel_side_table.get_kernel(launch.kwargs["kernel_idx"])
    while not hasattr(kernel, "__name__"):
        kernel = kernel.fn  # an Autotuner's kernel
    return str(kernel.__name__)
