"""Every test runs with strict settings, a home of its own, no setting from outside, and a declared target for torch.

No test may leave tritonstore installed, and none reaches the network except on the loopback interface.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGET = "cuda:90:32"

# A shell's background job starts with SIGINT and SIGQUIT ignored, nohup's with SIGHUP, and so do all that tests start:
# none of them would notice that it is interrupted.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# Before any test module is imported: torch reads some of these once, at its import.
for _name in [name for name in os.environ if name.startswith("TRITONSTORE")]:
    del os.environ[_name]


@pytest.fixture(scope="session", autouse=True)
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home folder of the test run's own, so that no test reads or writes the real one."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setenv("TRITON_CACHE_DIR", str(home / "triton"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(home / "inductor"))
        patch.setenv("TRITONSTORE_STRICT", "1")
        yield


@pytest.fixture(autouse=True)
def _nothing_left_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache folder for each test, and no installed store before or after it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg-cache"))
    yield
    install = sys.modules.get("tritonstore.pytorch.install")
    if install is not None and install.stats():
        install.uninstall()
        pytest.fail("the test left tritonstore installed")


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections beyond this machine are an error in the test that makes them."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test wants to connect to {address[0]}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def offline_target() -> Iterator[str]:
    """TARGET is Triton's active target, by means of the tests' own; the driver from before is put back."""
    import triton
    from triton.backends.compiler import GPUTarget

    class Driver:
        def get_current_target(self) -> Any:
            backend, arch, warp_size = TARGET.split(":")
            return GPUTarget(backend, int(arch), int(warp_size))

    config = triton.runtime.driver
    before = config._active
    config.set_active(Driver())
    try:
        yield TARGET
    finally:
        config._active = before
