"""
Makes all-minilm-l6-v2.json: vectors of fifty texts by an implementation that shares nothing with the product: BERT in NumPy float32, text cut by
the `tokenizers` package. Run it as

    python3 -m pip install numpy tokenizers && python3 make_minilm_reference.py FOLDER > all-minilm-l6-v2.json

FOLDER has config.json, tokenizer.json and model.safetensors of sentence-transformers/all-MiniLM-L6-v2.
"""

import base64
import json
import math
import struct
import sys

import numpy as np
from tokenizers import Tokenizer

LIMIT = 256
LONG = (
    "The river had been rising since before dawn, and by the time the ferryman came down to the landing with his lantern the lowest of the "
    "steps was gone. He stood a while and listened. Somewhere out in the dark a tree was turning over and over in the current, knocking "
    "against the piles of the old bridge, and each knock came back from the far bank a moment later, as if another river were answering. "
)
TEXTS = [
    "A red car", "a blue sky", "red car", "blue sky", "a", "The", "Hello, world!", "hello world", "HELLO WORLD", "Hello\tworld\r\n",
    "What is the capital of France?", "Paris is the capital of France.", "Berlin ist die Hauptstadt von Deutschland.",
    "La capitale de la France est Paris.", "Die Straße ist naß und der Fluß tief.", "El niño comió una manzana en el jardín.",
    "Москва — столица России.", "東京は日本の首都です。", "北京是中国的首都", "서울은 대한민국의 수도입니다", "القاهرة عاصمة مصر", "ירושלים",
    "नई दिल्ली भारत की राजधानी है", "กรุงเทพ", "I love this film!", "I hate this film.", "This movie was not bad at all.",
    "def add(a, b):\n    return a + b", "SELECT name FROM users WHERE id = 42;", "<div class=\"x\">text</div>", "{\"key\": [1, 2, 3]}",
    "https://example.org/path?query=1#part", "user@example.org", "3.14159 2.71828 1.41421", "$19.99 + 7% = ?", "E = mc²", "∀x∈ℝ: x² ≥ 0",
    "😀 👩‍👩‍👧 🚀", "don't won't can't", "U.S.A. and U.K.", "naïve café résumé Ångström", "supercalifragilisticexpialidocious", "x" * 120,
    "...---...", "one two three four five six seven eight nine ten", "The quick brown fox jumps over the lazy dog. " * 5,
    "Machine learning is a field of study in artificial intelligence.", "Gradient descent finds a minimum of a differentiable function.",
    LONG, LONG * 2,
]


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
    return tensors


def norm(x, weights, name, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(epsilon)) * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def gelu(x):
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return (x * 0.5 * (1 + erf(x / math.sqrt(2)))).astype(np.float32)


def embed(token_ids, weights, config):
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]
    count = len(token_ids)
    x = weights["embeddings.word_embeddings.weight"][token_ids]
    x = x + weights["embeddings.position_embeddings.weight"][:count] + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, weights, "embeddings.LayerNorm", epsilon)
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, weights, f"{at}attention.self.{side}").reshape(count, heads, -1).transpose(1, 0, 2)
            for side in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        seen = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        seen = seen.transpose(1, 0, 2).reshape(count, -1)
        x = norm(x + linear(seen, weights, at + "attention.output.dense"), weights, at + "attention.output.LayerNorm", epsilon)
        inner = gelu(linear(x, weights, at + "intermediate.dense"))
        x = norm(x + linear(inner, weights, at + "output.dense"), weights, at + "output.LayerNorm", epsilon)
    vector = x.mean(axis=0)
    return (vector / np.linalg.norm(vector)).astype("<f4")


def main(folder):
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(LIMIT)
    weights = load(f"{folder}/model.safetensors")
    entries = []
    for text in TEXTS:
        token_ids = tokenizer.encode(text).ids
        vector = embed(token_ids, weights, config)
        entries.append({"text": text, "tokenIds": token_ids, "vector": base64.b64encode(vector.tobytes()).decode()})
    print(json.dumps({"model": "all-minilm-l6-v2", "dimensions": config["hidden_size"], "texts": entries}, ensure_ascii=True, indent=1))


main(sys.argv[1])
