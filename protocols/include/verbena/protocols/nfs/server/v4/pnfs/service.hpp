// SPDX-License-Identifier: Apache-2.0
// RDMA layouts of one server: what the programs of all shards have of them. docs/internals/pnfs.md.
#pragma once

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/data_server.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {
struct server_commons;
}

namespace verbena::nfs::v4::pnfs {

/// The layouts, and a data server for each device by which clients reach their memory. The caller sets `commons.pnfs` to it before
/// the first call, and export_options::pnfs of what it is for.
class service final : public layout_recaller {
public:
    /// What layouts and data servers may take.
    struct options {
        layout_limits layouts;   ///< of each kind
        data_server_limits data; ///< of each data server
    };
    /// Where a data server listens for the client at `peer_address`: a universal address, such as "192.0.2.7.78.81". Empty: nowhere, so
    /// that this client gets no layouts. An error: not known at the moment, so that it may ask later. Called on any shard.
    using place_of = std::function<result<std::string>(std::string_view peer_address)>;
    /// A device by which clients reach memory.
    struct way {
        /// For service::add_way().
        way(std::string t, place_of w, verbs::device& device, std::span<shard* const> shards,
            std::uint64_t epoch, const data_server_limits& limits);
        const std::string transport; ///< by which clients call: "rdma"
        const place_of where;        ///< where the data server listens
        const verbs::device& device; ///< of the grants
        data_server data;            ///< takes the clients' connections
    };
    static constexpr std::size_t most_ways = 2;

    /// The shards, on which connections are accepted, outlive it. It is made when `commons` is there, and outlives that
    /// all the same: the tables of `commons.state` know what clients have of its layouts as long as they live.
    service(server_commons& commons, std::span<shard* const> shards, const options& o);
    service(const service&) = delete;
    ~service();

    /// Clients reach memory by `device`, which outlives this. `transport` is the device's: clients that come by it have this way, and those that
    /// come by one which has no way have the first that was added. Yields what takes their connections; nullptr: the device's domains are of
    /// one shard, so that it can't be one, or there are most_ways. Before the first call; one at a time.
    data_server* add_way(std::string_view transport, verbs::device& device, place_of where);
    /// That of a client which calls by `transport`, among those of the transports by which the export is served (none: by all) and, for
    /// `stores`, of devices that grant these; nullptr: there is none. Any thread.
    way* way_for(std::string_view transport, std::span<const std::string> served_by, bool stores) noexcept;
    /// Whose a device id is.
    struct found {
        std::shared_ptr<layout_client> client; ///< nullptr: nobody's
        way* by = nullptr;                     ///< the way that it connects by
    };
    /// Whose device id it is, at whichever data server, as data_server::find(). Any thread.
    found find(clientid4 client, const deviceid4& device) const;
    /// Where that client connects to, which calls from `peer_address`: to the address that its domain was made for, where its keys are of the
    /// device there. As place_of.
    static result<std::string> place_for(const found& f, std::string_view peer_address);

    /// The layouts of all ways.
    pnfs::layouts& layouts() noexcept { return layouts_; }
    const pnfs::layouts& layouts() const noexcept { return layouts_; }
    /// Of all data servers.
    data_server::counts connections() const noexcept;
    log_limiter errors_logged;                              ///< what clients say failed by their layouts
    log_limiter beyond_logged{1, std::chrono::minutes(10)}; ///< files that no device of their clients reaches

    /// Lets go of clients that have had no layouts for a whole lease: their connections end, and their device ids.
    /// Completes when: its task is stopped. On cancel: it ends. Errors: none; what there is no memory for is done a lease later.
    /// Lifetime: this outlives it. Shard: any.
    task<void> tend();

    // layout_recaller
    void recall_layout(const files::recall_notice& n) noexcept override;
    void recall_any_layout(files::client_id client, std::size_t keep) noexcept override;

private:
    std::span<const std::unique_ptr<way>> ways() const noexcept
    {
        return std::span(ways_).first(way_count_.load(std::memory_order_acquire));
    }
    task<void> revoke_all();

    server_commons& commons_;
    const std::vector<shard*> shards_;
    const data_server_limits limits_;
    pnfs::layouts layouts_;
    std::array<std::unique_ptr<way>, most_ways> ways_;
    std::atomic<std::size_t> way_count_{
        0}; // written when the way is there: tasks and metrics may look already
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
