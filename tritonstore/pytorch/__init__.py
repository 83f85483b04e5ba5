"""Everything that touches PyTorch's internals, and nothing else does.

    seam       find the analysis in this PyTorch, and check all that is needed of it
    answers    PyTorch's answer objects <-> AccessResult
    outcome    tell a real analysis from PyTorch's failure path
    lock       the one process-wide lock around the analysis
    notice     say something once to a person, without ever failing the caller
    offline    a declared target for machines without a GPU
    observer   what is counted, passed on to this process's journal and to PyTorch's own channels
    channels   Dynamo's counters, artifacts in the structured trace
    session    the way of one call: key, look up, or analyse, prove and publish
    install    patch all or nothing, restore exactly
    rebuild    a stored question as a kernel and arguments, to be asked again
    autoload   the `torch.backends` entry point behind TRITONSTORE=1

Importing this package imports neither torch nor triton: the entry point runs while torch is being imported.
"""

ANALYSIS_MODULE = "torch._higher_order_ops.triton_kernel_wrap"
"""PyTorch's module that holds the analysis."""
