"""Where a model runs: on the CPU, or on a GPU with CUDA if onnxruntime-gpu is installed."""

import logging
from collections.abc import Sequence
from typing import Any

import onnxruntime

from wikiholt.errors import ModelMismatch

_log = logging.getLogger(__name__)

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
_CPU_PROVIDER, _CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
_GPU_HINT = (
    "pip uninstall onnxruntime, then pip install --force-reinstall onnxruntime-gpu; it needs the CUDA and cuDNN "
    "libraries. Or set device to auto or cpu"
)


def choose_providers(device: str, precision: str) -> list[Any]:
    """The providers of onnxruntime for a device setting, in order of preference. Raises ModelMismatch.

    int8 has no fast implementation on a GPU, so `auto` leaves it on the CPU.
    """
    if device == CPU or (device == AUTO and precision != "fp32"):
        return [_CPU_PROVIDER]
    if device == CUDA and precision != "fp32":
        raise ModelMismatch(f"device = cuda cannot run precision {precision}", hint="set precision to fp32")
    if _CUDA_PROVIDER not in onnxruntime.get_available_providers():
        if device == CUDA:
            raise ModelMismatch("device = cuda, but the installed onnxruntime has no CUDA", hint=_GPU_HINT)
        return [_CPU_PROVIDER]
    # With TF32, vectors differ from those of a CPU.
    return [(_CUDA_PROVIDER, {"use_tf32": "0"}), _CPU_PROVIDER]


def check_device(device: str, wanted: Sequence[Any], actual: Sequence[str], name: str) -> str:
    """The device that a session runs on. onnxruntime uses the CPU silently if CUDA does not start.

    Raises ModelMismatch if `device` is cuda and the session runs on the CPU.
    """
    if _CUDA_PROVIDER in actual:
        return CUDA
    if len(wanted) > 1:
        if device == CUDA:
            raise ModelMismatch(f"CUDA did not start for {name}", hint=_GPU_HINT)
        _log.warning("CUDA did not start; %s runs on the CPU. To hide this message, set device to cpu.", name)
    return CPU
