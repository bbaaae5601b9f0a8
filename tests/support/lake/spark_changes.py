"""Changes of rows and files of a table, in Spark's SQL."""

MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}


COPY_ON_WRITE = dict.fromkeys(MERGE_ON_READ, "copy-on-write")


TURNED = "transform(embedding, x -> CAST(-x AS FLOAT))"


ROW_CHANGES = [
    "DELETE FROM {t} WHERE id % 10 = 3",
    "INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id < 6",
    f"UPDATE {{t}} SET embedding = {TURNED} WHERE id % 8 = 1",
    "DELETE FROM {t} WHERE id BETWEEN 15 AND 22",
    "MERGE INTO {t} t USING (SELECT id, word, embedding FROM {t} WHERE id % 6 = 0) s "
    "ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET embedding = s.embedding "
    "WHEN NOT MATCHED THEN INSERT (id, word, embedding) VALUES (s.id + 300, s.word, s.embedding)",
]


REWRITES = [
    "CALL {c}.system.rewrite_position_delete_files(table => '{n}', "
    "options => map('rewrite-all', 'true'))",
    "DELETE FROM {t} WHERE id = 28",
    "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))",
    "CALL {c}.system.rewrite_manifests('{n}')",
    "DELETE FROM {t} WHERE id IN (7, 29)",
    "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 4",
]
