# SPDX-License-Identifier: Apache-2.0
# Debian packages by purpose, and their installation. Sourced by `check` and `quickstart`.

# The packages that PURPOSE needs, one per line. Recommended packages are not installed, so what is
# needed stands here by name.
packages_for() {
    case $1 in
    build) words clang-19 lld-19 meson ninja-build pkg-config python3 libstdc++-12-dev liburing-dev \
        libspdlog-dev libcli11-dev libtomlplusplus-dev prometheus-cpp-dev libmicrohttpd-dev nlohmann-json3-dev libasio-dev \
        libssl-dev libisal-dev libsqlite3-dev libarchive-dev libncurses-dev libibverbs-dev librdmacm-dev ;;
    tests) words libboost-test-dev libnfs-dev cpp rpcsvc-proto libtirpc-dev libuv1-dev systemd gdb binutils abigail-tools \
        nbdkit nbdkit-plugin-dev libnbd-bin qemu-utils ;;
    gcc) words g++-12 llvm-19 ;;
    sanitizers) words libclang-rt-19-dev llvm-19 llvm-19-dev ;;
    package) words lowdown dpkg-dev ;;
    package_test) words mmdebstrap man-db ;;
    day) words systemd-container podman crun e2fsprogs iproute2 util-linux ;;
    format) words clang-format-19 ;;
    tidy) words clang-tidy-19 ;;
    reuse) words reuse ;;
    site) words doxygen python3-sphinx python3-myst-parser furo ;;
    nfs_tools) words libnfs-utils curl prometheus rpcbind iproute2 ;;
    wireshark) words tshark iproute2 ;;
    block_tools) words fio ;;
    lab) tests/lab/lab packages && words libnfs-utils ;;
    bench) words gcc libnfs-dev libtirpc-dev rpcsvc-proto nfs-ganesha nfs-ganesha-vfs nfs-ganesha-mem rpcbind dbus libfabric-bin iperf3 fio \
        iproute2 ;;
    *) printf 'packages_for: unknown purpose %s\n' "$1" >&2; return 1 ;;
    esac
}

words() { printf '%s\n' "$@"; }

# Those of the named packages that are not installed, one per line.
missing_packages() {
    local name
    for name in "$@"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || words "$name"
    done
}

# Installs what is missing of the named packages; says which. Returns 1 if some still is missing.
install_packages() {
    local missing root=() log
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0
    if ! command -v apt-get >/dev/null; then
        printf 'apt-get is not here; these Debian packages, or what they hold, are needed: %s\n' "${missing[*]}" >&2
        return 1
    fi
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            printf 'installing needs root; run: apt-get install --no-install-recommends %s\n' "${missing[*]}" >&2
            return 1
        fi
        root=(sudo)
    fi
    printf 'installing %d Debian packages: %s\n' "${#missing[@]}" "${missing[*]}"
    log=$(mktemp)
    # The lists may be empty or old, so they are fetched once before the first try.
    {
        # On a machine just started another process may be at the lists.
        for try in 1 2 3 4 5; do
            "${root[@]}" timeout 300 apt-get update -q && break
            sleep $((5 * try))
        done
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
            install --no-install-recommends "${missing[@]}" ||
            # One package that cannot be had must not keep the others away.
            for name in "${missing[@]}"; do
                "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
                    install --no-install-recommends "$name"
            done
    } </dev/null >"$log" 2>&1
    mapfile -t missing < <(missing_packages "$@")
    if ((${#missing[@]})); then
        tail -n 12 "$log" >&2
        printf 'could not install: %s\n' "${missing[*]}" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
