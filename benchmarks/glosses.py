"""Make vectors of sentences with all-MiniLM-L6-v2, in numpy: no framework needed.

Of WordNet's glosses, for real vectors of a size that no set at hand has; and of the lines that
describe Debian's packages, on which nothing was tuned. The model is a BERT of six layers, whose
last states are averaged over a sentence's tokens and brought to unit length.
"""

import json
import math
import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import write_rows

PARTS = ("noun", "verb", "adj", "adv")
LAYERS, HEADS = 6, 12
LONGEST = 128
"""Tokens of a sentence, the two at its ends counted; the rest is left out."""
TOKENS = 4096
"""Of the sentences that are encoded at once, which all are equally long."""
NARROW = 1e-12

Weights = dict[str, NDArray[np.float32]]
Matrix = NDArray[np.float32]


def glosses(wordnet: Path) -> list[str]:
    """Return the gloss of each synset, in the order of WordNet's files `data.noun` and so on."""
    found = []
    for part in PARTS:
        for line in (wordnet / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if not line.startswith(" "):  # as the licence before the synsets does
                found.append(line.split("|", 1)[1].strip())
    return found


def descriptions(packages: Path) -> list[str]:
    """Return the lines that describe packages, each once, in the order of what apt knows.

    Args:
        packages: what `apt-cache dumpavail` prints.
    """
    mark = "Description: "
    lines = packages.read_text(encoding="utf-8").splitlines()
    told = (line.removeprefix(mark).strip() for line in lines if line.startswith(mark))
    return list(dict.fromkeys(filter(None, told)))


class Tokenizer:
    """WordPiece without case or accents.

    Args:
        vocabulary: pieces, by number.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._known: dict[str, list[int]] = {}

    def numbers(self, sentence: str) -> list[int]:
        """Return the numbers of a sentence's pieces, between those that begin and end it."""
        plain = unicodedata.normalize("NFD", sentence.lower())
        plain = "".join(letter for letter in plain if unicodedata.category(letter) != "Mn")
        pieces = [
            piece for word in re.findall(r"\w+|[^\w\s]|_", plain) for piece in self._pieces(word)
        ]
        return [self._numbers["[CLS]"], *pieces[: LONGEST - 2], self._numbers["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = list(self._longest_first(word)) or [self._numbers["[UNK]"]]
        return self._known[word]

    def _longest_first(self, word: str) -> Iterator[int]:
        found, at = [], 0
        while at < len(word):
            mark = "##" if at else ""
            ends = range(len(word), at, -1)
            end = next((end for end in ends if mark + word[at:end] in self._numbers), None)
            if end is None:
                return
            found.append(self._numbers[mark + word[at:end]])
            at = end
        yield from found


def read_weights(path: Path) -> Weights:
    """Return the tensors of a safetensors file that are float32."""
    data = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    found = {}
    for name, told in header.items():
        if name != "__metadata__" and told["dtype"] == "F32":
            first, last = told["data_offsets"]
            values = data[8 + size + first : 8 + size + last].view(np.float32)
            found[name.removeprefix("bert.")] = np.array(values).reshape(told["shape"])
    return found


def encode(tokens: NDArray[np.int64], weights: Weights) -> Matrix:
    """Return the vectors of sentences of equal length, (n, 384) float32, of unit length.

    Args:
        tokens: (n, t) int64.
        weights: of the model.
    """
    sentences, length = tokens.shape
    at = "embeddings."
    states = weights[f"{at}word_embeddings.weight"][tokens]
    states += weights[f"{at}position_embeddings.weight"][:length]
    states += weights[f"{at}token_type_embeddings.weight"][0]
    flat = states.reshape(-1, states.shape[-1])
    flat = _normed(flat, weights, f"{at}LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        mixed = _attended(flat, sentences, weights, f"{at}attention.self.")
        mixed = _linear(mixed, weights, f"{at}attention.output.dense")
        flat = _normed(flat + mixed, weights, f"{at}attention.output.LayerNorm")
        inner = _linear(flat, weights, f"{at}intermediate.dense")
        _gelu(inner.ravel())
        inner = _linear(inner, weights, f"{at}output.dense")
        flat = _normed(flat + inner, weights, f"{at}output.LayerNorm")
    means: Matrix = flat.reshape(sentences, length, -1).mean(axis=1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return means


def _linear(states: Matrix, weights: Weights, name: str) -> Matrix:
    found: Matrix = states @ weights[f"{name}.weight"].T
    found += weights[f"{name}.bias"]
    return found


def _normed(states: Matrix, weights: Weights, name: str) -> Matrix:
    states = states - states.mean(axis=1, keepdims=True)
    states /= np.sqrt((states * states).mean(axis=1, keepdims=True) + np.float32(NARROW))
    states *= weights[f"{name}.weight"]
    states += weights[f"{name}.bias"]
    return states


def _attended(states: Matrix, sentences: int, weights: Weights, name: str) -> Matrix:
    def by_head(part: str) -> Matrix:
        found = _linear(states, weights, f"{name}{part}")
        return found.reshape(sentences, -1, HEADS, found.shape[1] // HEADS).transpose(0, 2, 1, 3)

    query, key, value = map(by_head, ("query", "key", "value"))
    scores = query @ key.swapaxes(-1, -2) / np.float32(math.sqrt(query.shape[-1]))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    found: Matrix = (scores @ value).transpose(0, 2, 1, 3).reshape(len(states), -1)
    return found


@numba.njit(nogil=True)
def _gelu(values: Matrix) -> None:
    for at in range(len(values)):
        value = values[at]
        values[at] = 0.5 * value * (1.0 + math.erf(value * 0.7071067811865476))


def make(model: Path, texts: Sequence[str], to: Path) -> int:
    """Write the vectors of sentences to a Parquet file, and return their number.

    Args:
        model: folder with `model.safetensors` and `vocab.txt`.
        texts: the sentences.
        to: the file; columns `id` and `embedding`.
    """
    weights = read_weights(model / "model.safetensors")
    tokenizer = Tokenizer((model / "vocab.txt").read_text(encoding="utf-8").splitlines())
    equally_long: dict[int, list[int]] = defaultdict(list)
    tokens = [tokenizer.numbers(text) for text in texts]
    for number, found in enumerate(tokens):
        equally_long[len(found)].append(number)
    vectors = np.empty((len(texts), weights["embeddings.word_embeddings.weight"].shape[1]), "f4")
    began, done, total = time.monotonic(), 0, sum(map(len, tokens))
    for length, numbers in sorted(equally_long.items()):
        step = max(1, TOKENS // length)
        for first in range(0, len(numbers), step):
            some = numbers[first : first + step]
            vectors[some] = encode(np.array([tokens[number] for number in some]), weights)
            done += length * len(some)
        print(
            f"{done:,} of {total:,} tokens in {time.monotonic() - began:.0f} s",
            end="\r",
            flush=True,
        )
    print()
    write_rows(vectors, to)
    return len(vectors)
