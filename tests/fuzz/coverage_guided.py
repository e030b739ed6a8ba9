"""Coverage-guided fuzzing of one target with atheris, which is not a dependency: run `pip install atheris` first."""

import sys

import atheris

# Only modules that are imported here are instrumented, so this must be their first import.
with atheris.instrument_imports(
    include=["wikiholt.text", "wikiholt.interfaces.web", "wikiholt.api.settings", "markdown_it"]
):
    from tests.fuzz.runner import ALL_TARGETS


def run_coverage_guided(name: str, minutes: float) -> int:
    """Fuzz until the time is over or a failure is found; libFuzzer reports it and ends the process."""
    check, kind = ALL_TARGETS[name]

    def one_input(data: bytes) -> None:
        check(data if kind == "data" else data.decode("utf-8", "replace"))

    limits = [f"-max_total_time={round(minutes * 60)}", "-max_len=2048", "-len_control=10"]
    atheris.Setup([sys.argv[0], *limits], one_input)
    atheris.Fuzz()
    return 0
