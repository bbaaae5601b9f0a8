"""Everything that knows Spark.

`session` says how Spark starts our Python workers, `runner` runs the tasks of a stage on executors.
`worker_daemon` is the process that workers are forked from, `worker_imports` what it imports for
them, `daemon_prestart` starts it while the JVM starts, and `import_path` has PySpark imported from
its folder rather than from its archive.
"""
