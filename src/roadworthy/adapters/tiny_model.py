"""A real model small enough to serve anywhere: Llama-shaped, random weights, a byte-level tokenizer.

It proves plumbing, not language: vLLM loads it like any checkpoint (``config.json``, ``model.safetensors``,
``tokenizer.json``, a chat template) and answers in noise. The same seed gives the same bytes. Standard library only,
so that ``up`` can build it on first use. Its shape is the catalog's ``tiny``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roadworthy.core.errors import ProbeError

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 512, 256, 2, 4, 2, 64, 512
MAX_POSITION_TOKENS = 8192
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>")
_FREQUENT_LETTERS = "etaoinshrdlucmfw"

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": MAX_POSITION_TOKENS,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": VOCAB - len(SPECIAL_TOKENS),
    "eos_token_id": VOCAB - len(SPECIAL_TOKENS) + 1,
    "torch_dtype": "bfloat16",
}
CHAT_TEMPLATE = (
    "{{ '<|bos|>' }}{% for message in messages %}"
    "{{ ('<|assistant|>' if message['role'] == 'assistant' else '<|user|>') + message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def cache_folder() -> Path:
    """Where ``up`` keeps the built model: ``$XDG_CACHE_HOME/roadworthy/tiny-model`` or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "roadworthy" / "tiny-model"


def ensure_tiny_model(folder: Path) -> Path:
    """``folder`` with a complete tiny checkpoint, built now unless it is there already.

    The build happens in a folder beside it and is moved in one step, so an interrupted build leaves no half model.
    Raises ProbeError when the place cannot be written.
    """
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tiny-model-") as scratch:
            built = Path(scratch) / "model"
            built.mkdir()
            _write_checkpoint(built)
            if folder.exists():
                shutil.rmtree(folder)
            built.rename(folder)
    except OSError as error:
        raise ProbeError(
            f"{folder}: cannot build the tiny model there: {error.strerror or error}",
            hint="free some space, or point XDG_CACHE_HOME at a folder that can be written",
        ) from error
    return folder


def _write_checkpoint(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(_safetensors(seed=0))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()), encoding="utf-8")
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[1],
        "model_max_length": MAX_POSITION_TOKENS,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=1), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1), encoding="utf-8")


def _tensor_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield f"{prefix}.self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{prefix}.self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{prefix}.self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{prefix}.mlp.gate_proj.weight", (INTERMEDIATE, HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (INTERMEDIATE, HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN, INTERMEDIATE)
        yield f"{prefix}.input_layernorm.weight", (HIDDEN,)
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def _safetensors(seed: int) -> bytes:
    """The weights in the safetensors layout: header length, JSON header, then raw little-endian BF16."""
    dice = random.Random(seed)
    header: dict[str, object] = {}
    data = bytearray()
    for name, shape in _tensor_shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        start = len(data)
        data += _ones_bf16(count) if len(shape) == 1 else _noise_bf16(count, dice)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, len(data)]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + bytes(data)


def _ones_bf16(count: int) -> bytes:
    return b"\x80\x3f" * count


def _noise_bf16(count: int, dice: random.Random) -> bytes:
    """Values of either sign in [2**-5, 2**-4): a random sign and mantissa under one fixed exponent."""
    exponent = 127 - 5
    low = bytes((exponent & 1) << 7 | byte & 0x7F for byte in range(256))
    high = bytes(byte & 0x80 | exponent >> 1 for byte in range(256))
    noise = bytearray(2 * count)
    noise[0::2] = dice.randbytes(count).translate(low)
    noise[1::2] = dice.randbytes(count).translate(high)
    return bytes(noise)


def _byte_alphabet() -> list[str]:
    """The printable stand-in of each byte value, as byte-level BPE tokenizers write it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]


def _tokenizer() -> dict[str, object]:
    """A byte-level BPE: every byte, the most frequent letter pairs as merges, and four special tokens."""
    alphabet = _byte_alphabet()
    pairs = [a + b for a in _FREQUENT_LETTERS for b in _FREQUENT_LETTERS]
    pairs = pairs[: VOCAB - len(alphabet) - len(SPECIAL_TOKENS)]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *pairs])}
    first_special = len(vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": first_special + index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, token in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [f"{pair[0]} {pair[1]}" for pair in pairs],
        },
    }
