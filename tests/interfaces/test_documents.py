"""Checks how JSON documents are built from values."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import pytest
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document


class Colour(StrEnum):
    RED = "red"


class ThingDocument(TypedDict):
    colour: str
    made_at: str
    words: list[list[str]]
    size: int


@dataclass
class Thing:
    words: tuple[tuple[str, ...], ...] = (("a", "b"), ())
    colour: Colour = Colour.RED
    made_at: datetime = datetime(2026, 5, 31, tzinfo=UTC)
    secret: str = "never shown"


def test_a_document_has_its_own_fields_in_its_own_order() -> None:
    document = build_document(ThingDocument, Thing(), size=3)
    assert list(document.items()) == [
        ("colour", "red"),
        ("made_at", "2026-05-31T00:00:00+00:00"),
        ("words", [["a", "b"], []]),
        ("size", 3),
    ]
    assert type(document["colour"]) is str


def test_a_given_value_is_converted_like_an_attribute() -> None:
    document = build_document(ThingDocument, Thing(), size=3, words=(("c",),), made_at=datetime(2026, 6, 1, tzinfo=UTC))
    assert (document["words"], document["made_at"]) == ([["c"]], "2026-06-01T00:00:00+00:00")


def test_a_value_for_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="ThingDocument has no field colur"):
        build_document(ThingDocument, Thing(), size=3, colur="red")


def test_a_field_that_the_value_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError, match="size"):
        build_document(ThingDocument, Thing())
