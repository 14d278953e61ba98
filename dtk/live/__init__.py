"""A run while it goes: a dashboard in a notebook, labelled lines elsewhere, nothing in CI.

Runs in the kernel. `show` chooses and has the text view; `follow` keeps what the workers write in bounded memory;
`dashboard`, by `pictures`, shows it in a notebook.
"""
