// SPDX-License-Identifier: Apache-2.0
// A whole connection: what a peer writes into its socket goes through MPA start-up, DDP, RDMAP and the
// RPC-over-RDMA responder. Input: the bytes of the peer; unless the first one is 'M', a good start-up
// frame comes before them.

#include "fuzz.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>
#include <cstdlib>
#include <sys/socket.h>
#include <unistd.h>

using namespace verbena;

namespace {

// Pulls what the call offers as opaque arguments and sends them back as results.
class echo final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        if (c.decode_header() != rpc::call_verdict::good)
            co_return false;
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        for (int i = 0; i < 4 && (i == 0 || c.args().unread() != 0); ++i) {
            const auto ref = c.args().payload(1 << 20);
            if (!c.args().ok())
                break;
            auto bytes = co_await c.pull(ref);
            if (!bytes)
                break;
            c.results().note_payload(static_cast<std::uint32_t>(bytes->size()));
            c.attach(std::move(*bytes));
        }
        co_return true;
    }
};

// The frame that a kernel siw client sends for NFS.
constexpr unsigned char startup[] = {'M', 'P', 'A',  ' ',  'I',  'D',  ' ', 'R', 'e', 'q', ' ',
                                     'F', 'r', 'a',  'm',  'e',  0x10, 2,   0,   12,  0,   0x80,
                                     0,   0,   0xf6, 0xab, 0x0e, 0x18, 1,   1,   3,   3};

struct server {
    server()
    {
        set_log_level(log_level::off);
        auto made = reactor::create();
        if (!made) {
            std::fprintf(stderr, "%s\n", made.error().message().c_str());
            std::abort();
        }
        shard = std::move(*made);
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        iwarp::options o;
        o.close_timeout = std::chrono::milliseconds(1);
        provider = iwarp::make_context(*shard, o);
    }
    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<iwarp::context> provider;
    echo dispatcher;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
};

} // namespace

VERBENA_FUZZ_TARGET(iwarp)
{
    static server s;
    int ends[2];
    if (size > 60000 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return 0;
    if (size == 0 || data[0] != 'M')
        (void)!::write(ends[1], startup, sizeof startup);
    (void)!::write(ends[1], data, size);
    ::shutdown(ends[1], SHUT_WR);

    auto listener = s.provider->listen_adopted("iwarp://fuzz");
    if (!listener)
        return 0;
    {
        scope tasks(*s.shard);
        tasks.spawn([&] {
            return rpcrdma::serve(*s.provider, **listener, *s.pool, s.dispatcher, s.options, s.stats);
        });
        s.provider->adopt(ends[0], **listener);
        // The peer's FIN is there already, so a few turns end it all.
        for (int idle = 0; idle < 3;)
            idle = s.shard->turn() ? 0 : idle + 1;
        (*listener)->close();
        tasks.request_stop();
        while (tasks.live() != 0)
            s.shard->turn();
    }
    ::close(ends[1]);
    // Whatever the peer did, nothing of it stays behind.
    if (s.pool->outstanding() != 0 || s.provider->counters().active != 0) {
        std::fprintf(stderr, "%zu buffers and %llu connections are left\n", s.pool->outstanding(),
                     static_cast<unsigned long long>(s.provider->counters().active.load()));
        std::abort();
    }
    return 0;
}
