"""What the stages of a run work with.

`workspace` is the table, the staging folder and the plan, opened first by every stage. `leases` let
one run at a time write an index, `heartbeat` shows that a run works, `retry` does again what
another commit overtook. `runners` say where tasks run, and `run_each` does a stage's work there,
task by task; `progress` tells how far that is. `scratch` are folders on local disk, `run_ids` names
for runs, and `object_names` tells our objects from those of others.
"""
