"""What every store must do beside an index: notes that all processes read, and the desk of who is at work."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from wikiholt.errors import Busy
from wikiholt.ports import Store, WikiIndex

_HERE, _ELSEWHERE, _NOWHERE = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"


class NotesConformance:
    """The tests; each runs on a fresh store with one empty index."""

    def test_a_note_is_read_as_it_was_left_and_belongs_to_one_wiki(self, store: Store, index: WikiIndex) -> None:
        assert index.check() == []
        assert store.note(_HERE, "health") is None
        for text in ('{"a": "é ☕"}', "", "x" * 10_000):
            store.keep_note(_HERE, "health", text)
            assert (store.note(_HERE, "health"), store.note(_HERE, "reindex")) == (text, None)
        store.keep_note(_ELSEWHERE, "health", "other", make=True)
        assert (store.note(_HERE, "health"), store.note(_ELSEWHERE, "health")) == ("x" * 10_000, "other")

    def test_a_note_brings_no_removed_wiki_back_unless_it_is_to(self, store: Store) -> None:
        store.keep_note(_NOWHERE, "health", "text")
        assert (store.holds(_NOWHERE), store.note(_NOWHERE, "health"), store.ids()) == (False, None, [])
        store.keep_note(_NOWHERE, "health", "text", make=True)
        assert (store.holds(_NOWHERE), store.note(_NOWHERE, "health")) == (True, "text")
        assert store.drop(_NOWHERE)
        assert (store.holds(_NOWHERE), store.note(_NOWHERE, "health")) == (False, None)

    def test_many_notes_at_once_are_each_whole(self, store: Store, index: WikiIndex) -> None:
        texts = [str(number) * 2000 for number in range(8)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda text: store.keep_note(_HERE, "health", text), texts))
        assert store.note(_HERE, "health") in texts
        assert index.check() == []

    def test_one_sits_at_a_desk_and_what_it_leaves_there_is_read_until_it_goes(
        self, store: Store, index: WikiIndex
    ) -> None:
        assert (index.check(), store.seated(_HERE)) == ([], None)
        with store.sitting(_HERE) as leave:
            assert store.seated(_HERE) == ""
            for text in ("a long first note", "short"):
                leave(text)
                assert store.seated(_HERE) == text
            with pytest.raises(Busy), store.sitting(_HERE):
                pass
            assert store.seated(_HERE) == "short"
            with store.sitting(_ELSEWHERE):
                assert store.seated(_ELSEWHERE) == ""
        assert (store.seated(_HERE), store.seated(_ELSEWHERE)) == (None, None)
        with store.sitting(_HERE):
            assert store.seated(_HERE) == "", "what another left is gone"

    def test_who_sits_at_the_desk_may_write_and_who_writes_may_sit_down(self, store: Store, index: WikiIndex) -> None:
        with store.sitting(_HERE), store.writing(_HERE, 1.0):
            assert index.version() == 0
        with store.writing(_HERE, 1.0), store.sitting(_HERE) as leave:
            leave("here")
            assert store.seated(_HERE) == "here"

    def test_what_is_set_aside_is_named_and_what_there_is_takes_room(self, store: Store, index: WikiIndex) -> None:
        index.close()
        assert store.aside(_HERE) == []
        assert store.disk_bytes(_HERE) > 0
        with store.writing(_HERE, 1.0):
            names = [store.set_aside(_HERE, "it was broken")]
        assert list(store.aside(_HERE)) == names
        assert store.disk_bytes(_HERE) > 0
        assert (store.disk_bytes(_NOWHERE), store.aside(_NOWHERE)) == (0, [])
