# The operator's image: one static program, the authorities of the web, a user without rights, and nothing else. The
# command `cargo xtask image` makes the same without an engine, and the same bytes each time.
FROM rust:1.95.0-slim-trixie AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git libprotobuf-dev protobuf-compiler \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# Builds it, and refuses what is not static, stripped and small.
RUN cargo xtask release \
 && mkdir --parents /image/usr/local/bin /image/etc/ssl/certs \
 && mkdir --mode=1777 /image/tmp \
 && cp target/*/release/etcd-operator /image/usr/local/bin/ \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
 && echo 'nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin' > /image/etc/passwd \
 && echo 'nonroot:x:65532:' > /image/etc/group \
 && echo 'hosts: files dns' > /image/etc/nsswitch.conf

FROM scratch
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="etcd-operator" \
      org.opencontainers.image.description="Runs etcd clusters on Kubernetes, backs them up and restores them." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/etcd-operator"]
