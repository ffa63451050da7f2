// SPDX-License-Identifier: Apache-2.0
// A module of your own that speaks verbs: each message comes back to whoever sent it.
//
//   verbenad --module build/examples/echo/echo.so echo
//
// Two things keep one host from what belongs to all: admits() is asked before anything is made for a connection, and each connection
// holds a charge to its peer's share, which is given back when the connection goes.
#include <verbena/core/module/loadable.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/connection.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace verbena;

namespace {

class echo_module final : public verbs::protocol_module {
public:
    std::vector<setting> settings() const override
    {
        return {setting::number("connections_per_peer", {1, 1'000'000}, 64,
                                "Connections that one peer may have")};
    }
    std::vector<std::string> default_listeners() const override { return {"iwarp://127.0.0.1:7007"}; }
    void configure(setting_values& values, module_table&) override
    {
        most_ = values.number("connections_per_peer");
    }
    void start(module_host& host) override { peers_ = &host.peers(); }

    bool admits(std::string_view peer_address) override
    {
        const auto address = ip_address::parse(peer_address);
        return address && address->is_loopback();
    }
    task<void> serve(shard& s, verbs::context& d, verbs::listener& l) override
    {
        auto domain = d.make_domain();
        if (!domain)
            co_return;
        const auto added = co_await (*domain)->add_pool(s.buffers());
        if (!added)
            co_return;
        scope connections(s.reactor());
        for (;;) {
            auto request = co_await l.next();
            if (!request)
                break;
            // First the charge: who has all that one may have costs nothing.
            peer_charge place =
                peers_->charge((*request)->peer_address(), peer_use::module_connections, 1, most_);
            if (!place) {
                (void)co_await (*request)->reject({});
                continue;
            }
            connections.spawn(&echo_module::echo, this, std::ref(s), std::ref(**domain), std::move(*request),
                              std::move(place));
        }
        connections.request_stop();
        co_await connections.join();
    }

private:
    task<void> echo(shard& s, verbs::protection_domain& domain,
                    std::unique_ptr<verbs::connect_request> request, peer_charge place)
    {
        const peer_charge held = std::move(place); // as long as the connection
        verbs::connection_options o;
        const auto c =
            co_await verbs::connection::accept(s.reactor(), std::move(request), domain, s.buffers(), o);
        if (!c)
            co_return;
        for (;;) {
            auto came = co_await (*c)->receive();
            if (!came)
                co_return;
            const std::size_t size = came->bytes().size();
            lease memory = came->take();
            const auto sent = co_await (*c)->send(std::move(memory), size);
            if (!sent)
                co_return;
        }
    }

    peer_shares* peers_ = nullptr;
    std::uint64_t most_ = 0;
};

const module_descriptor descriptor = {
    .name = "echo",
    .version = "1.0",
    .summary = "sends each message back",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<echo_module>(); },
};

} // namespace

VERBENA_MODULE(verbs, descriptor);
