"""Whatever tritonstore has to say, saying it never fails the program: not its export, and not its `import torch`."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.elsewhere import run_python
from tritonstore.counters import Counters
from tritonstore.pytorch.notice import notice
from tritonstore.speak import LOG, speak


class Handler(logging.Handler):
    """Raises where a well-behaved handler would call `handleError`."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no log today")


class Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("no filter today")


class Unwritable(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError("nobody listens")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def raising_handler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LOG, "handlers", [Handler()])


def raising_root_handler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(logging.getLogger(), "handlers", [Handler()])


def raising_filter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LOG, "filters", [Filter()])


def closed_stream_handler(patch: pytest.MonkeyPatch) -> None:
    # With raiseExceptions the handler prints its own failure, to a standard error that is closed as well.
    patch.setattr(LOG, "handlers", [logging.StreamHandler(closed())])
    patch.setattr(sys, "stderr", closed())


def closed_stderr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stderr", closed())


def broken_stderr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stderr", Unwritable())


def no_stderr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stderr", None)


def raising_showwarning(patch: pytest.MonkeyPatch) -> None:
    def show(*details: Any, **others: Any) -> None:
        raise RuntimeError("no warning today")

    patch.setattr(warnings, "showwarning", show)


def warnings_are_errors(patch: pytest.MonkeyPatch) -> None:
    warnings.simplefilter("error")


def all_at_once(patch: pytest.MonkeyPatch) -> None:
    for each in (raising_handler, raising_root_handler, raising_showwarning, closed_stderr):
        each(patch)


WORLDS = [
    raising_handler,
    raising_root_handler,
    raising_filter,
    closed_stream_handler,
    closed_stderr,
    broken_stderr,
    no_stderr,
    raising_showwarning,
    warnings_are_errors,
    all_at_once,
]


def as_python_shows_them(message: Any, category: Any, file: str, line: int, *others: Any) -> None:
    """pytest keeps warnings for itself; a program's are printed, where a closed file raises ValueError."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(warnings.formatwarning(message, category, file, line))


@pytest.fixture(params=WORLDS, ids=lambda world: str(world.__name__))
def _world(request: pytest.FixtureRequest) -> Iterator[None]:
    """One way in which saying something fails, with no handler of pytest's own in between."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        patch.setattr(warnings, "showwarning", as_python_shows_them)
        patch.setattr(logging.getLogger(), "handlers", [])
        request.param(patch)
        yield


@pytest.mark.usefixtures("_world")
@pytest.mark.parametrize("say", [speak, notice])
def test_nothing_that_is_said_raises(say: Callable[[str], None]) -> None:
    say("something")
    say("something else")


@pytest.mark.usefixtures("_world")
def test_a_fault_is_counted_whatever_becomes_of_its_message() -> None:
    counters = Counters()
    for _ in range(3):
        counters.fault("file-get", "cannot read", topic="file:///x")
    assert counters.snapshot()["faults"] == {"file-get": 3}


def test_an_interrupt_while_speaking_is_the_programs() -> None:
    class Interrupted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOG, "handlers", [Interrupted()])
        with pytest.raises(KeyboardInterrupt):
            speak("something")


def test_what_is_said_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tritonstore"):
        speak("100 % of it")
        with pytest.warns(RuntimeWarning, match="tritonstore: 50 % of it"):
            notice("50 % of it")
    assert [record.getMessage().removeprefix("tritonstore: ") for record in caplog.records] == [
        "100 % of it",
        "50 % of it",
    ]


IMPORT = """
import logging, os, sys, warnings
{world}
import torch
from torch._higher_order_ops import triton_kernel_wrap as wrap
seam = getattr(wrap, "identify_accessed_tensors", None) or wrap.identify_mutated_tensors
print(torch.__version__ is not None, hasattr(seam, "__wrapped__"))
"""
CLOSED = "sys.stderr.close()"
LOG_RAISES = """
class Handler(logging.Handler):
    def emit(self, record):
        raise RuntimeError("no log today")
logging.getLogger().addHandler(Handler())
"""
SHOW_RAISES = """
def show(*details, **others):
    if "tritonstore" in str(details[0]):
        raise RuntimeError("no warning today")
warnings.showwarning = show
"""
BAD = {"TRITONSTORE_MODE": "bogus"}
IMPORTS: dict[str, tuple[str, dict[str, str], str]] = {
    "closed, good settings": (CLOSED, {}, "True True"),
    "closed, bad mode": (CLOSED, BAD, "True False"),
    "closed, bad target": (CLOSED, {"TRITONSTORE_TARGET": "cuda"}, "True False"),
    "closed, bad switch": (CLOSED, {"TRITONSTORE": "perhaps"}, "True False"),
    "no descriptor": ("os.close(2)", BAD, "True False"),
    "logging raises": (LOG_RAISES, BAD, "True False"),
    "showing raises": (SHOW_RAISES, BAD, "True False"),
    "both raise, and closed": (LOG_RAISES + SHOW_RAISES + CLOSED, BAD, "True False"),
    "warnings are errors": ("warnings.filterwarnings('error', message='tritonstore')", BAD, "True False"),
}


@pytest.mark.parametrize(("world", "settings", "expected"), IMPORTS.values(), ids=IMPORTS.keys())
def test_import_torch_succeeds(world: str, settings: dict[str, str], expected: str, tmp_path: Path, root: Path) -> None:
    info = tmp_path / "tritonstore-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tritonstore\nVersion: 0\n")
    entry = "[torch.backends]\ntritonstore = tritonstore.pytorch.autoload:activate\n"
    (info / "entry_points.txt").write_text(entry)
    environ = {"TRITONSTORE": "1", "TRITONSTORE_STRICT": "0", **settings}
    assert run_python(IMPORT.format(world=world), environ=environ, path=[tmp_path]) == expected


EXPORT = """
import logging, os, sys, warnings
import torch
from tests.support.analysis import CUDA_90, SEAM, target
from tests.support.switch import launch, switch
import torch._higher_order_ops.triton_kernel_wrap as wrap
import tritonstore
tritonstore.install(url="file://" + sys.argv[1], strict=False)
call = launch(switch("max(1, 2) == 2", ""))
{world}
with target(*CUDA_90):
    for _ in range(3):
        getattr(wrap, SEAM)(call.kernel, dict(call.kwargs), {{}})
print(tritonstore.stats()["calls"], sum(tritonstore.stats()["faults"].values()) > 0)
tritonstore.uninstall()
"""


@pytest.mark.parametrize("world", [CLOSED, LOG_RAISES, SHOW_RAISES], ids=["closed", "log", "show"])
def test_a_store_that_cannot_be_used_fails_no_export(world: str, tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("a file")
    assert run_python(EXPORT.format(world=world), str(tmp_path / "in the way" / "store")) == "3 True"
