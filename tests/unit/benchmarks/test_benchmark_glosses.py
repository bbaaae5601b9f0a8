import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import glosses
from benchmarks.glosses import HEADS, LAYERS, Tokenizer, encode, make, read_weights

PIECES = ["[UNK]", "[CLS]", "[SEP]", "a", "dog", "##s", "run", "##ning", ";", '"', "cafe"]
WIDE, INNER = HEADS * 2, 32


def weights():
    """Those of a small model, drawn."""
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (len(PIECES), WIDE),
        "embeddings.position_embeddings.weight": (16, WIDE),
        "embeddings.token_type_embeddings.weight": (2, WIDE),
        "embeddings.LayerNorm.weight": (WIDE,),
        "embeddings.LayerNorm.bias": (WIDE,),
    }
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        linear = {
            **{f"attention.self.{part}": (WIDE, WIDE) for part in ("query", "key", "value")},
            "attention.output.dense": (WIDE, WIDE),
            "intermediate.dense": (INNER, WIDE),
            "output.dense": (WIDE, INNER),
        }
        for name, shape in linear.items():
            shapes[f"{at}{name}.weight"], shapes[f"{at}{name}.bias"] = shape, shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{at}{name}.weight"] = shapes[f"{at}{name}.bias"] = (WIDE,)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write_model(folder: Path):
    header, data = {}, b""
    for name, values in weights().items():
        span = [len(data), len(data) + values.nbytes]
        header[f"bert.{name}"] = {"dtype": "F32", "shape": values.shape, "data_offsets": span}
        data += values.tobytes()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    (folder / "vocab.txt").write_text("\n".join(PIECES))


@pytest.mark.parametrize(
    ("sentence", "pieces"),
    [
        ("A dog", ["a", "dog"]),
        ('dogs running; "a dog"', ["dog", "##s", "run", "##ning", ";", '"', "a", "dog", '"']),
        ("a dogma café", ["a", "[UNK]", "cafe"]),
    ],
)
def test_words_are_cut_into_the_longest_pieces_that_are_known(sentence, pieces):
    numbers = Tokenizer(PIECES).numbers(sentence)
    assert [PIECES[number] for number in numbers] == ["[CLS]", *pieces, "[SEP]"]


def test_a_sentence_has_the_same_vector_alone_and_among_others():
    tokens = np.array([[1, 3, 4, 2], [1, 6, 7, 2], [1, 4, 5, 2]])
    together = encode(tokens, weights())
    alone = np.concatenate([encode(tokens[[at]], weights()) for at in range(3)])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert not np.allclose(together[0], together[1], atol=1e-3)


def test_each_gloss_gets_its_vector_in_the_order_of_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(glosses, "TOKENS", 8)
    for part in glosses.PARTS:
        line = f"1 00 {part[0]} 01 | a dog{'s' if part == 'verb' else ''}; "
        (tmp_path / f"data.{part}").write_text(f"  1 licence | none\n{line} \n")
    write_model(tmp_path)
    texts = glosses.glosses(tmp_path)
    assert make(tmp_path, texts, tmp_path / "out.parquet") == len(glosses.PARTS)
    found = pq.read_table(tmp_path / "out.parquet").column("embedding").to_pylist()
    tokens = np.array([Tokenizer(PIECES).numbers("a dogs;")])
    expected = encode(tokens, read_weights(tmp_path / "model.safetensors"))[0]
    assert np.allclose(found[1], expected, atol=1e-5)
    assert not np.allclose(found[0], expected, atol=1e-3)


def test_lines_on_packages_are_taken_once_each_in_their_order(tmp_path):
    packages = tmp_path / "available"
    packages.write_text(
        "Package: b\nDescription: dogs\n Description: not this\n\n"
        "Package: a\nDescription-md5: 12\nDescription:  a dog \n\nPackage: c\nDescription: dogs\n"
    )
    assert glosses.descriptions(packages) == ["dogs", "a dog"]
