"""Shards on local disk, in the form they are searched in, shared by all processes.

`local_cache` keeps them within a size, `integrity` sees that a folder still holds what was put into
it, `in_use` keeps folders from being removed under a reader, and `places` says where a blob is
unpacked: in the cache, or apart from it.
"""
