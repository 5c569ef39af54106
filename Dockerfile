# One image for `api`, `worker`, `migrate` and every other command. Pass the base image with its digest, which
# changes with every update of the base. docs/operate/kubernetes.md shows how to find it.
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… --tag payintent .
# `--build-arg WHEEL=dist/payintent-….whl` installs a release wheel, which contains the packages for
# merchants. Otherwise the wheel is built from this folder, without those packages.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
ARG PYTHON_IMAGE
RUN case "$PYTHON_IMAGE" in *@sha256:*) ;; *) echo "PYTHON_IMAGE has no digest: NAME:TAG@sha256:…" >&2; exit 1 ;; esac
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

COPY requirements/build.txt requirements/run.txt requirements/
# The service's environment has no pip. The build environment's pip installs packages into it.
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv --without-pip /opt/payintent \
    && /build/bin/pip --python /opt/payintent/bin/python install --require-hashes -r requirements/run.txt

COPY . .
ARG WHEEL
RUN if [ -z "$WHEEL" ]; then /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .; fi \
    && /build/bin/pip --python /opt/payintent/bin/python install --no-deps --no-index ${WHEEL:-/wheels/*.whl}

FROM ${PYTHON_IMAGE}
# A running service does not need a package installer.
RUN python -m pip uninstall --yes --quiet setuptools wheel pip
COPY --from=build /opt/payintent /opt/payintent
ENV PATH=/opt/payintent/bin:$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 10001:10001
EXPOSE 8080
# This check is for the API. deploy/compose.yaml contains the check for the worker.
HEALTHCHECK --interval=10s --timeout=5s --start-period=70s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["payintent"]
CMD ["api", "--host", "0.0.0.0", "--port", "8080"]
