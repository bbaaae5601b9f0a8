"""Compile the kernels of searches, builds and refreshes ahead of their first use.

Kernels are compiled for the types of their arguments, which are found by use: `exercises` builds,
refreshes and searches small indexes, in groups that share little. `compile` has `worker` do that in
processes beside each other, for this machine's processor, and has what was found compiled for the
other levels of vector instructions that are asked for.

What is made goes into a folder that processes of this installation look in, see `kernel_folders`.
"""
