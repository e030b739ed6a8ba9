"""Scores pairs of query and text with a model that another process serves at `/rerank`, as Cohere, Jina, vLLM and
llama.cpp do."""

import json
import math
from collections.abc import Sequence

from wikiholt.errors import ModelMismatch, ModelSelfTestFailed
from wikiholt.models.model_server import TRANSPORT_ERRORS, ModelServer, describe_failure

_LEAST = 1e-6
_MAX_LOGIT = 1e3
"""Sums of scores must stay finite, whatever a server sends."""
_TEST_TIMEOUT_S = 30.0
_TEST_QUERY = "Where does the cat sleep?"
_TEST_TEXTS = ["The cat sleeps on the sofa.", "Invoices are paid within thirty days."]


class RemoteReranker(ModelServer):
    """One reranker of one server. Safe to use from many threads."""

    kind = "rerank server"
    prefix = "rerank"
    endpoint = "/rerank"
    max_reply_bytes = 1 << 22

    @property
    def name(self) -> str:
        return self.model

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """How well each text answers the query, as logits; None if that takes longer than `timeout_s`.

        Raises ModelUnavailable, ModelMissing, ModelMismatch.
        """
        document = {"query": query, "documents": list(texts), "top_n": len(texts), "return_documents": False}
        try:
            reply = self.send(document, timeout_s)
        except TimeoutError:
            return None
        except TRANSPORT_ERRORS as error:
            raise self.make_silence_error(describe_failure(error)) from error
        if reply.status // 100 != 2:
            raise self.make_status_error(reply.status, reply.body)
        try:
            rows = json.loads(reply.body)["results"]
            by_index = {int(row["index"]): float(row["relevance_score"]) for row in rows}
            scores = [by_index[index] for index in range(len(texts))]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            hint = "rerank.url must be the address before /rerank, such as http://127.0.0.1:8080/v1"
            raise ModelMismatch(f"The reply of {self.address} is not a list of scores", hint=hint) from error
        if not all(map(math.isfinite, scores)):
            raise ModelMismatch(f"{self.address} returned a score that is not finite", hint="check the rerank server")
        # Most servers return probabilities, some logits.
        if all(0 <= score <= 1 for score in scores):
            return [_to_logit(score) for score in scores]
        return [min(max(score, -_MAX_LOGIT), _MAX_LOGIT) for score in scores]

    def run_self_test(self) -> None:
        """Raise ModelSelfTestFailed unless an answer scores higher than an unrelated text."""
        scores = self.score(_TEST_QUERY, _TEST_TEXTS, _TEST_TIMEOUT_S)
        if scores is None:
            raise self.make_silence_error("timeout")
        if scores[0] <= scores[1]:
            hint = "serve a reranker (a cross-encoder), or set another rerank.model"
            raise ModelSelfTestFailed(f"{self.model} scores an unrelated text higher than an answer", hint=hint)


def _to_logit(probability: float) -> float:
    bounded = min(max(probability, _LEAST), 1 - _LEAST)
    return math.log(bounded / (1 - bounded))
