"""Images that stand in for those of docker-compose.yaml where no image registry is reached.

    make stand-in-images

makes them under the very names that docker-compose.yaml and Dockerfile use, so that those files run
as they are. Each has a Dockerfile here, beside what it copies; what they are made of comes from
Debian, PyPI and Maven by the ordinary clients.
"""
