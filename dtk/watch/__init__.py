"""What workers do while a run lasts, which failed first, and who waits for whom.

Runs in the kernel, on files, processes and ports alone: a worker that hangs needs to say nothing. `reader` reads what
they write, for `watch` (who failed first), `signs` (what each does, also by its Python stack) and the live view;
`waiting` finds out who waits for whom; `explain` words errors.
"""
