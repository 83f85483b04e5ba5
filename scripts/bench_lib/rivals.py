"""What users would take instead of tritonstore, as they would write it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def exact_key(kernel: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The exact-argument key in its leanest form: tensors by shape, stride, dtype and device, all else by value."""
    import torch

    token: list[tuple[Any, ...]] = []
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            token.append((name, tuple(value.shape), value.stride(), value.dtype, value.device))
        else:
            token.append((name, type(value), value))
    return (kernel.fn.__module__, kernel.fn.__qualname__, *token)


def exact_dict(answer: Any, kernel: Any, kwargs: dict[str, Any]) -> Callable[[], Any]:
    """The published in-memory cache: nothing is validated, and the very same answer is given each time."""
    answers = {exact_key(kernel, kwargs): answer}
    return lambda: answers[exact_key(kernel, kwargs)]


def memoizer(answer: Any, kernel: Any, kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """`torch._inductor.runtime.caching`'s Memoizer on the same key as text; None where this PyTorch has none."""
    try:
        from torch._inductor.runtime.caching import Memoizer, config
    except ImportError:
        return None
    config.IS_CACHING_MODULE_ENABLED = lambda: True  # off by default in torch 2.13
    encode = {"custom_params_encoder": lambda given: str(exact_key(kernel, given))}
    ask = Memoizer().memoize(**encode)(lambda given: answer)
    ask(kwargs)
    return lambda: ask(kwargs)


class Triton:
    """Triton's FileCacheManager, with the bytes of an entry under a digest."""

    def __init__(self, folder: Path) -> None:
        os.environ["TRITON_CACHE_DIR"] = str(folder)

    def put(self, digest: str, data: bytes) -> None:
        from triton.runtime.cache import FileCacheManager

        FileCacheManager(digest).put(data, "entry", binary=True)

    def get(self, digest: str) -> bytes:
        from triton.runtime.cache import FileCacheManager

        path = FileCacheManager(digest).get_file("entry")
        assert path is not None
        return read(path)


def read(path: str) -> bytes:
    """Bare open, read, close."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def read_and_hash(path: str) -> bytes:
    """The floor of a files hit: bare open, read, SHA-256."""
    return hashlib.sha256(read(path)).digest()


def write(path: str, data: bytes, number: int) -> None:
    """The floor of a publish: a new file, then its rename over the final name."""
    temporary = f"{path}.{os.getpid()}.{number}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    with contextlib.suppress(IsADirectoryError):
        os.replace(temporary, path)
