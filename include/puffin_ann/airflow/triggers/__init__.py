"""What the triggerer waits for.

    table   a table's data has changed; a change has waited for as long as an index lets it
    index   an index has fallen behind its table; so many of its rows were deleted

Tables are looked up in PyIceberg's configuration, as the tasks do. DAG files do not import these
modules, which need PyIceberg: they name the classes. Airflow's database has these names while
something waits.
"""
