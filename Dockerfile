# logitd on the CPU: a virtual environment built in one stage, copied onto the same slim base in the next.
#
#   docker build --build-arg TORCH_PIP_ARGS="--index-url URL" -t logitd .
#
# URL is PyTorch's index of CPU wheels. Without it torch comes from pip's default index, which on Linux/x86-64
# is the CUDA build: gigabytes this image has no use for.

ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# Extra arguments of the `pip install` that brings torch, and of no other.
ARG TORCH_PIP_ARGS=""
# The environment has no pip of its own: the base's pip installs into it and stays behind.
ENV PIP_PYTHON=/opt/logitd/bin/python \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY constraints.txt ./
# torch first: its layer changes with constraints.txt only. What serves to build against torch or to test it goes.
RUN python -m venv --without-pip /opt/logitd \
    && pip install --no-cache-dir -c constraints.txt ${TORCH_PIP_ARGS} torch \
    && torch=$(echo /opt/logitd/lib/python3*/site-packages/torch) \
    && rm -rf "$torch/include" "$torch/test" \
    && find "$torch" -path "$torch/bin/*" ! -name torch_shm_manager -delete
RUN useradd --no-log-init --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin logitd
# The compiler that the fast kernels are built with stays in this stage.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE ./
COPY kernels kernels
COPY service service
RUN pip install --no-cache-dir -c constraints.txt '.[server]' \
    && /opt/logitd/bin/python -c "import logitd_kernels._native"

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="logitd" \
      org.opencontainers.image.description="Turns logits into tokens over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing runs in this stage: it is the base, two lines that name the user, and the environment.
COPY --from=build /etc/passwd /etc/group /etc/
COPY --from=build /opt/logitd /opt/logitd
ENV PATH=/opt/logitd/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    LOGITD_HOST=0.0.0.0 \
    LOGITD_PORT=8000
# Numeric, so that Kubernetes' runAsNonRoot can tell.
USER 10001:10001
EXPOSE 8000
# http.client and not urllib: a proxy in the environment must not answer for the service.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['LOGITD_PORT']), timeout=2); c.request('GET', '/health/ready'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["logitd"]
CMD ["serve"]
