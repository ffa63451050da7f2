// SPDX-License-Identifier: Apache-2.0
// RDMA layouts of one server: what the programs of all shards have of them. docs/internals/pnfs.md.
#pragma once

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/data_server.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {
struct server_commons;
}

namespace verbena::nfs::v4::pnfs {

/// The layouts, and the data server of the device by which clients reach their memory. The caller sets `commons.pnfs` to it before
/// the first call, and export_options::pnfs of what it is for.
class service final : public layout_recaller {
public:
    struct options {
        layout_limits layouts;
        data_server_limits data;
    };
    /// `device` and the shards, on which connections are accepted, outlive it. It is made when `commons` is there, and outlives that
    /// all the same: the tables of `commons.state` know what clients have of its layouts as long as they live.
    service(server_commons& commons, verbs::device& device, std::span<shard* const> shards, const options& o);
    service(const service&) = delete;
    ~service();

    pnfs::layouts& layouts() noexcept { return layouts_; }
    pnfs::data_server& data() noexcept { return data_; }
    const pnfs::layouts& layouts() const noexcept { return layouts_; }
    const pnfs::data_server& data() const noexcept { return data_; }

    /// Where the data server listens for the client at `peer_address`: a universal address, such as "192.0.2.7.78.81". Empty: nowhere,
    /// so that this client gets no layouts. An error: not known at the moment, so that it may ask later. Called on any shard. Set before
    /// the first call.
    std::function<result<std::string>(std::string_view peer_address)> where;
    /// Whether there may be layouts at all: not by a device that needs registered memory.
    bool is_usable() const noexcept { return is_usable_ && where != nullptr; }

    /// Lets go of clients that have had no layouts for a whole lease: their connections end, and their device ids.
    /// Completes when: its task is stopped. On cancel: it ends. Errors: none; what there is no memory for is done a lease later.
    /// Lifetime: this outlives it. Shard: any.
    task<void> tend();

    // layout_recaller
    void recall_layout(const files::recall_notice& n) noexcept override;

private:
    server_commons& commons_;
    const bool is_usable_;
    pnfs::layouts layouts_;
    pnfs::data_server data_;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
