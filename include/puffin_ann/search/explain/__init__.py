"""How a search was answered, told to whoever asks.

`recorder` notes what parts of a search do, and by `stages` how long they take, `explanation` is
what comes of it, `tree` shows that.
"""
