"""Entries are recipes: what stands in them suffices to put the same question to PyTorch again.

    recipe     a stored question as plain data; its identity across versions of torch, Triton and the kernel
    sources    the recipes of a store, a run or a bundle, longest first
    workers    processes that work through recipes, and survive what a kernel's module does when it is imported
    ahead      TRITONSTORE_PREWARM: the last run's questions, answered beside an export

and in those processes, where torch and Triton are (pytorch/rebuild.py makes a kernel and arguments of a recipe):

    asking     asks PyTorch, through the store (prewarm) or past it (verify --recompute)
    worker     the process
    prewarm    what people call

A recipe names a module, and rebuilding imports it. Nothing but these commands does that.
"""
