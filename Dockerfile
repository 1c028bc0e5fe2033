# docker build --target backup-webhook .       (or backup-controller, backup-mover; or buildah, podman)
# For both architectures: docker buildx build --platform linux/amd64,linux/arm64 ... Nothing runs under emulation: the compiler and
# the packages are those of the machine that builds, what is compiled and unpacked is of the platform.
FROM --platform=$BUILDPLATFORM rust:1.95-slim-trixie AS build
ARG TARGETARCH
WORKDIR /src
RUN dpkg --print-architecture > /native \
 && if [ "$TARGETARCH" != "$(cat /native)" ]; then \
      apt-get update \
   && apt-get install --yes --no-install-recommends "crossbuild-essential-$TARGETARCH" \
   && rm -rf /var/lib/apt/lists/*; \
    fi
COPY . .
# The programs lie in /src/target/release, whatever they are for.
RUN case "$TARGETARCH" in \
      amd64) target=x86_64-unknown-linux-gnu; linker=x86_64-linux-gnu-gcc ;; \
      arm64) target=aarch64-unknown-linux-gnu; linker=aarch64-linux-gnu-gcc ;; \
      *) echo "no programs are built for $TARGETARCH: use --platform linux/amd64 or linux/arm64" >&2; exit 1 ;; \
    esac \
 && if [ "$TARGETARCH" != "$(cat /native)" ]; then \
      rustup target add "$target" \
   && export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$linker" \
   && export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$linker"; \
    fi \
 && cargo build --release --locked --target "$target" -p backup-webhook -p backup-controller -p backup-mover \
 && mkdir -p target/release \
 && for program in backup-webhook backup-controller backup-mover; do \
      cp "target/$target/release/$program" target/release/ || exit 1; \
    done

# What the programs need beside themselves: the C library, and the authorities that sign for the stores of clouds.
FROM --platform=$BUILDPLATFORM debian:trixie-slim AS system
ARG TARGETARCH
WORKDIR /packages
RUN dpkg --add-architecture "$TARGETARCH" \
 && apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && apt-get download "libc6:$TARGETARCH" "libgcc-s1:$TARGETARCH" \
 && mkdir -p /root-fs/usr/lib /root-fs/usr/lib64 /root-fs/etc/ssl/certs /root-fs/tmp /root-fs/plugins \
 && ln -s usr/lib /root-fs/lib \
 && ln -s usr/lib64 /root-fs/lib64 \
 && for package in *.deb; do dpkg-deb --extract "$package" /root-fs || exit 1; done \
 && cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/ \
 && chmod 1777 /root-fs/tmp

# No shell, no package manager, no other program.
FROM scratch AS backup-webhook
COPY --from=system /root-fs /
COPY --from=build /src/target/release/backup-webhook /backup-webhook
USER 65532:65532
ENTRYPOINT ["/backup-webhook"]

FROM scratch AS backup-controller
COPY --from=system /root-fs /
COPY --from=build /src/target/release/backup-controller /backup-controller
USER 65532:65532
ENTRYPOINT ["/backup-controller"]

# Its pods run as user 0, to read and write files of any owner; the controller sets that.
FROM scratch AS backup-mover
COPY --from=system /root-fs /
COPY --from=build /src/target/release/backup-mover /backup-mover
USER 65532:65532
ENTRYPOINT ["/backup-mover"]
