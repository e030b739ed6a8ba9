"""A conformance test suite for stores, usable by any store.

Subclass `StoreConformance` (pytest) and call `run_state_machine` (hypothesis) with a function that creates an empty
store. `FakeEmbedder` and `FakeReranker` replace models where speed matters more than quality.
"""

from wikiholt.testing.conformance import StoreConformance
from wikiholt.testing.fakes import FakeEmbedder, FakeReranker, make_entry
from wikiholt.testing.state_machine import run_state_machine

__all__ = ["FakeEmbedder", "FakeReranker", "StoreConformance", "make_entry", "run_state_machine"]
