"""Whether each step of a run was computed as one device computes it, from the same state.

`followers` says what a follower runs, and reads what it wrote; `steps` judges that. The recording of states and the
follower itself are in the worker's rooms: `dtk.recording.states`, `dtk.recording.follow`.
"""
