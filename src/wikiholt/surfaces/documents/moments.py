"""Points in time as every document writes them."""

from datetime import datetime
from typing import overload


@overload
def moment(when: datetime) -> str: ...
@overload
def moment(when: datetime | None) -> str | None: ...
def moment(when: datetime | None) -> str | None:
    """ISO 8601 with the offset from UTC."""
    return when.isoformat() if when else None
