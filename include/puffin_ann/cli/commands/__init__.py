"""The commands of `puffin-ann`, one file each, named as they are typed."""
