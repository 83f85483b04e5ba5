"""docs/cli.md, made from the commands: `python -m tritonstore.cli.reference > docs/cli.md`."""

from __future__ import annotations

import sys

import click

from tritonstore.cli.main import COMMANDS, EXIT_CODES, cli

__all__ = ["text"]

_INTRO = """\
# The command line

Made from the commands by `python -m tritonstore.cli.reference > docs/cli.md`; a test compares the two.

`tritonstore`, `python -m tritonstore` and, in a checkout, `scripts/cache` are the same program. Data goes to stdout and
talk to stderr. On a terminal, tables are cut to its width and there is some colour; in a pipe nothing is cut, and there
is none. `NO_COLOR` turns colour off. `--json` prints one object a line. What takes longer than a second shows a bar on
a terminal. No command imports torch or triton; `doctor` looks at them in a process of its own.

## Exit codes

| code | meaning |
|---|---|
"""


def text() -> str:
    """The whole document."""
    lines = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    out = [_INTRO + "\n".join(lines) + "\n\n`run` has the exit code of the command that it runs.\n"]
    settings = {**cli.context_settings, "terminal_width": 80}
    top = click.Context(cli, info_name="tritonstore", **settings)
    out.append(_section("tritonstore", cli.get_help(top)))
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        out.append(_section(f"tritonstore {name}", command.get_help(context)))
    return "\n".join(out)


def _section(title: str, help_text: str) -> str:
    body = "\n".join(line.rstrip() for line in help_text.splitlines())
    return f"## {title}\n\n```text\n{body}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(text())
