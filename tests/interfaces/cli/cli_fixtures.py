"""Runs commands in this process."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.services import SlowEmbedder
from wikiholt import models
from wikiholt.interfaces.cli.main import main


class Output(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    def parse(self) -> Any:
        """The JSON that the command printed, if it printed nothing else."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


class CommandRunner:
    """Runs `wikiholt` with a data directory; with `monkeypatch`, a stand-in replaces the model."""

    def __init__(
        self, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch | None = None
    ) -> None:
        self._options = ["--data", str(data)]
        self.program = f"wikiholt --data {data}"
        """How a suggested command begins."""
        self._capsys = capsys
        if monkeypatch is not None:
            use_fake_model(monkeypatch)
            self._options += ["--set", "model=fake"]

    def __call__(self, *arguments: str) -> Output:
        self._capsys.readouterr()  # what fixtures printed
        try:
            code = main([*self._options, *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)


def use_fake_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "load_embedder", lambda name, **_: SlowEmbedder(name, 0.0))
    monkeypatch.setattr(models, "identify_model", lambda name, *_: SlowEmbedder(name, 0.0))
