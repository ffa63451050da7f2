// SPDX-License-Identifier: Apache-2.0
// rpc_load HOST:PORT OPERATION CONNECTIONS SECONDS depth N    a closed loop: N calls in flight on each connection
// rpc_load HOST:PORT OPERATION CONNECTIONS SECONDS rate N     an open one: N calls a second, whatever is answered
// OPERATION: null, getattr of the root of /export, or read: 4 KiB of nfs_load.dat there. Prints "begin" when it counts, and
// one line of JSON. Spins, so that what it measures is the server.
//
// An open loop offers a call for each moment that is due. One that finds `most_outstanding` calls of its connection
// unanswered is dropped here, as an application's would be that nobody waits for any longer.
#include <verbena/core/net/net.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

using namespace verbena;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t nfs = 100003;
constexpr std::uint32_t mount = 100005;
constexpr std::size_t reply_header = 28; // record mark included
constexpr std::uint32_t most_outstanding = 1024;
constexpr std::uint32_t read_size = 4096;
constexpr std::uint64_t file_size = std::uint64_t(64) << 20;
constexpr auto warm_up = std::chrono::milliseconds(300);

[[noreturn]] void fail(const std::string& why)
{
    std::fprintf(stderr, "rpc_load: %s\n", why.c_str());
    std::exit(1);
}

/// A record of one call; with AUTH_SYS of root, but for NULL.
class message {
public:
    message(std::uint32_t program, std::uint32_t procedure)
    {
        for (const std::uint32_t word : {0u, 0u, 0u, 2u, program, 3u, procedure})
            u32(word);
        if (procedure == 0) {
            u32(0).u32(0);
        } else {
            for (const std::uint32_t word : {1u, 20u, 0u, 0u, 0u, 0u, 0u})
                u32(word);
        }
        u32(0).u32(0); // the verifier
    }
    message& u32(std::uint32_t v)
    {
        bytes_.resize(bytes_.size() + 4);
        xdr::store_u32(bytes_.data() + bytes_.size() - 4, v);
        return *this;
    }
    message& opaque(std::string_view data)
    {
        u32(static_cast<std::uint32_t>(data.size()));
        const std::size_t at = bytes_.size();
        bytes_.resize(at + (data.size() + 3) / 4 * 4);
        std::memcpy(bytes_.data() + at, data.data(), data.size());
        return *this;
    }
    const std::vector<std::byte>& framed()
    {
        xdr::store_u32(bytes_.data(), 0x80000000u | static_cast<std::uint32_t>(bytes_.size() - 4));
        return bytes_;
    }

private:
    std::vector<std::byte> bytes_;
};

struct connection {
    net::unique_fd socket;
    std::vector<clock_type::time_point> sent; // by XID, which is a slot
    std::vector<std::uint32_t> free;
    std::vector<std::byte> in = std::vector<std::byte>(1 << 18);
    std::size_t have = 0;
    std::size_t skip = 0; // of a reply whose header was seen
    std::vector<std::byte> out;
    std::size_t gone = 0; // of `out`
};

struct load {
    std::vector<std::byte> call;
    std::size_t offset_at = 0; // of the READ's offset in `call`; 0: there is none
    bool status = false;       // results begin with an NFS status
    bool open = false;
    std::vector<connection> all;
    std::vector<std::uint32_t> latency;
    std::uint64_t offered = 0, answered = 0, dropped = 0, failed = 0, lost = 0;
    std::uint64_t random = 88172645463325252ULL;
};

net::unique_fd connect(const net::endpoint& to)
{
    auto socket = net::start_connect(to);
    pollfd ready{socket ? socket->get() : -1, POLLOUT, 0};
    if (!socket || ::poll(&ready, 1, 5000) != 1 || !net::connect_outcome(socket->get()))
        fail("cannot connect to " + to.to_string());
    (void)net::set_no_delay(socket->get());
    return std::move(*socket);
}

