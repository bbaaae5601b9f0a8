"""What is asked of an index: a `question`, and `checks` that refuse what cannot be asked.

`queries` takes vectors as arrays, lists and columns of Arrow's have them.
"""
