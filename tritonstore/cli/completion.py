"""`tritonstore completion`"""

from __future__ import annotations

import click

from tritonstore.cli.console import complain
from tritonstore.cli.options import examples

__all__ = ["command"]


@click.command(
    "completion",
    short_help="Print the completion script of a shell.",
    epilog=examples(
        'eval "$(tritonstore completion bash)"           in ~/.bashrc',
        'eval "$(tritonstore completion zsh)"            in ~/.zshrc, after compinit',
        "tritonstore completion fish > ~/.config/fish/completions/tritonstore.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print a script that completes commands, options and the digests of `show` in SHELL."""
    from click.shell_completion import get_completion_class

    from tritonstore.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        complain(f"this click has no completion for {shell}")
        return 1
    click.echo(kind(cli, {}, "tritonstore", "_TRITONSTORE_COMPLETE").source())
    return 0
