"""Static checks of the source: no user input reaches a shell, an interpreter, pickle, SQL or markup."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.security.reviewed_sql import REVIEWED_SQL

SRC = Path(__file__).parents[2] / "src" / "wikiholt"
MODULES = sorted(SRC.rglob("*.py"))
STATIC = SRC / "interfaces" / "web" / "static"

STARTS_PROGRAMS = {
    "git/process.py": "git, for all reads and writes of a repository",
    "git/remote.py": "git on the network, with limits of its own",
    "git/vector_ref.py": "git with the credentials of the user; a constant script limits its files",
    "api/doctor.py": "git --version",
    "index/chroma/server.py": "Python, for the child in which Chroma runs",
    "documents/conversion.py": "reads a document in a process of its own",
    "index/page_process.py": "Python, for the process that prepares large pages",
    "interfaces/cli/background.py": "Python, for the process that keeps the model in memory for commands",
    "interfaces/cli/supervisor.py": "Python, for the scheduler and the workers of one service",
    "interfaces/cli/page_commands.py": "the editor of the person who runs the command",
}
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "commands", "pty", "xmlrpc", "telnetlib", "code"}
FORBIDDEN_CALLS = {
    *("os.system", "os.popen", "os.execv", "os.execvp", "os.spawnv", "os.spawnl", "os.startfile", "os.posix_spawn"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("asyncio.create_subprocess_exec", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"),
    *("tempfile.mktemp", "ssl._create_unverified_context", "random.seed", "string.Formatter"),
}
EXECUTING = {"execute", "executemany", "executescript"}
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|ATTACH|WITH|VACUUM|EXPLAIN)\b")


@cache
def parse_module(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def get_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{get_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def iter_calls(module: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(parse_module(module)) if isinstance(node, ast.Call))


def get_relative_path(module: Path) -> str:
    return module.relative_to(SRC).as_posix()


@pytest.mark.slow
def test_no_module_executes_its_input() -> None:
    for module in MODULES:
        check_calls(module)


def check_calls(module: Path) -> None:
    """No module imports or calls what executes its input."""
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert FORBIDDEN_MODULES.isdisjoint(name.partition(".")[0] for name in names), (module, names)
    for call in iter_calls(module):
        name = get_name(call.func)
        assert name not in FORBIDDEN_NAMES | FORBIDDEN_CALLS, (module, name, call.lineno)
        shell = [word.value for word in call.keywords if word.arg == "shell"]
        assert all(isinstance(value, ast.Constant) and value.value is False for value in shell), (module, call.lineno)
        if name in ("np.load", "numpy.load"):
            pickles = [word.value for word in call.keywords if word.arg == "allow_pickle"]
            assert [isinstance(value, ast.Constant) and value.value for value in pickles] == [False], (
                module,
                call.lineno,
            )
        if name == "yaml.load":
            loader = next(word.value for word in call.keywords if word.arg == "Loader")
            assert get_name(loader) == "_LOADER", (module, call.lineno)


def test_the_yaml_loader_creates_only_plain_values() -> None:
    import yaml

    from wikiholt.text import frontmatter

    assert issubclass(frontmatter._LOADER, yaml.SafeLoader | yaml.CSafeLoader | yaml.BaseLoader | yaml.CBaseLoader)
    with pytest.raises(yaml.YAMLError):
        yaml.load("!!python/object/apply:os.system ['true']", Loader=yaml.SafeLoader)
    parsed = yaml.load("!!python/object/apply:os.system ['true']", Loader=yaml.BaseLoader)
    assert parsed == ["true"], "a loader without types returns only text and lists"


def test_programs_are_started_in_few_modules_and_with_argument_lists() -> None:
    starting = {}
    for module in MODULES:
        for call in iter_calls(module):
            if get_name(call.func) in {
                "subprocess.run",
                "subprocess.Popen",
                "subprocess.call",
                "subprocess.check_output",
            }:
                starting.setdefault(get_relative_path(module), []).append(call)
    assert set(starting) == set(STARTS_PROGRAMS)
    for name, found in starting.items():
        for call in found:
            words = call.args[0]
            assert isinstance(words, ast.List | ast.Name), (name, call.lineno)


def is_constant(node: ast.expr) -> bool:
    """Whether this is a literal, the name of a constant, or such SQL in which psycopg quotes the rest."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_composed = get_name(node.func) == "sql.SQL"
        return is_constant(node.args[0] if is_composed else node.func.value) and (
            is_composed or (node.func.attr == "format" and isinstance(node.func.value, ast.Call))
        )
    return isinstance(node, ast.Constant) or bool(CONSTANT.fullmatch(get_name(node).rpartition(".")[2]))


def iter_sql_pieces(module: Path) -> Iterator[str]:
    """The expressions in SQL f-strings, and the executed statements, that are not constants."""
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.JoinedStr):
            first = node.values[0]
            begins = first.value if isinstance(first, ast.Constant) else ""
            if SQL.match(str(begins)):
                parts = [value.value for value in node.values if isinstance(value, ast.FormattedValue)]
                yield from (ast.unparse(part) for part in parts if not is_constant(part))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in EXECUTING:
            given = node.args[0]
            if not isinstance(given, ast.JoinedStr) and not is_constant(given):
                yield f"execute({ast.unparse(given)})"


def test_functions_assign_no_constants() -> None:
    for module in MODULES:
        functions = [node for node in ast.walk(parse_module(module)) if isinstance(node, ast.FunctionDef)]
        names = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Name)]
        assert not [node.id for node in names if isinstance(node.ctx, ast.Store) and CONSTANT.fullmatch(node.id)]


@pytest.mark.slow
def test_sql_is_composed_only_of_reviewed_parts() -> None:
    found = {(get_relative_path(module), piece) for module in MODULES for piece in iter_sql_pieces(module)}
    assert found == REVIEWED_SQL


def test_page_scripts_insert_html_in_only_one_place() -> None:
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|createContextualFragment"
        r"|setHTMLUnsafe|parseFromString|srcdoc|setTimeout\(\s*['\"`]|\.cookie|(?<!frame\.contentWindow\.)postMessage|importScripts"
    )
    found = {
        (script.name, number, line.strip())
        for script in STATIC.glob("*.js")
        if script.name != "diagram_frame.js"  # it runs in a frame without an origin
        for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1)
        if sinks.search(line)
    }
    parse = 'new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");'
    assert {(name, line) for name, _, line in found} == {
        ("trusted_html.js", f"export const parseHtml = (html) => {parse}")
    }
