"""What is asked of an index: a `question`, and `checks` that refuse what cannot be asked."""
