"""`wikiholt completion` and `wikiholt man`: files for the shell and for man, written from the argument parser."""

import sys

from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command

SHELLS = ("bash", "zsh", "fish")


def add_arguments(commands: Subparsers) -> None:
    completion = add_command(commands, "completion", run_completion, json=False)
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    add_command(commands, "man", run_man, json=False)


def run_completion(context: CommandContext) -> int:
    from wikiholt.interfaces.cli.command_tree import read_commands
    from wikiholt.interfaces.cli.parser import build_parser
    from wikiholt.interfaces.cli.shell_completion import write_completion

    sys.stdout.write(write_completion(context.arguments.shell, list(read_commands(build_parser()))))
    return 0


def run_man(_: CommandContext) -> int:
    from wikiholt.interfaces.cli.command_tree import read_commands
    from wikiholt.interfaces.cli.man_page import write_man_page
    from wikiholt.interfaces.cli.parser import EXIT_CODES, build_parser

    sys.stdout.write(write_man_page(list(read_commands(build_parser())), EXIT_CODES))
    return 0
