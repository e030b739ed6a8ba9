"""What every store must do, as tests that any store can run.

A store's author subclasses `StoreConformance` (pytest) and calls `run_state_machine` (hypothesis) with a function
that makes an empty store. `FakeEmbedder` and `FakeReranker` stand in for models where speed matters more than meaning.
"""

from wikiholt.testing.conformance import StoreConformance
from wikiholt.testing.fakes import FakeEmbedder, FakeReranker, make_entry
from wikiholt.testing.state_machine import run_state_machine

__all__ = ["FakeEmbedder", "FakeReranker", "StoreConformance", "make_entry", "run_state_machine"]
