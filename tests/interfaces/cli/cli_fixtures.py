"""Runs commands in this process, with a stand-in for the model."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.services import SlowEmbedder
from wikiholt import embedding
from wikiholt.interfaces.cli.main import main


class Output(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    err: str


class CommandRunner:
    """Runs `wikiholt` with a data directory and a stand-in for the model."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._data = data
        self._capsys = capsys
        use_fake_model(monkeypatch)

    def __call__(self, *arguments: str) -> Output:
        try:
            code = main(["--data", str(self._data), "--set", "model=fake", *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)


def use_fake_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "load_embedder", lambda name, **_: SlowEmbedder(name, 0.0))
    monkeypatch.setattr(embedding, "identify_model", lambda name, _: SlowEmbedder(name, 0.0))
