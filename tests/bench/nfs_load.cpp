// SPDX-License-Identifier: Apache-2.0
// nfs_load URL OPERATION SIZE CONNECTIONS DEPTH SECONDS [spin]
// A closed loop of NFS version 3 calls by libnfs, a client that is neither ours nor the peer's: CONNECTIONS
// connections with DEPTH calls in flight each, one thread. OPERATION: null, getattr, lookup, read, write.
// Offsets of read and write are random in one file of 64 MiB. Prints one line of JSON.
//
// null mounts nothing: its URL is HOST:PORT, so that a responder of NULL alone can be measured too.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <nfsc/libnfs.h>

#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw.h>

// libnfs 4 exports this and declares it in no public header.
struct nfs_fh {
    int len;
    char* val;
};
extern "C" const struct nfs_fh* nfs_get_rootfh(struct nfs_context* nfs);

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::uint64_t file_size = std::uint64_t(64) << 20;
constexpr const char* file_name = "nfs_load.dat";
constexpr auto warm_up = std::chrono::milliseconds(300);
// A slow disk answers nothing for longer than that; it is waited for, so long at most.
constexpr auto patience = std::chrono::seconds(30);

enum class operation { null, getattr, lookup, read, write };
constexpr const char* names[] = {"null", "getattr", "lookup", "read", "write"};

struct state;

struct slot {
    state* all;
    rpc_context* rpc;
    clock_type::time_point sent;
};

struct state {
    operation op = operation::null;
    std::uint32_t size = 0;
    nfs_fh3 root{};
    nfs_fh3 file{};
    std::vector<char> bytes;
    std::vector<std::uint32_t> latency; // nanoseconds
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::size_t in_flight = 0;
    std::uint64_t random = 88172645463325252ULL;
    bool stopping = false;

    std::uint64_t next_offset() noexcept
    {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random % (file_size / size) * size;
    }
};

void issue(slot& s);

bool good(const state& all, void* data) noexcept
{
    switch (all.op) {
    case operation::null: return true;
    case operation::getattr: return static_cast<GETATTR3res*>(data)->status == NFS3_OK;
    case operation::lookup: return static_cast<LOOKUP3res*>(data)->status == NFS3_OK;
    case operation::read: {
        const auto* r = static_cast<READ3res*>(data);
        return r->status == NFS3_OK && r->READ3res_u.resok.count == all.size;
    }
    case operation::write: {
        const auto* r = static_cast<WRITE3res*>(data);
        return r->status == NFS3_OK && r->WRITE3res_u.resok.count == all.size;
    }
    }
    return false;
}

void answered(rpc_context*, int status, void* data, void* private_data)
{
    auto& s = *static_cast<slot*>(private_data);
    state& all = *s.all;
    --all.in_flight;
    const bool ok = status == RPC_STATUS_SUCCESS && good(all, data);
    ++(ok ? all.done : all.failed);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(clock_type::now() - s.sent);
    if (all.latency.size() < all.latency.capacity())
        all.latency.push_back(static_cast<std::uint32_t>(std::min<std::int64_t>(took.count(), UINT32_MAX)));
    if (ok && !all.stopping)
        issue(s);
}

void issue(slot& s)
{
    state& all = *s.all;
    s.sent = clock_type::now();
    int rc = -1;
    switch (all.op) {
    case operation::null: rc = rpc_nfs3_null_async(s.rpc, answered, &s); break;
    case operation::getattr: {
        GETATTR3args a{};
        a.object = all.file;
        rc = rpc_nfs3_getattr_async(s.rpc, answered, &a, &s);
        break;
    }
    case operation::lookup: {
        LOOKUP3args a{};
        a.what.dir = all.root;
        a.what.name = const_cast<char*>(file_name);
        rc = rpc_nfs3_lookup_async(s.rpc, answered, &a, &s);
        break;
    }
    case operation::read: {
        READ3args a{};
        a.file = all.file;
        a.offset = all.next_offset();
        a.count = all.size;
        rc = rpc_nfs3_read_async(s.rpc, answered, &a, &s);
        break;
    }
    case operation::write: {
        WRITE3args a{};
        a.file = all.file;
        a.offset = all.next_offset();
        a.count = all.size;
        a.stable = UNSTABLE;
        a.data.data_len = all.size;
        a.data.data_val = all.bytes.data();
        rc = rpc_nfs3_write_async(s.rpc, answered, &a, &s);
        break;
    }
    }
    if (rc != 0)
        ++all.failed;
    else
        ++all.in_flight;
}

void keep(nfs_fh3& to, const struct nfs_fh* from)
{
    to.data.data_len = static_cast<unsigned>(from->len);
    to.data.data_val = static_cast<char*>(std::malloc(to.data.data_len));
    std::memcpy(to.data.data_val, from->val, to.data.data_len);
}

[[noreturn]] void fail(const char* what, const char* why)
{
    std::fprintf(stderr, "nfs_load: %s: %s\n", what, why);
    std::exit(1);
}

rpc_context* connect_only(const std::string& where)
{
    const auto colon = where.rfind(':');
    if (colon == std::string::npos)
        fail(where.c_str(), "must be HOST:PORT for null");
    rpc_context* rpc = rpc_init_context();
    int outcome = -2;
    const auto connected = [](rpc_context*, int status, void*, void* out) {
        *static_cast<int*>(out) = status;
    };
    if (rpc_connect_async(rpc, where.substr(0, colon).c_str(), std::atoi(where.c_str() + colon + 1),
                          connected, &outcome) != 0)
        fail("connect", rpc_get_error(rpc));
    while (outcome == -2) {
        pollfd p{rpc_get_fd(rpc), static_cast<short>(rpc_which_events(rpc)), 0};
        if (::poll(&p, 1, 5000) <= 0 || rpc_service(rpc, p.revents) < 0)
            fail("connect", rpc_get_error(rpc));
    }
    if (outcome != RPC_STATUS_SUCCESS)
        fail("connect", rpc_get_error(rpc));
    return rpc;
}

