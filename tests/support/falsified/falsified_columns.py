"""Lies of the columns that are kept beside rows: how many, of what, and of which rows.

Not that a column has another value: nobody could tell without the table.
"""

import io
from dataclasses import replace

import numpy as np

from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.shards import columns
from tests.support.falsified.index_file import COUNTS, LARGE, NotApplicable, lie, set_record
from tests.support.falsified.mutation import sections_of

TYPES = ("long", "int", "double", "string", "boolean", "decimal(38, 2)", "fixed[4096]", "uuid", "x")


@lie
def head_of_columns(file, rng):
    blob = file.some(rng, columns)
    name = rng.choice(("rows", "block_rows", "columns"))
    change = rng.choice((lambda n: n + 1, lambda n: n - 1, rng.choice(COUNTS)))
    set_record(blob, "head", blob.module.HEAD, rng, **{name: change})


@lie
def field_of_a_column(file, rng):
    blob = file.some(rng, columns)
    set_record(blob, "colh", columns.COLUMN, rng, field_id=rng.choice(COUNTS))


@lie
def bits_of_a_column(file, rng):
    blob = file.some(rng, columns)
    bits = rng.choice((0, 1, 8, 32, 64, 128, 1 << 16))
    set_record(blob, "colh", columns.COLUMN, rng, bits=bits)


@lie
def type_of_a_column(file, rng):
    blob = file.some(rng, columns)
    types = list(strings.decode(blob.sections["colt"], "colt"))
    types[rng.randrange(len(types))] = rng.choice(TYPES)
    blob.sections["colt"] = strings.encode(types)


@lie
def place_of_values(file, rng):
    blob = file.some(rng, columns)
    offsets = blob.records("colo", "<u8")
    offsets[rng.randrange(len(offsets))] = rng.choice(LARGE)
    blob.sections["colo"] = offsets.tobytes()


@lie
def locator_of_a_value(file, rng):
    """Where no covered file is, or no row group of it, or no row of that."""
    blob = file.some(rng, columns)
    found = columns.read(io.BytesIO(blob.content()))
    if not found.locators.shape[1]:
        raise NotApplicable
    locators = found.locators.copy()
    part, number = rng.choice(
        ((0, 2**31), (0, 1000), (1, 1000), (1, 2**32 - 1), (2, 10_000), (2, 2**31), (2, 2**32 - 1))
    )
    locators[part, rng.randrange(locators.shape[1])] = np.uint32(number)
    out = io.BytesIO()
    columns.write(replace(found, locators=locators), out)
    blob.sections = sections_of(out.getvalue(), columns.KIND)
