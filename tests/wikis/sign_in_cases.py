"""What every store of sign-ins must do."""

from datetime import timedelta

import pytest

from wikiholt.domain.wiki import Person, PersonOrigin, Scope
from wikiholt.wikis import sign_ins
from wikiholt.wikis.registry import Registry

HOUR = timedelta(hours=1)
PERSON = Person(PersonOrigin.OIDC, "iss 7", "Ada „Lovelace\0\udcff", "ada@example.org", ("a,b", "ü"))


class SignInCases:
    """The tests, with a fixture `registry` of the subclass."""

    def test_a_sign_in_is_found_by_its_token(self, registry: Registry) -> None:
        key, _ = registry.keys.create(None, Scope.ADMIN)
        assert registry.sign_ins.find("unknown") is None
        for client, person in ((key, None), (PERSON, PERSON)):
            made, token = registry.sign_ins.create(client, HOUR)
            assert registry.sign_ins.find(token) == made
            assert (made.client, made.person) == (client.id, person)
            assert registry.sign_ins.find(token + "x") is None
            assert registry.sign_ins.find("\udcff\0") is None

    def test_an_ended_sign_in_is_gone(self, registry: Registry) -> None:
        kept, ended = (registry.sign_ins.create(PERSON, HOUR)[1] for _ in range(2))
        registry.sign_ins.end(ended)
        registry.sign_ins.end(ended)
        assert registry.sign_ins.find(ended) is None
        assert registry.sign_ins.find(kept) is not None

    def test_an_expired_sign_in_is_not_found(self, registry: Registry) -> None:
        _, token = registry.sign_ins.create(PERSON, timedelta(microseconds=-1))
        assert registry.sign_ins.find(token) is None

    def test_the_number_of_sign_ins_is_limited(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sign_ins, "MAX_SIGN_INS_PER_CLIENT", 3)
        key, _ = registry.keys.create(None, Scope.ADMIN)
        _, other = registry.sign_ins.create(key, HOUR)
        tokens = [registry.sign_ins.create(PERSON, HOUR)[1] for _ in range(5)]
        assert [registry.sign_ins.find(token) is not None for token in tokens] == [False, False, True, True, True]
        assert registry.sign_ins.find(other) is not None

    def test_a_sign_in_does_not_change_the_registry(self, registry: Registry) -> None:
        registry.add("garden", "/srv/garden")
        before = registry.get_version(), registry.read_rows()
        registry.sign_ins.create(PERSON, HOUR)
        assert (registry.get_version(), registry.read_rows()) == before
