// SPDX-License-Identifier: Apache-2.0
// null_load HOST:PORT CONNECTIONS DEPTH SECONDS [PROGRAM VERSION]: a closed loop of NULL calls over TCP.
// Prints one line of JSON. Spins, so that what it measures is the server.
#include <verbena/core/net.hpp>
#include <verbena/protocols/rpc/record_marking.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <vector>

using namespace verbena;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::size_t call_size = 44;
constexpr std::size_t reply_size = 28;

struct connection {
    net::unique_fd socket;
    std::vector<clock_type::time_point> sent; // by XID, which is a slot
    std::vector<std::byte> in = std::vector<std::byte>(1 << 16);
    std::size_t have = 0;
    std::vector<std::byte> out;
};

void append_call(connection& c, std::uint32_t xid, std::uint32_t program, std::uint32_t version)
{
    const std::uint32_t words[] = {0x80000028, xid, 0, 2, program, version, 0, 0, 0, 0, 0};
    const std::size_t at = c.out.size();
    c.out.resize(at + call_size);
    for (std::size_t i = 0; i < std::size(words); ++i)
        xdr::store_u32(c.out.data() + at + 4 * i, words[i]);
    c.sent[xid] = clock_type::now();
}

bool flush(connection& c)
{
    while (!c.out.empty()) {
        const ssize_t n = ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN;
        c.out.erase(c.out.begin(), c.out.begin() + n);
    }
    return true;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 5 && argc != 7) {
        std::fprintf(stderr, "usage: null_load HOST:PORT CONNECTIONS DEPTH SECONDS [PROGRAM VERSION]\n");
        return 2;
    }
    const auto where = net::resolve(argv[1]);
    const auto connections = static_cast<std::size_t>(std::atoi(argv[2]));
    const auto depth = static_cast<std::uint32_t>(std::atoi(argv[3]));
    const double seconds = std::atof(argv[4]);
    const auto program = argc == 7 ? static_cast<std::uint32_t>(std::atoi(argv[5])) : 100003;
    const auto version = argc == 7 ? static_cast<std::uint32_t>(std::atoi(argv[6])) : 3;
    if (!where || connections == 0 || depth == 0) {
        std::fprintf(stderr, "null_load: %s\n", where ? "nothing to do" : where.error().message().c_str());
        return 2;
    }
    std::vector<connection> all(connections);
    for (auto& c : all) {
        auto socket = net::start_connect(where->front());
        pollfd ready{socket ? socket->get() : -1, POLLOUT, 0};
        if (!socket || ::poll(&ready, 1, 5000) != 1 || !net::connect_outcome(socket->get())) {
            std::fprintf(stderr, "null_load: cannot connect to %s\n", argv[1]);
            return 1;
        }
        c.socket = std::move(*socket);
        (void)net::set_no_delay(c.socket.get());
        c.sent.resize(depth);
        for (std::uint32_t xid = 0; xid < depth; ++xid)
            append_call(c, xid, program, version);
    }
    std::vector<std::uint32_t> latency;
    latency.reserve(std::size_t(1) << 24);
    const auto begun = clock_type::now();
    const auto warm = begun + std::chrono::milliseconds(200);
    const auto end = warm + std::chrono::duration<double>(seconds);
    for (auto now = begun; now < end; now = clock_type::now()) {
        for (auto& c : all) {
            if (!flush(c)) {
                std::fprintf(stderr, "null_load: the connection was lost\n");
                return 1;
            }
            const ssize_t n = ::recv(c.socket.get(), c.in.data() + c.have, c.in.size() - c.have, 0);
            if (n == 0) {
                std::fprintf(stderr, "null_load: the server closed the connection\n");
                return 1;
            }
            if (n < 0)
                continue;
            c.have += static_cast<std::size_t>(n);
            const auto arrived = clock_type::now();
            std::size_t at = 0;
            for (; c.have - at >= reply_size; at += reply_size) {
                const std::byte* reply = c.in.data() + at;
                const std::uint32_t xid = xdr::load_u32(reply + 4);
                if (xdr::load_u32(reply) != 0x80000018 || xid >= depth || xdr::load_u32(reply + 24) != 0) {
                    std::fprintf(stderr, "null_load: not the reply to a NULL call\n");
                    return 1;
                }
                if (arrived >= warm && latency.size() < latency.capacity())
                    latency.push_back(static_cast<std::uint32_t>(
                        std::chrono::duration_cast<std::chrono::nanoseconds>(arrived - c.sent[xid]).count()));
                append_call(c, xid, program, version);
            }
            std::memmove(c.in.data(), c.in.data() + at, c.have - at);
            c.have -= at;
        }
    }
    const double took = std::chrono::duration<double>(clock_type::now() - warm).count();
    const auto at = [&](double q) {
        if (latency.empty())
            return 0.0;
        const auto nth = latency.begin() + static_cast<std::ptrdiff_t>(q * double(latency.size() - 1));
        std::nth_element(latency.begin(), nth, latency.end());
        return *nth / 1000.0;
    };
    std::printf("{\"operation\": \"null\", \"connections\": %zu, \"depth\": %u, \"per_second\": %.0f, "
                "\"p50_us\": %.1f, \"p99_us\": %.1f}\n",
                connections, depth, double(latency.size()) / took, at(0.5), at(0.99));
    return latency.empty();
}
