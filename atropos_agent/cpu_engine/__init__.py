"""A small inference server for CPUs with the protocol of `vllm serve`.

It is for machines without a GPU, for demonstrations and for tests: one process, one model, one
worker thread that batches all requests continuously. It keeps the attention state of finished
conversations, so a conversation's next turn computes only its new tokens. PyTorch is
imported in this package alone.
"""
