// SPDX-License-Identifier: Apache-2.0
// The role of modules that serve a protocol. Listeners are not their business: an RPC program (rpc::program_module) is served over
// every transport alike, a verbs protocol (verbs::protocol_module) over every provider.
#pragma once

#include <verbena/core/module/module.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// The transports that listeners may have.
inline constexpr std::string_view known_transports[] = {"iwarp", "rdma", "tcp"};

/// A place where a protocol will be served.
struct listen_target {
    std::string transport; ///< "tcp", "iwarp", "rdma"
    std::string url;       ///< as it was asked for
    net::endpoint where;   ///< port 0: a free one will be taken
};

/// A place where a protocol is served.
struct listen_place {
    std::string transport; ///< as "tcp", "iwarp"
    net::endpoint where;   ///< with the real port
    /// As people write it.
    std::string url() const { return transport + "://" + where.to_string(); }
};

/// A protocol and its listeners, whose settings (`listen`, ...) stand beside settings() in the table [name]. In the order of a
/// module's life: configure(), prepare(), will_listen(), start(), what its kind does on each shard, listening(), closing(), the
/// end of what it serves, stop().
class protocol_module : public module {
public:
    std::string_view role() const noexcept final { return "protocol"; }

    /// Where it listens unless told otherwise. Loopback: everything else has to be asked for. None for one that is served_with()
    /// another.
    virtual std::vector<std::string> default_listeners() const = 0;
    /// Of a URL without one; 0 if it has to be written.
    virtual std::uint16_t default_port(std::string_view transport) const
    {
        (void)transport;
        return 0;
    }
    /// What listeners there will be. Throws config_error for what can't be.
    virtual void will_listen(std::span<const listen_target> targets) { (void)targets; }
    /// The listeners are open. Returns lines for people: what is served, and how it is reached.
    virtual std::string listening(std::span<const listen_place> places)
    {
        std::string text;
        for (const listen_place& l : places)
            text += "listening at " + l.url() + '\n';
        return text;
    }
    /// The listeners are about to close; what is in flight ends later.
    virtual void closing() noexcept {}
};

namespace verbs {

/// A protocol that speaks verbs itself, as RTRS does.
class protocol_module : public verbena::protocol_module {
public:
    std::string_view role_word() const noexcept final { return "verbs"; }
    /// Serves the connections of one listener on one shard.
    ///
    /// Completes when: l.next() has failed, since the listener is closed, and the module has ended its connections. On cancel:
    /// the module ends its connections, and returns. Errors: an exception is logged and ends this listener's service on this
    /// shard. Lifetime: `s`, `d` and `l` outlive it, and none of its connections does. Shard: `s`.
    virtual task<void> serve(shard& s, context& d, listener& l) = 0;
    /// Whether anything is served to anybody at this address. Asked for each connect request, before `l` of serve() yields it. False: it
    /// is rejected, and nothing is made for it. What a peer that is admitted may hold at once is charged to its share
    /// (module_host::peers()) by serve(). Shard: that of serve().
    virtual bool admits(std::string_view peer_address)
    {
        (void)peer_address;
        return true;
    }
    /// To which of the service's shards a connection goes, by what its connect request says: where what it needs is, or where the module wants
    /// it served. None: any, which is each in turn. Any shard, several at once.
    virtual std::optional<std::size_t> shard_of(std::span<const std::byte> private_data,
                                                std::size_t shards) const noexcept
    {
        (void)private_data, (void)shards;
        return std::nullopt;
    }
};

} // namespace verbs

} // namespace verbena

#pragma GCC visibility pop
