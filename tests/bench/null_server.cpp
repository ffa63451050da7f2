// SPDX-License-Identifier: Apache-2.0
// null_server PORT [busy|adaptive|event]: serves NULL of NFS version 3 on one shard, with all of RPC over
// TCP and nothing of NFS.
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/stream.hpp>

#include <cstdio>
#include <string>

using namespace verbena;

namespace {

class null_program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 100003; }
    std::uint32_t low_version() const noexcept override { return 3; }
    std::uint32_t high_version() const noexcept override { return 3; }
    std::string_view name() const noexcept override { return "nfs"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t p) const noexcept override
    {
        return p == 0 ? "NULL" : "";
    }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        co_return c.header().procedure == 0 ? rpc::outcome::success : rpc::outcome::proc_unavail;
    }
};

} // namespace

int main(int argc, char** argv)
{
    reactor_options options;
    const auto policy = parse_wait_policy(argc > 2 ? argv[2] : "adaptive");
    const auto where = net::endpoint::parse(std::string("127.0.0.1:") + (argc > 1 ? argv[1] : ""));
    if (!policy || !where) {
        std::fprintf(stderr, "usage: null_server PORT [busy|adaptive|event]\n");
        return 2;
    }
    options.policy = *policy;
    auto shard = reactor::create(options);
    if (!shard) {
        std::fprintf(stderr, "null_server: %s\n", shard.error().message().c_str());
        return 1;
    }
    memory_budget budget(std::size_t(64) << 20);
    buffer_pool pool(budget, shard->get());
    rpc::service_dispatcher calls(**shard);
    null_program program;
    calls.add(program);
    rpc::stream_server server(**shard, pool, calls);
    auto handler = [&](net::unique_fd socket, const net::endpoint& peer) {
        server.adopt(std::move(socket), peer);
    };
    auto listener = stream::listener::open(**shard, *where, std::move(handler));
    if (!listener) {
        std::fprintf(stderr, "null_server: %s\n", listener.error().message().c_str());
        return 1;
    }
    (*shard)->run();
    return 0;
}
