"""Embeds passages on a GPU with PyTorch, in bf16, with the weights of a built-in model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelUnavailable
from wikiholt.models.model_card import ModelCard

_MAX_BATCH_TOKENS = 65_536
"""Tokens of a batch, with padding: about one gigabyte of GPU memory. Halved while the memory does not suffice."""
_MIN_BATCH_TOKENS = 2_048
_LAYER_NORM_EPSILON = 1e-12


def plan_batches(lengths: Sequence[int], max_tokens: int = _MAX_BATCH_TOKENS) -> Iterator[list[int]]:
    """The positions of the texts of each batch, ordered by length, so that little is padded."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[position] > max_tokens:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


class TorchEncoder:
    """The encoder of a built-in model on one device. Computes whole batches; safe to use from many threads."""

    def __init__(self, tensors: Mapping[str, Any], card: ModelCard, device: str) -> None:
        self._device = torch.device(device)
        self._card = card
        self._weights = {
            name: torch.tensor(np.asarray(value, np.float32)).to(self._device, torch.bfloat16)
            for name, value in tensors.items()
        }
        self._layers = sum(name.endswith(".attention_norm.scale") for name in tensors)
        self._max_tokens = _MAX_BATCH_TOKENS
        # cuDNN plans its attention again for every size of a batch, and almost every batch has another size.
        torch.backends.cuda.enable_cudnn_sdp(False)

    def embed(self, sequences: Sequence[IntArray]) -> FloatArray:
        """One unit vector per sequence of token ids. Raises ModelUnavailable if the GPU fails."""
        try:
            with torch.inference_mode():
                return self._embed_batches(sequences)
        except torch.OutOfMemoryError as error:
            if self._max_tokens <= _MIN_BATCH_TOKENS:
                raise ModelUnavailable("The GPU has too little free memory", hint="set device to cpu") from error
        except RuntimeError as error:
            raise ModelUnavailable(f"The GPU failed: {error}", hint="set device to cpu") from error
        # Outside the handler, because the traceback of the error keeps tensors of the failed batch alive.
        self._max_tokens //= 2
        torch.cuda.empty_cache()
        return self.embed(sequences)

    def _embed_batches(self, sequences: Sequence[IntArray]) -> FloatArray:
        vectors = torch.empty((len(sequences), self._card.width), dtype=torch.float32, device=self._device)
        lengths = [len(sequence) for sequence in sequences]
        for batch in plan_batches(lengths, self._max_tokens):
            vectors[torch.tensor(batch, device=self._device)] = self._encode([sequences[i] for i in batch])
        return np.asarray(vectors.cpu().numpy(), np.float32)

    def _encode(self, sequences: Sequence[IntArray]) -> torch.Tensor:
        lengths = torch.tensor([len(sequence) for sequence in sequences], device=self._device)
        longest = max(map(len, sequences))
        ids = np.zeros((len(sequences), longest), np.int32)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
        is_token = torch.arange(longest, device=self._device)[None] < lengths[:, None]
        states = self._embed_tokens(torch.from_numpy(ids).to(self._device))
        for layer in range(self._layers):
            states = self._run_layer(states, is_token, f"layers.{layer}")
        if states.shape[1] > 1:
            weights = is_token[:, :, None].to(torch.float32)
            states = (states.float() * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        return functional.normalize(states[:, 0].float(), dim=-1)

    def _embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        weights = self._weights
        states = functional.embedding(ids, weights["words"]) + weights["positions"][: ids.shape[1]] + weights["segment"]
        return self._normalize(states, "embedding_norm")

    def _run_layer(self, states: torch.Tensor, is_token: torch.Tensor, at: str) -> torch.Tensor:
        seen, states = self._attend(states, is_token, at)
        states = self._normalize(self._project(seen, f"{at}.out") + states, f"{at}.attention_norm")
        inner = functional.gelu(self._project(states, f"{at}.up"))
        return self._normalize(self._project(inner, f"{at}.down") + states, f"{at}.norm")

    def _attend(self, states: torch.Tensor, is_token: torch.Tensor, at: str) -> tuple[torch.Tensor, torch.Tensor]:
        """What each token receives from the others, and the tokens that continue.

        A last layer with a matrix of its own for queries continues with the first token only.
        """
        if f"{at}.q" in self._weights:
            keys, values = self._project(states, f"{at}.kv").chunk(2, dim=-1)
            states = states[:, :1]
            queries = self._project(states, f"{at}.q")
        else:
            queries, keys, values = self._project(states, f"{at}.qkv").chunk(3, dim=-1)
        heads = (part.unflatten(-1, (self._card.heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        seen = functional.scaled_dot_product_attention(*heads, attn_mask=is_token[:, None, None])
        return seen.transpose(1, 2).flatten(2), states

    def _project(self, states: torch.Tensor, name: str) -> torch.Tensor:
        flat = torch.addmm(self._weights[f"{name}.bias"], states.flatten(0, 1), self._weights[name])
        return flat.unflatten(0, states.shape[:2])

    def _normalize(self, states: torch.Tensor, name: str) -> torch.Tensor:
        scale, shift = self._weights[f"{name}.scale"], self._weights[f"{name}.shift"]
        return functional.layer_norm(states, scale.shape, scale, shift, _LAYER_NORM_EPSILON)
