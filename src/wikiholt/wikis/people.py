"""Which wikis a person may use: rules that map groups to wikis and scopes."""

from collections.abc import Sequence
from dataclasses import dataclass

from wikiholt.domain.slugs import validate_slug
from wikiholt.domain.wiki import Person, PersonOrigin, Scope
from wikiholt.errors import InvalidSetting, InvalidSlug

EVERYONE = "*"
"""The group of all persons, and in a rule the name of all wikis."""
OPERATOR = "operator"
_RULE_FORM = "write GROUP=WIKI:SCOPE or GROUP=operator, such as editors=handbook:write or staff=*:read"


@dataclass(frozen=True, slots=True)
class GroupRule:
    """What a group may do: `scope` in the wiki `slug`, or in all wikis. Operators have no scope."""

    group: str
    slug: str
    scope: Scope | None

    @classmethod
    def parse(cls, text: str) -> "GroupRule":
        """Parse `GROUP=WIKI:SCOPE` or `GROUP=operator`. Raises InvalidSetting."""
        group, separator, permission = (part.strip() for part in text.rpartition("="))
        if separator and group and permission == OPERATOR and group != EVERYONE:
            return cls(group, EVERYONE, None)
        slug, _, scope = (part.strip() for part in permission.rpartition(":"))
        try:
            if not group or scope not in tuple(Scope):
                raise InvalidSlug(slug)
            return cls(group, slug if slug == EVERYONE else validate_slug(slug), Scope(scope))
        except InvalidSlug:
            raise InvalidSetting(f"{text!r} is not a rule for a group.", hint=_RULE_FORM) from None


class GroupRules:
    """All rules of an installation."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self.rules = tuple(map(GroupRule.parse, rules))

    def is_operator(self, person: Person) -> bool:
        """Whether the person may use and manage all wikis."""
        if person.origin is PersonOrigin.OWNER:
            return True
        return any(rule.scope is None and rule.group in person.groups for rule in self.rules)

    def get_scope(self, person: Person, slug: str) -> Scope | None:
        """The highest scope of the person in a wiki; None without access."""
        scopes = {
            rule.scope
            for rule in self.rules
            if rule.scope and rule.slug in (EVERYONE, slug) and rule.group in (EVERYONE, *person.groups)
        }
        return next((scope for scope in reversed(Scope) if scope in scopes), None)


def check_group_rule(text: str) -> str:
    """The reason why a rule is invalid, or an empty string."""
    try:
        GroupRule.parse(text)
    except InvalidSetting:
        return _RULE_FORM
    return ""
