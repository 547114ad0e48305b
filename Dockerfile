# The driver of a run in an image. FROM any Debian with Python 3.11 or later: `--build-arg BASE=…`.
#     docker build -t atropos-agent .                      as a member of the group docker: the daemon starts the sandboxes
#     docker build -t atropos-agent:root --target root .   as root, with crun: see docs/hosts.md, "The driver in a container"
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS root
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates crun git openssh-client python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
ARG EXTRAS=""
RUN python3 -m venv /opt/atropos-agent \
    && /opt/atropos-agent/bin/pip install --no-cache-dir -c /src/requirements.lock "/src${EXTRAS}" \
    && rm -r /src
ENV PATH=/opt/atropos-agent/bin:$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
ENTRYPOINT ["atropos-agent"]
CMD ["--help"]

FROM root
ARG UID=1000
RUN useradd --uid ${UID} --create-home atropos && chown atropos /data
USER atropos