/// The results of one call, behind their status.
std::string ask(const net::unique_fd& to, message m)
{
    const auto& bytes = m.framed();
    if (::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
        fail("cannot send");
    std::string in;
    for (std::size_t want = reply_header + 4; in.size() < want;) {
        pollfd ready{to.get(), POLLIN, 0};
        char part[4096];
        const ssize_t n = ::poll(&ready, 1, 5000) == 1 ? ::recv(to.get(), part, sizeof part, 0) : 0;
        if (n <= 0)
            fail("no answer");
        in.append(part, static_cast<std::size_t>(n));
        if (in.size() >= 4)
            want = 4 + (xdr::load_u32(reinterpret_cast<const std::byte*>(in.data())) & 0x7fffffff);
    }
    if (xdr::load_u32(reinterpret_cast<const std::byte*>(in.data()) + reply_header) != 0)
        fail("refused; `read` needs nfs_load.dat, which nfs_load makes");
    return in.substr(reply_header + 4);
}

std::string handle_in(const std::string& results)
{
    return results.substr(4, xdr::load_u32(reinterpret_cast<const std::byte*>(results.data())));
}

void prepare(load& l, const net::endpoint& where, std::string_view operation)
{
    if (operation == "null") {
        l.call = message(nfs, 0).framed();
        return;
    }
    l.status = true;
    const auto socket = connect(where);
    const std::string root = handle_in(ask(socket, message(mount, 1).opaque("/export")));
    if (operation == "getattr") {
        l.call = message(nfs, 1).opaque(root).framed();
        return;
    }
    const std::string file = handle_in(ask(socket, message(nfs, 3).opaque(root).opaque("nfs_load.dat")));
    message read(nfs, 6);
    read.opaque(file);
    l.offset_at = read.framed().size();
    l.call = read.u32(0).u32(0).u32(read_size).framed();
}

void send_call(load& l, connection& c, clock_type::time_point now)
{
    const std::uint32_t xid = c.free.back();
    c.free.pop_back();
    c.sent[xid] = now;
    const std::size_t at = c.out.size();
    c.out.insert(c.out.end(), l.call.begin(), l.call.end());
    xdr::store_u32(c.out.data() + at + 4, xid);
    if (l.offset_at != 0) {
        l.random ^= l.random << 13;
        l.random ^= l.random >> 7;
        l.random ^= l.random << 17;
        xdr::store_u32(c.out.data() + at + l.offset_at + 4,
                       static_cast<std::uint32_t>(l.random % (file_size / read_size) * read_size));
    }
}

bool flush(connection& c)
{
    while (c.gone < c.out.size()) {
        const ssize_t n = ::send(c.socket.get(), c.out.data() + c.gone, c.out.size() - c.gone, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN;
        c.gone += static_cast<std::size_t>(n);
    }
    c.out.clear();
    c.gone = 0;
    return true;
}

/// False when the connection is lost.
bool take_replies(load& l, connection& c, bool counting)
{
    const ssize_t n = ::recv(c.socket.get(), c.in.data() + c.have, c.in.size() - c.have, 0);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    c.have += static_cast<std::size_t>(n);
    const auto now = clock_type::now();
    std::size_t at = std::min(c.skip, c.have);
    c.skip -= at;
    const std::size_t header = reply_header + (l.status ? 4 : 0);
    while (c.skip == 0 && c.have - at >= header) {
        const std::byte* reply = c.in.data() + at;
        const std::uint32_t xid = xdr::load_u32(reply + 4);
        if (xid >= c.sent.size() || xdr::load_u32(reply + 8) != 1)
            fail("not a reply to a call of ours");
        const bool good = xdr::load_u32(reply + 12) == 0 && xdr::load_u32(reply + 24) == 0 &&
                          (!l.status || xdr::load_u32(reply + 28) == 0);
        if (counting) {
            ++(good ? l.answered : l.failed);
            if (l.latency.size() < l.latency.capacity())
                l.latency.push_back(static_cast<std::uint32_t>(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(now - c.sent[xid]).count()));
        }
        c.free.push_back(xid);
        if (!l.open)
            send_call(l, c, now);
        const std::size_t size = 4 + (xdr::load_u32(reply) & 0x7fffffff);
        const std::size_t here = std::min(size, c.have - at);
        at += here;
        c.skip = size - here;
    }
    std::memmove(c.in.data(), c.in.data() + at, c.have - at);
    c.have -= at;
    return true;
}

double quantile(std::vector<std::uint32_t>& latency, double q)
{
    if (latency.empty())
        return 0;
    const auto nth = latency.begin() + static_cast<std::ptrdiff_t>(q * double(latency.size() - 1));
    std::nth_element(latency.begin(), nth, latency.end());
    return *nth / 1000.0;
}

void run(load& l, double seconds, double rate)
{
    const auto begun = clock_type::now();
    const auto warm = begun + warm_up;
    const auto end = warm + std::chrono::duration<double>(seconds);
    bool counting = false;
    std::uint64_t due_before = 0;
    std::size_t next = 0;
    for (auto now = begun; now < end; now = clock_type::now()) {
        if (!counting && now >= warm) {
            counting = true;
            std::printf("begin\n");
            std::fflush(stdout);
        }
        const double elapsed = std::chrono::duration<double>(now - begun).count();
        for (const auto due = static_cast<std::uint64_t>(elapsed * rate); due_before < due; ++due_before) {
            connection& c = l.all[next++ % l.all.size()];
            const bool room = c.socket.get() >= 0 && !c.free.empty();
            if (room)
                send_call(l, c, now);
            l.offered += counting ? 1 : 0;
            l.dropped += counting && !room ? 1 : 0;
        }
        for (connection& c : l.all) {
            if (c.socket.get() >= 0 && !(flush(c) && take_replies(l, c, counting))) {
                ++l.lost;
                c.socket.reset();
            }
        }
    }
}

} // namespace

int main(int argc, char** argv)
{
    const std::string_view operation = argc == 7 ? argv[2] : "";
    const std::string_view loop = argc == 7 ? argv[5] : "";
    if ((operation != "null" && operation != "getattr" && operation != "read") ||
        (loop != "depth" && loop != "rate")) {
        std::fprintf(stderr,
                     "usage: rpc_load HOST:PORT null|getattr|read CONNECTIONS SECONDS depth|rate N\n");
        return 2;
    }
    const auto where = net::resolve(argv[1]);
    if (!where)
        fail(where.error().message());
    load l;
    l.open = loop == "rate";
    const double n = std::atof(argv[6]);
    prepare(l, where->front(), operation);
    l.latency.reserve(std::size_t(1) << 23);
    l.all.resize(static_cast<std::size_t>(std::max(1, std::atoi(argv[3]))));
    const std::uint32_t slots = l.open ? most_outstanding : static_cast<std::uint32_t>(n);
    for (connection& c : l.all) {
        c.socket = connect(where->front());
        c.sent.resize(slots);
        for (std::uint32_t xid = 0; xid < slots; ++xid)
            c.free.push_back(xid);
        while (!l.open && !c.free.empty())
            send_call(l, c, clock_type::now());
    }
    const double seconds = std::atof(argv[4]);
    run(l, seconds, l.open ? n : 0);
    std::printf(
        "{\"operation\": \"%s\", \"connections\": %zu, \"%s\": %.0f, \"seconds\": %.3f, \"offered\": %llu, "
        "\"dropped\": %llu, \"answered\": %llu, \"failed\": %llu, \"lost\": %llu, \"per_second\": %.0f, "
        "\"p50_us\": %.1f, \"p99_us\": %.1f}\n",
        argv[2], l.all.size(), argv[5], n, seconds, static_cast<unsigned long long>(l.offered),
        static_cast<unsigned long long>(l.dropped), static_cast<unsigned long long>(l.answered),
        static_cast<unsigned long long>(l.failed), static_cast<unsigned long long>(l.lost),
        double(l.answered) / seconds, quantile(l.latency, 0.5), quantile(l.latency, 0.99));
    return l.answered == 0;
}
