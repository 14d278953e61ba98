"""In a worker: from its start to its result, and what is written down of each step beside the learner's code.

`worker` is the entry and `ship` loads the function; `hooks` and `loop` record what each replica did,
`states` what each step starts from and ends with, `follow` makes these steps again on one device.
"""
