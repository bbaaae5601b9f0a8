#!/bin/sh
# As that of the image: what it passes to `server` comes before what it is given.
[ "$1" = server ] || exec /opt/seaweedfs/bin/weed "$@"
shift
exec /opt/seaweedfs/bin/weed server -dir=/data -master.volumePreallocate \
    -master.volumeSizeLimitMB=1024 "$@"
