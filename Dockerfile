# A server for one model folder:
#   docker build -t xclearn .
#   docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8080:8080 -v "$PWD/demo-model:/model:ro" xclearn
# Options of `xc serve` go behind the name of the image. A proxy that asks by another name needs `--allow-host NAME`.
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps -w /wheels /source

FROM python:3.13-slim
COPY constraints.txt /tmp/constraints.txt
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    wheel=$(echo /wheels/xclearn-*.whl) \
    && pip install --no-cache-dir -c /tmp/constraints.txt "$wheel[serve,languages]" \
    && useradd --system --no-create-home server
USER server
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz')"]
ENTRYPOINT ["xc", "serve", "/model", "--host", "0.0.0.0", "--port", "8080"]
