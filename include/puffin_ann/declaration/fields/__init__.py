"""What a declaration is made of, all built on `model`.

`options`, `spark`, `airflow_tasks`, `parameters`, `names` and `schedules` are its parts;
`complaints` says in words what is not allowed.
"""
