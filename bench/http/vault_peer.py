"""Runs markdown-vault-mcp (the peer) on a directory of pages, in an environment of its own.

    PEER bench/http/vault_peer.py PAGES STATE MODEL index
    PEER bench/http/vault_peer.py PAGES STATE MODEL serve PORT

All code is its own, and all settings are its defaults except the model: all-MiniLM-L6-v2, whose files are read from
MODEL.
"""

import json
import os
import sys
from pathlib import Path

TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def make_model_directory(carrier: Path, to: Path) -> Path:
    """The model's files under the names that fastembed looks for."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json"):
        target = to / Path(name).name
        if not target.exists():
            target.symlink_to((carrier / name).resolve())
    (to / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (to / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 256, **TOKENS}))
    (to / "special_tokens_map.json").write_text(json.dumps(TOKENS))
    return to


def main() -> None:
    pages, state, carrier, what, *rest = sys.argv[1:]
    prefix = "MARKDOWN_VAULT_MCP_"
    os.environ |= {
        f"{prefix}SOURCE_DIR": pages,
        f"{prefix}READ_ONLY": "true",
        f"{prefix}INDEX_PATH": f"{state}/index.db",
        f"{prefix}STATE_PATH": f"{state}/state.json",
        f"{prefix}EMBEDDINGS_PATH": f"{state}/embeddings",
        f"{prefix}EMBEDDING_PROVIDER": "fastembed",
        f"{prefix}FASTEMBED_MODEL": "sentence-transformers/all-MiniLM-L6-v2",
        f"{prefix}FILE_WATCHER": "false",
        "HF_HUB_OFFLINE": "1",
    }
    from fastembed.common.model_management import ModelManagement

    found = make_model_directory(Path(carrier), Path(state) / "model")
    ModelManagement.download_model = classmethod(lambda *_, **__: found)  # type: ignore[method-assign]
    from markdown_vault_mcp.cli import main as peer

    sys.argv = ["markdown-vault-mcp", what] + (["--transport", "http", "--port", rest[0]] if rest else [])
    peer()


if __name__ == "__main__":
    main()
