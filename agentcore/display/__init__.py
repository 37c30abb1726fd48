"""What a person sees of a run: `terminal` shows it in a terminal, `notebook` in the output of a notebook's cell.

Both have a function `show` that takes an agent or a stream. Texts are shown harmless: control characters are made
visible, HTML is escaped. What is stored is never changed.
"""
