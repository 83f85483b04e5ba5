"""Load one AOTInductor package and compare its numbers with eager PyTorch's: `python -m gpu_lib.load PACKAGE EXPECTED`.

A process of its own: where a machine cannot load packages at all, PyTorch ends the process with a signal.
"""

from __future__ import annotations

import sys
import warnings


def main(package: str, expected: str) -> None:
    import torch
    import torch._inductor

    example, outputs = torch.load(expected, weights_only=True)
    with torch.no_grad():
        found = torch._inductor.aoti_load_package(package)(*example)
    torch.testing.assert_close(tuple(found), tuple(outputs), rtol=2e-3, atol=2e-4)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
