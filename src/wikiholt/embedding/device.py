"""Where passages are embedded: on the CPU, or on a GPU with CUDA if PyTorch is installed."""

import ctypes
import importlib.util

from wikiholt.embedding.model_card import ModelCard
from wikiholt.errors import ModelMismatch

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
_DRIVERS = ("libcuda.so.1", "nvcuda.dll")


def choose_device(device: str, card: ModelCard) -> str:
    """The device that embeds passages for a device setting. Raises ModelMismatch if `cuda` is impossible.

    PyTorch is not imported: that takes seconds, and a process that only searches does not need it.
    """
    if device == CPU:
        return CPU
    problem = _find_problem(card)
    if problem and device == CUDA:
        raise ModelMismatch(f"device = cuda, but {problem[0]}", hint=problem[1])
    return CPU if problem else CUDA


def _find_problem(card: ModelCard) -> tuple[str, str] | None:
    """Why this model cannot run on a GPU here, and a hint."""
    if not card.heads:
        hint = "set device to auto or cpu, or run the model on a server (model = openai:NAME)"
        return f"{card.name} is an ONNX file, which runs on the CPU only", hint
    if not _has_pytorch():
        return "PyTorch is not installed", "install the extra gpu, or set device to auto or cpu"
    if not _has_driver():
        return "there is no CUDA driver", "install the driver of the GPU, or set device to auto or cpu"
    return None


def _has_pytorch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _has_driver() -> bool:
    for library in _DRIVERS:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False
