"""Texts as token ids on the device, and running a model over many of them."""

import numpy as np
import torch

from training.models import Transformer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Tokens:
    """Token ids of many texts on the device."""

    def __init__(self, rows: list[list[int]], limit: int, padding: int) -> None:
        self.lengths = torch.tensor([min(len(row), limit) for row in rows], device=DEVICE)
        table = np.full((len(rows), int(self.lengths.max())), padding, np.int32)
        for number, row in enumerate(rows):
            table[number, : min(len(row), limit)] = row[:limit]
        self.ids = torch.from_numpy(table).to(DEVICE)

    def take(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids and the mask of these texts."""
        lengths = self.lengths[numbers]
        longest = int(lengths.max())
        mask = torch.arange(longest, device=DEVICE) < lengths[:, None]
        return self.ids[numbers, :longest].long(), mask


class PairTokens:
    """Token ids of queries and passages for a cross-encoder, joined when they are read."""

    CLS, SEP = 101, 102

    def __init__(self, queries: Tokens, passages: Tokens) -> None:
        self.queries, self.passages = queries, passages

    def take(self, queries: torch.Tensor, passages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The ids, the mask and the types of these pairs."""
        q, p = self.queries.lengths[queries][:, None], self.passages.lengths[passages][:, None]
        place = torch.arange(int((q + p).max()) + 3, device=DEVICE)[None]
        query_ids = self.queries.ids[queries].long()
        passage_ids = self.passages.ids[passages].long()
        from_query = query_ids.gather(1, (place - 1).clamp(0, query_ids.shape[1] - 1).expand(len(queries), -1))
        from_passage = passage_ids.gather(1, (place - q - 2).clamp(0, passage_ids.shape[1] - 1))
        ids = torch.where(place <= q, from_query, from_passage)
        ids = torch.where(place == 0, self.CLS, ids)
        ids = torch.where((place == q + 1) | (place == q + p + 2), self.SEP, ids)
        mask = place < q + p + 3
        return ids * mask, mask, ((place > q + 1) & mask).long()


@torch.no_grad()
def embed(model: Transformer, tokens: Tokens, batch: int = 1024) -> torch.Tensor:
    """Unit vectors, in the order of the texts."""
    order = tokens.lengths.argsort()
    vectors = torch.empty(len(order), model.p["emb_ln_w"].shape[0], device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            vectors[chosen] = model(*tokens.take(chosen))
    return vectors


@torch.no_grad()
def score_pairs(model: Transformer, pairs: PairTokens, queries: torch.Tensor, passages: torch.Tensor) -> torch.Tensor:
    """The logit of each pair."""
    order = (pairs.queries.lengths[queries] + pairs.passages.lengths[passages]).argsort()
    logits = torch.empty(len(order), device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        for start in range(0, len(order), 2048):
            chosen = order[start : start + 2048]
            logits[chosen] = model(*pairs.take(queries[chosen], passages[chosen]))
    return logits
