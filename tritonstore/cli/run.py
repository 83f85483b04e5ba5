"""`tritonstore run -- COMMAND`"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from typing import NoReturn

import click

import tritonstore
from tritonstore.cli.console import complain, count, note
from tritonstore.cli.options import examples, settings_of, store_option
from tritonstore.errors import TritonStoreError
from tritonstore.settings import MODES, Settings, new_run_id

__all__ = ["command"]

_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_FROM_THE_KERNEL = 0x80  # si_code SI_KERNEL of sigaction(2): a key on the terminal, which the command has had as well


@click.command(
    "run",
    short_help="Run a command with the store switched on.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "tritonstore run -- python export.py",
        "tritonstore run --target cuda:90:32 -- python export.py --fast",
        "tritonstore run --mode readonly --store file:///shared/store -- make export",
    ),
)
@store_option
@click.option("--mode", type=click.Choice(MODES), help="What the store is used for. [default: TRITONSTORE_MODE]")
@click.option("--target", metavar="GPU", help="The GPU where there is none, as in cuda:90:32.")
@click.option("--quiet", "-q", is_flag=True, help="No summary.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(url: str | None, mode: str | None, target: str | None, quiet: bool, words: tuple[str, ...]) -> int:
    """Run COMMAND with TRITONSTORE=1, then print a summary of what its processes did on stderr.

    Its exit code is this command's, and if a signal ends it, the same signal ends this command. Signals are passed on.
    """
    settings = settings_of(url, mode=mode, target=target)  # a bad one is said before the command runs
    run_id = new_run_id()
    given = {"TRITONSTORE_URL": url, "TRITONSTORE_MODE": mode, "TRITONSTORE_TARGET": target}
    environment = {
        **os.environ,
        "TRITONSTORE": "1",
        "TRITONSTORE_RUN": run_id,
        **{name: value for name, value in given.items() if value is not None},
    }
    with _activation(environment):
        code = _run(words, environment)
    if code is None:
        return 126 if os.path.exists(words[0]) else 127
    if not quiet:
        _summary(settings, run_id)
    if code < 0:
        _die(-code)
    return code


def _run(words: tuple[str, ...], environment: dict[str, str]) -> int | None:
    """The exit code of the command, or less than zero: the signal that ended it. None if it could not be started."""
    watched = _PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        # The command starts as this process was started: its mask, and what Python itself ignores as it was before.
        ours = {signal.SIGPIPE, signal.SIGXFSZ}
        try:
            child = os.posix_spawnp(words[0], words, environment, setsigmask=before, setsigdef=ours)
        except OSError as error:
            complain(f"{words[0]} cannot be run: {error.strerror}")
            return None
        while True:
            happened = signal.sigwaitinfo(watched)
            if happened.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
            elif happened.si_code != _FROM_THE_KERNEL:
                os.kill(child, happened.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die(number: int) -> NoReturn:
    """End as the command did, for the shell to see, but leave no core file of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _activation(environment: dict[str, str]) -> Iterator[None]:
    """Let the command's Python find the entry point behind TRITONSTORE=1, where this package is not installed."""
    if any(point.name == "tritonstore" for point in importlib.metadata.entry_points(group="torch.backends")):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tritonstore-") as folder:
        info = os.path.join(folder, f"tritonstore-{tritonstore.__version__}.dist-info")
        os.mkdir(info)
        with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
            file.write(f"Metadata-Version: 2.1\nName: tritonstore\nVersion: {tritonstore.__version__}\n")
        with open(os.path.join(info, "entry_points.txt"), "w", encoding="utf-8") as file:
            file.write("[torch.backends]\ntritonstore = tritonstore.pytorch.autoload:activate\n")
        home = os.path.dirname(os.path.dirname(os.path.abspath(tritonstore.__file__)))
        paths = (folder, home, environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        yield


def _summary(settings: Settings, run_id: str) -> None:
    """A few lines on stderr about what the processes of this run have left. A fault of ours costs only the lines."""
    from tritonstore.cli.stats import summary
    from tritonstore.maintenance.runs import load, merge

    try:
        records = list(load(settings, run_id))
    except TritonStoreError as error:
        note(f"tritonstore: no summary: {error}")
        return
    if not records:
        note("tritonstore: no process of this run asked about a Triton kernel, or none has tritonstore installed")
        return
    record = merge(records)
    note(f"tritonstore: run {run_id}, {count(record.processes, 'process', 'processes')}")
    summary(record, lambda label, rest: note(f"  {label:<10}{rest}"))
    if record.counters.get("misses") or record.counters.get("bypasses"):
        note(f"  tritonstore explain --run {run_id} says why")