rpc_context* mount(state& all, const char* url, bool first)
{
    nfs_context* nfs = nfs_init_context();
    nfs_url* u = nfs_parse_url_dir(nfs, url);
    if (u == nullptr || nfs_mount(nfs, u->server, u->path) != 0)
        fail("mount", nfs_get_error(nfs));
    if (!first)
        return nfs_get_rpc_context(nfs);
    keep(all.root, nfs_get_rootfh(nfs));
    nfsfh* file = nullptr;
    if (nfs_open(nfs, file_name, O_RDWR, &file) != 0 && nfs_creat(nfs, file_name, 0644, &file) != 0)
        fail("creat", nfs_get_error(nfs));
    nfs_stat_64 st{};
    if (nfs_fstat64(nfs, file, &st) != 0)
        fail("stat", nfs_get_error(nfs));
    std::vector<char> filling(std::size_t(1) << 18, 'v');
    for (std::uint64_t at = st.nfs_size; at < file_size; at += filling.size()) {
        if (nfs_pwrite(nfs, file, at, filling.size(), filling.data()) < 0)
            fail("write", nfs_get_error(nfs));
    }
    keep(all.file, nfs_get_fh(file));
    return nfs_get_rpc_context(nfs);
}

double cpu_seconds()
{
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           double(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 7) {
        std::fprintf(stderr, "usage: nfs_load URL OPERATION SIZE CONNECTIONS DEPTH SECONDS [spin]\n");
        return 2;
    }
    state all;
    const auto name = std::find_if(std::begin(names), std::end(names),
                                   [&](const char* n) { return std::strcmp(n, argv[2]) == 0; });
    if (name == std::end(names)) {
        std::fprintf(stderr, "nfs_load: no operation %s\n", argv[2]);
        return 2;
    }
    all.op = operation(name - std::begin(names));
    all.size = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 0));
    if (all.op == operation::read || all.op == operation::write) {
        if (all.size == 0 || all.size > file_size)
            fail(argv[3], "is no size to read or write");
    }
    const auto connections = static_cast<std::size_t>(std::atoi(argv[4]));
    const auto depth = static_cast<std::size_t>(std::atoi(argv[5]));
    const std::chrono::duration<double> seconds(std::atof(argv[6]));
    const bool spin = argc > 7 && std::strcmp(argv[7], "spin") == 0;
    all.bytes.assign(all.size + 1, 'x');
    all.latency.reserve(std::size_t(1) << 23);

    std::vector<rpc_context*> links;
    for (std::size_t i = 0; i < connections; ++i)
        links.push_back(all.op == operation::null ? connect_only(argv[1]) : mount(all, argv[1], i == 0));
    std::vector<slot> slots(connections * depth);
    for (std::size_t i = 0; i < slots.size(); ++i) {
        slots[i] = {&all, links[i % connections], {}};
        issue(slots[i]);
    }
    auto begun = clock_type::now();
    const auto warm = begun + warm_up;
    auto end = clock_type::time_point::max();
    bool counting = false;
    double cpu = 0;
    std::vector<pollfd> ready(connections);
    std::printf("ready\n");
    std::fflush(stdout);
    clock_type::time_point finished{};
    while (all.in_flight != 0) {
        const auto now = clock_type::now();
        if (!counting && now >= warm && (all.done >= slots.size() || now >= warm + patience)) {
            counting = true;
            end = now + std::chrono::duration_cast<clock_type::duration>(seconds);
            all.done = all.failed = 0;
            all.latency.clear();
            begun = now;
            cpu = cpu_seconds();
            std::printf("begin\n");
            std::fflush(stdout);
        }
        if (!all.stopping && now >= end && (all.done != 0 || now >= end + patience)) {
            all.stopping = true;
            finished = now;
            break; // what is in flight is not counted, and the server sees the connections close
        }
        for (std::size_t i = 0; i < connections; ++i)
            ready[i] = {rpc_get_fd(links[i]), static_cast<short>(rpc_which_events(links[i])), 0};
        if (::poll(ready.data(), connections, spin ? 0 : 100) < 0 && errno != EINTR)
            break;
        for (std::size_t i = 0; i < connections; ++i) {
            if (ready[i].revents != 0 && rpc_service(links[i], ready[i].revents) < 0)
                fail("service", rpc_get_error(links[i]));
        }
    }
    const double took = std::chrono::duration<double>(finished - begun).count();
    cpu = cpu_seconds() - cpu;
    const auto quantile = [&](double q) {
        if (all.latency.empty())
            return 0.0;
        const auto nth =
            all.latency.begin() + static_cast<std::ptrdiff_t>(q * double(all.latency.size() - 1));
        std::nth_element(all.latency.begin(), nth, all.latency.end());
        return *nth / 1000.0;
    };
    std::printf(
        "{\"operation\": \"%s\", \"size\": %u, \"connections\": %zu, \"depth\": %zu, \"seconds\": %.3f, "
        "\"operations\": %llu, \"per_second\": %.0f, \"mb_per_second\": %.1f, \"p50_us\": %.1f, "
        "\"p99_us\": %.1f, \"client_cpu_seconds\": %.3f, \"failed\": %llu}\n",
        argv[2], all.size, connections, depth, took, static_cast<unsigned long long>(all.done),
        double(all.done) / took, double(all.done) * all.size / took / 1e6, quantile(0.5), quantile(0.99), cpu,
        static_cast<unsigned long long>(all.failed));
    return all.failed != 0 || all.done == 0;
}
