"""The page *Vector indexes* of Airflow's user interface: all indexes, and each by itself.

plugin        puts the page into Airflow's navigation; every Airflow process imports it
application   answers requests: shows each user the indexes whose DAGs they may read
permissions   what a user may read and start, as Airflow's auth manager has it
database      reads documents, DAGs and runs from Airflow's database, all in one go
rows          what is shown of an index: its state in words, from a document and its runs
query         searches an index by a row's key: the only thing that asks a catalog
markup        makes HTML; every text in it is escaped
figures       numbers, times and bytes as people read them
charts        pictures of figures, as SVG
overview_page the page of all indexes
index_page    the page of one index
static        what the browser loads: a style sheet and two scripts
"""
