"""How a remote model is reached. Imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

REMOTE_PREFIX = "openai:"


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The address of a server, and what the server does not say about its model."""

    url: str = ""
    key_variable: str = ""
    timeout_s: float = 30.0
    query_timeout_s: float = 5.0
    batch: int = 32
    max_tokens: int = 512
    query_prefix: str = ""
    passage_prefix: str = ""
    local_model: str = ""
    directory: Path = Path()
    """Where the references are stored."""

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.query_prefix, self.passage_prefix


def is_remote_model(model: str | Path) -> bool:
    return isinstance(model, str) and model.startswith(REMOTE_PREFIX)
