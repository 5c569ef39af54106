# One image for `api`, `worker`, `migrate` and every other command: docker build -t payintent .
# Name the base by its digest (FROM python@sha256:…) where builds must repeat to the byte.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv /opt/payintent \
    && /opt/payintent/bin/pip install --require-hashes -r requirements/run.txt

COPY . .
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/payintent/bin/pip install --no-deps --no-index dist/*.whl

FROM python:3.11-slim-bookworm
COPY --from=build /opt/payintent /opt/payintent
ENV PATH=/opt/payintent/bin:$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 10001:10001
EXPOSE 8080
# Of the API; the worker's is in deploy/compose.yaml.
HEALTHCHECK --interval=10s --timeout=5s --start-period=70s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["payintent"]
CMD ["api", "--host", "0.0.0.0", "--port", "8080"]
