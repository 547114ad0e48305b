"""Workers in other processes, on other machines: a task goes out, a judged rollout or a typed failure comes back.

`pool.py` is the driver's side and `process.py` the worker's; `messages.py` has all messages between them. Their
transport is `on_ray.py`, the only module that knows Ray.
"""
