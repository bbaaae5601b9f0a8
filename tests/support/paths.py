"""Where things lie in the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
FUZZ = ROOT / "tests" / "fuzz"
SAMPLE = ROOT / "include" / "sample_data" / "glove-100d-20k.parquet"
"""20,000 words with GloVe vectors of 100 dimensions."""
