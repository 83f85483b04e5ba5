"""`tritonstore`: the table of commands, and the one place where errors become exit codes.

A command's module is imported when that command is run, so that the list of commands costs only click.

Exit codes, the same for all commands:

    0    done
    1    done, and what was found is not well: damage, a problem, nothing of that name
    2    wrong usage, or a setting that cannot be used
    3    the store cannot be used
    4    a bundle could not be read, or was refused
    70   a bug in tritonstore
    130  interrupted (Ctrl-C); 143 terminated; 141 the reader of stdout went away

`tritonstore run` has the exit code of the command that it runs.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

import tritonstore
from tritonstore.errors import FormatError, SettingsError, StoreError, TritonStoreError

__all__ = ["COMMANDS", "EXIT_CODES", "cli", "entry", "main"]

# name → (module that holds `command`, one line for the list); the list is shown in this order
COMMANDS: dict[str, tuple[str, str]] = {
    "stats": ("tritonstore.cli.stats", "What past runs did, and what it saved."),
    "explain": ("tritonstore.cli.explain", "Why calls missed or bypassed the store."),
    "report": ("tritonstore.cli.report", "One HTML page about past runs."),
    "run": ("tritonstore.cli.run", "Run a command with the store switched on."),
    "ls": ("tritonstore.cli.ls", "List the entries."),
    "show": ("tritonstore.cli.show", "Show one entry in full."),
    "prune": ("tritonstore.cli.prune", "Remove old, stale or surplus entries."),
    "clear": ("tritonstore.cli.clear", "Remove every entry."),
    "verify": ("tritonstore.cli.verify", "Check every entry for damage."),
    "doctor": ("tritonstore.cli.doctor", "Check this installation and its stores."),
    "prewarm": ("tritonstore.cli.prewarm", "Answer recorded questions before an export asks them."),
    "save": ("tritonstore.cli.save", "Write entries to a bundle, one portable file."),
    "load": ("tritonstore.cli.load", "Put a bundle's entries into the store."),
    "completion": ("tritonstore.cli.completion", "Print the completion script of a shell."),
}

EXIT_CODES = {
    0: "done",
    1: "done, and what was found is not well: damage, a problem, nothing of that name",
    2: "wrong usage, or a setting that cannot be used",
    3: "the store cannot be used",
    4: "a bundle could not be read, or was refused",
    70: "a bug in tritonstore",
    130: "interrupted (Ctrl-C); 143: terminated; 141: the reader of stdout went away",
}

_EPILOG = """\b
Examples:
  tritonstore run -- python export.py     run with the store, then a summary
  tritonstore stats                       did it work, how much did it save
  tritonstore explain --last              why did this miss
  tritonstore save warm.tsb               carry the store to another machine

\b
Settings come from TRITONSTORE_* variables; `tritonstore doctor` shows each
with its origin. Exit codes: 0 done, 1 what was found is not well, 2 wrong
usage or setting, 3 the store cannot be used, 4 a bundle was refused.
"""


class _Closed(Exception):
    """The reader of stdout went away. (Not BrokenPipeError: click would end the process with code 1.)"""


class Commands(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click's own would import every command for its one line.
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=COMMANDS[name][1]) for name in COMMANDS if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _Closed from error


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(tritonstore.__version__, message="tritonstore %(version)s")
def cli() -> None:
    """tritonstore remembers which tensors a user-written Triton kernel reads and writes, so that torch.export,
    AOTInductor and torch.compile need not find out again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's); the exit code. Raises only what is a bug, and only if strict."""
    try:
        code = cli.main(arguments, prog_name="tritonstore", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (_Closed, BrokenPipeError):
        return _closed()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        return _misused(error)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except SettingsError as error:
        return _fail(str(error), 2)
    except StoreError as error:
        return _fail(str(error), 3)
    except FormatError as error:
        return _fail(str(error), 4)
    except TritonStoreError as error:
        return _fail(str(error), 1)
    except Exception as error:
        from tritonstore.settings import Settings

        try:
            strict = Settings.load().strict
        except TritonStoreError:
            strict = False
        if strict:
            raise
        text = f"a bug in tritonstore, please report it: {type(error).__name__}: {error}"
        return _fail(f"{text} (TRITONSTORE_STRICT=1 shows where)", 70)


def entry() -> NoReturn:
    """The entry point: `main` as a process of its own."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as an exception, so that temporary files go

    signal.signal(signal.SIGTERM, terminate)
    sys.exit(main())


def _misused(error: click.UsageError) -> int:
    from tritonstore.cli.console import note

    if error.ctx is not None:
        for line in error.ctx.get_usage().splitlines():
            note(line)
        note(f"Try '{error.ctx.command_path} --help' for help.")
    return _fail(error.format_message(), 2)


def _fail(text: str, code: int) -> int:
    from tritonstore.cli.console import complain

    try:
        complain(text)
    except BrokenPipeError:
        return code
    return code


def _closed() -> int:
    # Python flushes stdout once more at its end, and would say that it failed.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return 141
    return 141
