# One image for every process of this project that compose.yaml runs: migration, code location, webserver, daemon.
# It holds the wheel and what the wheel needs, not the embedded servers.

FROM python:3.13.9-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY . .
RUN python -m venv /opt/memory_pipeline \
    && pip wheel --no-deps --wheel-dir /wheels . \
    && /opt/memory_pipeline/bin/pip install --only-binary :all: -c constraints.txt /wheels/*.whl \
    && /opt/memory_pipeline/bin/pip uninstall --yes pip

FROM python:3.13.9-slim-bookworm
# No login, no shell, no home but the state: DAGSTER_HOME lies in it, and is all that is ever written.
RUN groupadd --system --gid 10001 memory_pipeline \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/memory_pipeline \
       --shell /usr/sbin/nologin memory_pipeline \
    && install --directory --owner=10001 --group=10001 --mode=0750 /var/lib/memory_pipeline
COPY --from=build /opt/memory_pipeline /opt/memory_pipeline
ENV PATH=/opt/memory_pipeline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MEMORY_STATE=/var/lib/memory_pipeline \
    MEMORY_SECRETS_DIR=/run/secrets
USER 10001:10001
WORKDIR /var/lib/memory_pipeline
ENTRYPOINT ["memory-pipeline"]
CMD ["--help"]
