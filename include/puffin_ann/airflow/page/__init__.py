"""The page *Vector indexes* of Airflow's user interface: a row for each declared index.

plugin        puts the page into Airflow's navigation; every Airflow process imports it
application   answers requests: shows each user the indexes whose DAGs they may read
rounds        looks for the rows in the background, in a few threads
rows          finds one row: a declaration, and the state of what is published
html          makes the page of the rows; every text is escaped
"""
