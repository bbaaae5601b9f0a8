"""How indexes stand, as it was last found: kept in Airflow's own database, one document for each.

document  what is kept of an index, its trend included, within a fixed size
store     documents as Airflow Variables: tasks write them through the Task SDK
collect   find how indexes stand, each with a deadline of its own
tell      what a task that has worked on an index does at its end
"""
