"""The shipped kernels, each with the operator that launches it. An operator's body is what export sees through.

On CPU tensors the operators compute by ATen, so that an exported program can be checked where there is no GPU.
"""
