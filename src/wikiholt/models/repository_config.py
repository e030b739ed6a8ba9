"""Reads how a model of the hub is used from the configuration files of its repository; pure.

A setting that Wikiholt cannot apply is an error: a model that is used in another way than trained gives poor results
without any sign of it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from wikiholt.errors import ModelRefused

CONFIG, MODULES = "config.json", "modules.json"
PROMPTS, WINDOW = "config_sentence_transformers.json", "sentence_bert_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GRAPHS = ("onnx/model.onnx", "model.onnx")
_WEIGHTS_SUFFIXES = ("_data", ".data")
_POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
_ACTIVATIONS = {"torch.nn.modules.linear.Identity": "identity", "torch.nn.modules.activation.Tanh": "tanh"}
_PASSAGE_PROMPTS = ("document", "passage", "corpus")
_MODULE_PATTERN = re.compile(r"sentence_transformers(?:\.\w+)*\.(Transformer|Pooling|Dense|Normalize)")
_MAX_TOKENIZER_LENGTH = 1_000_000
"""Larger values of model_max_length mean "not known"."""
Read = Callable[[str], bytes | None]
"""The content of a small file of the repository, or None if it has none."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What the user says about a model, because its repository does not."""

    pooling: str = ""
    query_prefix: str | None = None
    passage_prefix: str | None = None
    graph: str = ""


@dataclass(frozen=True, slots=True)
class DenseModule:
    """A dense layer: its weights file, dimensions and activation."""

    file: str
    inputs: int
    outputs: int
    activation: str


@dataclass(frozen=True, slots=True)
class RepositoryConfig:
    """Everything that is needed to run a model of a repository."""

    graph: str
    weights: str | None
    pooling: str
    window: int
    width: int
    query_prefix: str = ""
    passage_prefix: str = ""
    dense: tuple[DenseModule, ...] = field(default=())

    @property
    def precision(self) -> str:
        """By the name of the graph: such as model_quantized.onnx, model_qint8_avx512.onnx, model_fp16.onnx."""
        name = PurePosixPath(self.graph).stem
        return "int8" if re.search("quant|int8|q8", name) else "fp16" if "fp16" in name else "fp32"

    @property
    def dimensions(self) -> int:
        return self.dense[-1].outputs if self.dense else self.width

    @property
    def files(self) -> tuple[str, ...]:
        """The files to download besides the configuration."""
        dense = (layer.file for layer in self.dense)
        return tuple(file for file in (self.graph, self.weights, TOKENIZER, *dense) if file is not None)


def read_repository(files: Sequence[str], read: Read, options: FetchOptions) -> RepositoryConfig:
    """How to run the model of a repository with these files. Raises ModelRefused, naming what cannot be applied."""
    config = _read_json(read, CONFIG) or {}
    tokenizer_config = _read_json(read, TOKENIZER_CONFIG) or {}
    for name, table in ((CONFIG, config), (TOKENIZER_CONFIG, tokenizer_config)):
        if "auto_map" in table:
            raise ModelRefused(f"{name} loads code from the repository (auto_map)", hint=_SERVER_HINT)
    _refuse_rerankers(config)
    if TOKENIZER not in files:
        raise ModelRefused(f"The repository has no {TOKENIZER}", hint="save its tokenizer in the fast format")
    graph = _find_graph(files, options.graph)
    pooling, dense = _read_modules(files, read, options)
    window_table, prompts_table = _read_json(read, WINDOW) or {}, _read_json(read, PROMPTS) or {}
    if window_table.get("do_lower_case"):
        _refuse_lower_casing(_read_json(read, TOKENIZER) or {})
    _refuse_other_similarity(prompts_table, is_normalized=pooling.is_normalized)
    query_prefix, passage_prefix = _read_prompts(prompts_table, options)
    if (query_prefix or passage_prefix) and pooling.excludes_prompt:
        raise ModelRefused("The pooling leaves out the prompt (include_prompt)", hint=_SERVER_HINT)
    return RepositoryConfig(
        graph=graph,
        weights=next((graph + suffix for suffix in _WEIGHTS_SUFFIXES if graph + suffix in files), None),
        pooling=pooling.mode,
        window=_read_window(window_table, tokenizer_config, config),
        width=pooling.width or _get_int(config, CONFIG, "hidden_size"),
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        dense=dense,
    )


_CHOOSE_HINT = "choose another model; Wikiholt compares vectors by cosine"
_SERVER_HINT = "run the model on a server and use it with model = openai:NAME (docs/models.md)"


@dataclass(frozen=True, slots=True)
class _Pooling:
    mode: str
    width: int = 0
    excludes_prompt: bool = False
    is_normalized: bool = False
    """Whether the model scales its vectors to unit length."""


def _read_json(read: Read, name: str) -> Any:
    data = read(name)
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"{name} of the repository is not JSON", hint="choose another revision") from error


def _refuse_rerankers(config: Mapping[str, Any]) -> None:
    for architecture in config.get("architectures") or ():
        if "ForSequenceClassification" in str(architecture):
            hint = "put its ONNX export into a directory with a card and set rerank.model to it (docs/models.md)"
            raise ModelRefused("The repository has a classifier or reranker, not an embedding model", hint=hint)


def _find_graph(files: Sequence[str], wanted: str) -> str:
    candidates = sorted(file for file in files if PurePosixPath(file).suffix == ".onnx")
    if wanted and wanted not in candidates:
        raise ModelRefused(f"The repository has no {wanted}", hint=f"choose one of: {', '.join(candidates) or 'none'}")
    graph = wanted or next((name for name in GRAPHS if name in candidates), "")
    if graph:
        return graph
    if candidates:
        raise ModelRefused(f"The repository has no {GRAPHS[0]}", hint=f"choose with --graph: {', '.join(candidates)}")
    hint = "choose a repository with an ONNX export, export it with optimum-cli, or run the model on a server"
    raise ModelRefused("The repository has no ONNX graph", hint=hint)


