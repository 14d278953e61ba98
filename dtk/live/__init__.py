"""A run while it goes: a dashboard in a notebook, labelled lines elsewhere, nothing in CI.

Runs in the kernel. `show` chooses, `follow` and, for the last seconds, `lately` keep what the workers write in bounded
memory; `dashboard`, by `pictures` and `strips`, and `text` show it.
"""
