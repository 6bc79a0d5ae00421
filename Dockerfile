# The images of the command and of the watcher (docs/watcher.md), built from the root of the repository:
#   docker build --target command -t REGISTRY/outscaler:RELEASE .
#   docker build --target watcher -t REGISTRY/outscaler-watcher:RELEASE .
# The packages are pinned with their hashes. For the base image, give a digest: --build-arg PYTHON=python@sha256:…
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/outscaler/outscaler"

FROM base AS command-packages
COPY requirements-cli.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary=:all: --target /packages -r /requirements.txt

FROM base AS watcher-packages
COPY infra/watcher/requirements.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary=:all: --target /packages -r /requirements.txt

FROM base AS watcher
COPY --from=watcher-packages /packages /watcher
COPY chalicelib /watcher/chalicelib
COPY infra/watcher /watcher/infra/watcher
RUN python -m compileall -q /watcher/chalicelib /watcher/infra
WORKDIR /watcher
USER 65532:65532
ENTRYPOINT ["python", "-m", "infra.watcher"]

FROM base AS command
COPY --from=command-packages /packages /outscaler
COPY chalicelib /outscaler/chalicelib
COPY infra/kubernetes /outscaler/chalicelib/cli/files/kubernetes
RUN python -m compileall -q /outscaler/chalicelib
ENV PYTHONPATH=/outscaler
WORKDIR /work
USER 65532:65532
ENTRYPOINT ["python", "-m", "chalicelib"]
