"""Objects of a store that are made of ranges of others.

`compose` carries out an `object_plan`: on S3 as a `multipart` upload, cut by `multipart_plan`, for
local files by a `local_copy`, elsewhere by streaming.
"""
