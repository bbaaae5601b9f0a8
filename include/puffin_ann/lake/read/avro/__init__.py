"""Avro files of others, read with bounds: `safe_avro` opens one, `schema` and `blocks` check it."""