def _read_modules(files: Sequence[str], read: Read, options: FetchOptions) -> tuple[_Pooling, tuple[DenseModule, ...]]:
    """The pooling and the dense layers, by the list of modules of sentence-transformers."""
    modules = _read_json(read, MODULES)
    if modules is None:
        if not options.pooling:
            hint = "its model card says how tokens are pooled: repeat with --pooling mean or --pooling cls"
            raise ModelRefused(f"The repository has no {MODULES}, so its pooling is not known", hint=hint)
        return _Pooling(options.pooling), ()
    pooling: _Pooling | None = None
    dense: list[DenseModule] = []
    for module in modules:
        kind = _MODULE_PATTERN.fullmatch(str(module.get("type")))
        if kind is None:
            raise ModelRefused(f"The module {module.get('type')} is code of the repository", hint=_SERVER_HINT)
        folder = str(module.get("path", ""))
        if kind[1] == "Pooling":
            pooling = _read_pooling(_read_json(read, f"{folder}/config.json") or {})
        elif kind[1] == "Dense":
            dense.append(_read_dense(files, read, folder, follows_pooling=pooling is not None))
        elif kind[1] == "Normalize" and pooling is not None:
            pooling = replace(pooling, is_normalized=True)
    if pooling is None:
        raise ModelRefused("The model has no pooling: it gives a vector for each token", hint=_SERVER_HINT)
    if options.pooling and options.pooling != pooling.mode:
        raise ModelRefused(f"The repository says pooling {pooling.mode}", hint="leave out --pooling")
    return pooling, tuple(dense)


def _read_pooling(table: Mapping[str, Any]) -> _Pooling:
    enabled = [name for name, value in table.items() if name.startswith("pooling_mode_") and value is True]
    enabled += [f"pooling_mode_{table['pooling_mode']}_tokens"] if isinstance(table.get("pooling_mode"), str) else []
    enabled = ["pooling_mode_cls_token" if name == "pooling_mode_cls_tokens" else name for name in enabled]
    if len(enabled) != 1 or enabled[0] not in _POOLING_MODES:
        names = ", ".join(enabled) or "none"
        raise ModelRefused(f"The pooling is not mean or cls ({names})", hint=_SERVER_HINT)
    width = table.get("word_embedding_dimension") or table.get("embedding_dimension") or 0
    return _Pooling(_POOLING_MODES[enabled[0]], int(width), table.get("include_prompt", True) is False)


def _read_dense(files: Sequence[str], read: Read, folder: str, *, follows_pooling: bool) -> DenseModule:
    if not follows_pooling:
        raise ModelRefused(f"The dense layer {folder} is before the pooling", hint=_SERVER_HINT)
    weights = f"{folder}/model.safetensors"
    if weights not in files:
        raise ModelRefused(f"The dense layer {folder} has its weights only as a pickle", hint=_SERVER_HINT)
    table = _read_json(read, f"{folder}/config.json") or {}
    activation = str(table.get("activation_function", ""))
    if activation not in _ACTIVATIONS:
        raise ModelRefused(f"The dense layer {folder} has the activation {activation}", hint=_SERVER_HINT)
    name = f"{folder}/config.json"
    inputs, outputs = _get_int(table, name, "in_features"), _get_int(table, name, "out_features")
    return DenseModule(weights, inputs, outputs, _ACTIVATIONS[activation])


def _read_prompts(table: Mapping[str, Any], options: FetchOptions) -> tuple[str, str]:
    """The prefixes of queries and passages: as the user says, else the prompts of the repository."""
    prompts = {str(name): str(text) for name, text in (table.get("prompts") or {}).items()}
    default = prompts.get(str(table.get("default_prompt_name")), "")
    query = options.query_prefix if options.query_prefix is not None else prompts.get("query", default)
    named = next((prompts[name] for name in _PASSAGE_PROMPTS if name in prompts), default)
    passage = options.passage_prefix if options.passage_prefix is not None else named
    is_known = "query" in prompts or not any(prompts.values()) or default or options.query_prefix is not None
    if not is_known:
        hint = "repeat with --query-prefix and --passage-prefix, as its model card says"
        raise ModelRefused(f"The repository has prompts, but none for queries: {', '.join(prompts)}", hint=hint)
    return query, passage


def _refuse_other_similarity(table: Mapping[str, Any], *, is_normalized: bool) -> None:
    """Vectors of unit length have the same order by dot product as by cosine; others do not."""
    similarity = table.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (similarity == "dot" and is_normalized):
        raise ModelRefused(f"The model compares vectors by {similarity}, not by cosine", hint=_CHOOSE_HINT)


def _refuse_lower_casing(tokenizer: Mapping[str, Any]) -> None:
    if '"lowercase": true' not in json.dumps(tokenizer.get("normalizer")):
        raise ModelRefused("The model lowers the case of its input, but its tokenizer does not", hint=_SERVER_HINT)


def _read_window(window: Mapping[str, Any], tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """The maximum number of tokens: as sentence-transformers is configured, else the smallest limit of the model."""
    if isinstance(window.get("max_seq_length"), int):
        return int(window["max_seq_length"])
    limits = [tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    known = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < _MAX_TOKENIZER_LENGTH]
    if not known:
        raise ModelRefused("The repository does not say how many tokens the model reads", hint=_SERVER_HINT)
    return min(known)


def _get_int(table: Mapping[str, Any], name: str, key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelRefused(f"{name} has no valid {key}", hint="choose another revision")
    return value
