"""Benchmarks beside what users would take instead. Everything that is compared is measured interleaved, in one run.

timing      interleaved measuring; pyperf's statistics and description of the machine
rivals      what users would take instead: exact-argument dict, PyTorch's memoizer, Triton's file cache, bare files
launches    kernels of 4, 16 and 40 arguments, launched on a declared target
made        made-up entries in their real format, and stores of them
proxy       a TCP proxy that delays what passes, by itself
child       a Python process, its seconds and peak memory
calls, start, export, scale, reach, growth     the sections
tables      figures → docs/performance.md
"""
