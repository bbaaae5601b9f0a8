"""The page *Vector indexes* of Airflow's user interface: all indexes, and each by itself.

plugin        puts the page into Airflow's navigation; every Airflow process imports it
application   answers requests: shows each user the indexes whose DAGs they may read
permissions   what a user may read and start, as Airflow's auth manager has it
database      reads documents, DAGs and runs from Airflow's database, all in one go
rows          what is shown of an index: its state in words, from a document and its runs
query         searches an index by a row's key: the only thing that asks a catalog
markup        makes HTML; every text in it is escaped
figures       numbers, times and bytes as people read them
cards         cards, which the page of one index is made of
charts        small pictures of figures, and of shards and versions, as SVG
over_time     figures over time: a card for each, which uPlot draws, and the table it draws from
overview_page the page of all indexes
index_page    the page of one index
static        what the browser loads: a style sheet and scripts, ours and uPlot's (vendored.txt)
"""
