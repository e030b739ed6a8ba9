"""Coverage-guided fuzzing of one target by atheris, which is no dependency: `pip install atheris` first."""

import sys

import atheris

# Only modules that are imported here are watched, so this comes before any other import of them.
with atheris.instrument_imports(
    include=["wikiholt.text", "wikiholt.interfaces.web", "wikiholt.app.settings", "markdown_it"]
):
    from tests.fuzz.runner import ALL_TARGETS


def run_coverage_guided(name: str, minutes: float) -> int:
    """Fuzz until the time is over or something is found; libFuzzer says what, and ends the process itself."""
    check, kind = ALL_TARGETS[name]

    def one_input(data: bytes) -> None:
        check(data if kind == "data" else data.decode("utf-8", "replace"))

    limits = [f"-max_total_time={round(minutes * 60)}", "-max_len=2048", "-len_control=10"]
    atheris.Setup([sys.argv[0], *limits], one_input)
    atheris.Fuzz()
    return 0
