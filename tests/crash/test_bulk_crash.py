"""A process that is killed during a bulk import has lost no line that it acknowledged."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.fork_server import ForkedPopen, run_forked

LINE_COUNT = 1_600


def run_wikiholt(data: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "wikiholt.interfaces.cli.main", "--data", str(data), *arguments]
    return run_forked(command, check=False, timeout=300)


def test_acknowledged_lines_survive_a_kill_and_the_import_can_be_repeated(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "pages.ndjson"
    pages = {f"folder {n % 7}/page {n}": f"# Page {n}\n\nText {n}.\n" for n in range(LINE_COUNT)}
    file.write_text("".join(json.dumps({"path": path, "content": text}) + "\n" for path, text in pages.items()))
    assert run_wikiholt(data, "create", "notes").returncode == 0
    command = [
        sys.executable,
        "-m",
        "wikiholt.interfaces.cli.main",
        "--data",
        str(data),
        "--json",
        "import-pages",
        "notes",
        str(file),
    ]
    with ForkedPopen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [json.loads(process.stdout.readline()) for _ in range(600)]
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    (repository,) = (data / "repositories").glob("*.git")
    git = ["git", f"--git-dir={repository}"]
    for result in acknowledged[::50]:
        text = subprocess.check_output([*git, "show", f"HEAD:{result['path']}.md"]).decode()
        assert text == pages[result["path"]]
    listed = subprocess.check_output([*git, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "HEAD"])
    assert {f"{result['path']}.md" for result in acknowledged} <= set(listed.decode().splitlines())
    again = run_wikiholt(data, "import-pages", "notes", str(file))
    assert again.returncode == 0, again.stderr
    count = subprocess.check_output([*git, "ls-tree", "-r", "--name-only", "HEAD"]).count(b"\n")
    assert count == LINE_COUNT
    subprocess.run([*git, "fsck", "--strict"], check=True, capture_output=True)
