"""Coverage-guided fuzzing of one target by atheris, which is no dependency: `pip install atheris` first."""

import sys

import atheris

with atheris.instrument_imports(include=["wikiholt", "markdown_it"]):
    from fuzzing import test_of


def covered(name: str, minutes: float) -> int:
    """Fuzz until the time is over or something is found; libFuzzer says what, and ends the process itself."""
    one_input = test_of(name, 1).hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    atheris.Setup([sys.argv[0], f"-max_total_time={round(minutes * 60)}", "-max_len=4096"], one_input)
    atheris.Fuzz()
    return 0
