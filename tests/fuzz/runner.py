"""Runs fuzz targets with a number of examples each."""

import traceback
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import (
    fuzz_texts,
    interface_targets,
    text_targets,
)

ALL_TARGETS: dict[str, tuple[Callable[[Any], None], str]] = {**text_targets.TARGETS, **interface_targets.TARGETS}


def build_fuzz_test(name: str, examples: int, number: int | None) -> Callable[[], None]:
    """The target as a Hypothesis test. With `number` as a seed the examples are random, without one always the same."""
    check, kind = ALL_TARGETS[name]

    def any_input(value: Any) -> None:
        check(value)

    any_input.__qualname__ = any_input.__name__ = f"fuzz_{name}"
    quick = settings(
        max_examples=examples,
        deadline=None,
        derandomize=number is None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    return quick(given(getattr(fuzz_texts, kind))(any_input))


def run_target(name: str, examples: int, number: int | None = None) -> str | None:
    """Run one target. Returns the failure with its smallest input, or None."""
    test = build_fuzz_test(name, examples, number)
    try:
        (seed(number)(test) if number is not None else test)()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        notes = "\n".join(getattr(error, "__notes__", ()))
        return f"{name} (seed {number}): {notes}\n{traceback.format_exc(limit=-4)}"
    return None
