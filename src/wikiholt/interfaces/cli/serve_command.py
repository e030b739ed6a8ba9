"""`wikiholt serve`: serves all wikis over HTTP and keeps their indexes at HEAD until a signal stops it."""

from pathlib import Path

from wikiholt.errors import InvalidSource
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "serve", run_serve)
    parser.add_argument(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="register the repositories in this directory, or the directory itself if it is a repository or contains"
        " pages and no repositories; repeatable",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: serve.host, 127.0.0.1)")
    parser.add_argument("--port", metavar="PORT", help="port (default: serve.port, 8765); 0 chooses a free one")


def run_serve(context: CommandContext) -> int:
    """Serve until SIGTERM or SIGINT, then shut down cleanly with exit code 0."""
    roots = [_check_root(path) for path in context.arguments.directories]
    from wikiholt.interfaces.cli.http_server import serve

    serve(context.settings, roots, as_json=context.arguments.json)
    return 0


def _check_root(path: Path) -> Path:
    """Resolve a path to serve. Raises InvalidSource if there is no such directory."""
    root = path.resolve()
    if not root.is_dir():
        raise InvalidSource(
            f"There is no directory {path}.",
            hint="Name a directory of repositories, a repository, or a directory of pages.",
        )
    return root
