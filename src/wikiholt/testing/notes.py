"""What every store must do beside an index: notes that all processes read, and the desk of who is at work."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from wikiholt.errors import Busy
from wikiholt.ports import IndexStore, WikiIndex

_WIKI_ID, _OTHER_WIKI_ID, _MISSING_WIKI_ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"


class NotesConformance:
    """The tests; each runs on a fresh store with one empty index."""

    def test_a_note_is_read_as_it_was_left_and_belongs_to_one_wiki(self, store: IndexStore, index: WikiIndex) -> None:
        assert index.check() == []
        assert store.get_note(_WIKI_ID, "health") is None
        for text in ('{"a": "é ☕"}', "", "x" * 10_000):
            store.set_note(_WIKI_ID, "health", text)
            assert (store.get_note(_WIKI_ID, "health"), store.get_note(_WIKI_ID, "reindex")) == (text, None)
        store.set_note(_OTHER_WIKI_ID, "health", "other", create=True)
        assert (store.get_note(_WIKI_ID, "health"), store.get_note(_OTHER_WIKI_ID, "health")) == ("x" * 10_000, "other")

    def test_a_note_recreates_a_removed_wiki_only_on_request(self, store: IndexStore) -> None:
        store.set_note(_MISSING_WIKI_ID, "health", "text")
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health"), store.list_wiki_ids()) == (False, None, [])
        store.set_note(_MISSING_WIKI_ID, "health", "text", create=True)
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health")) == (True, "text")
        assert store.delete(_MISSING_WIKI_ID)
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health")) == (False, None)

    def test_many_notes_at_once_are_each_whole(self, store: IndexStore, index: WikiIndex) -> None:
        texts = [str(number) * 2000 for number in range(8)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda text: store.set_note(_WIKI_ID, "health", text), texts))
        assert store.get_note(_WIKI_ID, "health") in texts
        assert index.check() == []

    def test_activity_is_readable_until_its_lock_is_released(
        self, store: IndexStore, index: WikiIndex
    ) -> None:
        assert (index.check(), store.get_activity(_WIKI_ID)) == ([], None)
        with store.activity_lock(_WIKI_ID) as leave:
            assert store.get_activity(_WIKI_ID) == ""
            for text in ("a long first note", "short"):
                leave(text)
                assert store.get_activity(_WIKI_ID) == text
            with pytest.raises(Busy), store.activity_lock(_WIKI_ID):
                pass
            assert store.get_activity(_WIKI_ID) == "short"
            with store.activity_lock(_OTHER_WIKI_ID):
                assert store.get_activity(_OTHER_WIKI_ID) == ""
        assert (store.get_activity(_WIKI_ID), store.get_activity(_OTHER_WIKI_ID)) == (None, None)
        with store.activity_lock(_WIKI_ID):
            assert store.get_activity(_WIKI_ID) == "", "what another left is gone"

    def test_activity_lock_and_write_lock_are_independent(self, store: IndexStore, index: WikiIndex) -> None:
        with store.activity_lock(_WIKI_ID), store.write_lock(_WIKI_ID, 1.0):
            assert index.get_version() == 0
        with store.write_lock(_WIKI_ID, 1.0), store.activity_lock(_WIKI_ID) as leave:
            leave("here")
            assert store.get_activity(_WIKI_ID) == "here"

    def test_quarantined_indexes_are_listed_and_disk_use_is_counted(self, store: IndexStore, index: WikiIndex) -> None:
        index.close()
        assert store.list_quarantined(_WIKI_ID) == []
        assert store.get_disk_bytes(_WIKI_ID) > 0
        with store.write_lock(_WIKI_ID, 1.0):
            names = [store.quarantine(_WIKI_ID, "it was broken")]
        assert list(store.list_quarantined(_WIKI_ID)) == names
        assert store.get_disk_bytes(_WIKI_ID) > 0
        assert (store.get_disk_bytes(_MISSING_WIKI_ID), store.list_quarantined(_MISSING_WIKI_ID)) == (0, [])
