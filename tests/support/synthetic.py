"""Made-up entries and stores of them, for tests of what looks after a store. Run as a program it fills a big one."""

from __future__ import annotations

import os
import sys
import time
from hashlib import sha256

from tritonstore.access import AccessResult
from tritonstore.entry import Entry, Provenance, encode
from tritonstore.keys.encoding import key_digest

PARTS = ("toolchain", "target", "ops", "arguments", "code")
CREATED = 1_780_000_000


def sha(text: object) -> str:
    return sha256(str(text).encode()).hexdigest()


def entry(
    number: int,
    *,
    kernel: str = "",
    module: str = "model.kernels",
    torch: str = "2.13.0",
    triton: str = "3.7.1",
    arch: int | str = 90,
) -> Entry:
    """The entry of that number: the same each time, sound in every respect."""
    kernel = kernel or f"_kernel_{number % 300}"
    parts = {name: sha(f"{name} {number}") for name in PARTS}
    detail = {
        "kernel": [module, kernel],
        "toolchain": {"torch": torch, "torch_git": sha(torch)[:40], "triton": triton, "python": "cpython 3.11"},
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32, "options": [], "default_device": "cpu"},
        "arguments": [
            ["x_ptr", ["pointer", "*fp32"], True],
            ["y_ptr", ["pointer", "*fp32"], True],
            ["n", ["scalar", "i32"], False],
            ["BLOCK", ["constexpr", ["int", 64 << number % 4]], False],
        ],
        "code": [[f"{module}.{kernel}", sha(kernel)]],
    }
    access = AccessResult(("x_ptr",), ("y_ptr",), True)
    made = Provenance(CREATED + number, 0.001 * (number % 700), "tritonstore 0.1.0")
    return Entry(key_digest(parts), parts, access, detail, made)


def place(root: str, digest: str) -> str:
    """Where a files store keeps it."""
    return os.path.join(root, "v1", digest[:2], digest)


def fill(root: str, entries: list[Entry], *, used: float | None = None, apart: float = 0.0) -> list[str]:
    """Write entries around the store, the first last used at `used` (default: now), each next one `apart` seconds
    before it. Their digests."""
    used = time.time() if used is None else used
    for number, each in enumerate(entries):
        path = place(root, each.digest)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(encode(each))
        os.utime(path, (used - number * apart, used - number * apart))
    return [each.digest for each in entries]


if __name__ == "__main__":
    count = int(sys.argv[2])
    for start in range(0, count, 1000):
        versions = ("2.11.0", "2.13.0", "2.14.1")
        made = [
            entry(number, torch=versions[number % 3], arch=(80, 90, 100)[number % 7 % 3])
            for number in range(start, min(start + 1000, count))
        ]
        fill(sys.argv[1], made, used=time.time() - start / count * 100 * 86400, apart=1.0)
