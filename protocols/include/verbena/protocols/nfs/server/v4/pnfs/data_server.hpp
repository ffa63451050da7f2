// SPDX-License-Identifier: Apache-2.0
// The data server of the RDMA layout: which clients there are, and their connections. It serves no requests: clients
// read and write memory that layouts have granted. docs/internals/pnfs.md, "The connection".
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/verbs/side_connections.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

/// What a data server may have at once.
struct data_server_limits {
    std::size_t connections_of_client = 16; ///< RDMA connections of one
    std::size_t connections = 4096;         ///< of all clients
    std::size_t clients = 16384;            ///< that have a domain
    std::uint32_t reads = 16;               ///< that a client may have outstanding on a connection (IRD)
};

/// The clients of one device, and on each shard their connections.
///
/// A client is there from its first layout on, until forget() or forget_idle(). Its device id is the server's secret and
/// the client's: whoever shows it in a connect request is taken for the client. One for each device that serves layouts.
/// Any thread, but where a function says otherwise.
class data_server final : public verbs::side_connections {
public:
    /// Connections are accepted on `shards`. `device`, whose contexts accept them, and the shards outlive it. `key` is secret, and another
    /// one at each start, or `epoch` is.
    data_server(verbs::device& device, std::span<shard* const> shards, const siphash_key& key,
                std::uint64_t epoch, const data_server_limits& limits = {});
    data_server(const data_server&) = delete;
    /// No serve() runs.
    ~data_server();

    /// The client, which calls itself `wire` (0: as the state layer does) and connects to `where`, a universal address. Its domain is made
    /// when it is asked for first, and it stays as long as somebody has what this yields, and so does the address. Errors: those of
    /// verbs::device::make_domain(); ENOBUFS: of data_server_limits::clients.
    result<std::shared_ptr<layout_client>> client(files::client_id id, clientid4 wire = 0,
                                                  std::string_view where = {});
    /// The same of one that has been asked for. Nobody: nullptr.
    std::shared_ptr<layout_client> known(files::client_id id);
    /// Under which it finds the data server: re_device_id of all its extents, and what GETDEVICEINFO is asked for.
    deviceid4 device_of(const layout_client& c) const noexcept;
    /// Whose device id it is, by what the client calls itself; nobody's: nullptr.
    std::shared_ptr<layout_client> find(clientid4 wire, const deviceid4& device) const;
    /// The client is no more: its connections end, and its device id is good for nothing.
    ///
    /// Completes when: each shard has been told. On cancel: as shard::run(). Errors: none; a shard that stops ends its
    /// connections itself. Lifetime: this outlives it. Shard: any.
    task<void> forget(files::client_id id);
    /// The same of each client that has had no layout, and asked for none, since the last call of this.
    ///
    /// Completes when: each shard has been told of each. On cancel, Errors, Lifetime, Shard: as forget().
    task<void> forget_idle();

    /// Whether a connect request is for a data server, by its private data, of whichever version: other protocols may listen on the
    /// same address.
    static bool is_meant(std::span<const std::byte> private_data) noexcept;
    bool takes(std::span<const std::byte> private_data) noexcept override { return is_meant(private_data); }
    /// Accepts or rejects, and has the connection until it ends.
    ///
    /// Completes when: it has ended, and no access of its peer to a file is under way, however long a disk takes; it
    /// counts until then. On cancel: it ends, likewise. Errors: none; rejections are counted and, some of them,
    /// logged. Lifetime: this outlives it. Shard: that of the request's context, one of those that this was made
    /// with.
    task<void> serve(std::unique_ptr<verbs::connect_request> request) override;
    /// Revokes what was granted of the device, and forgets all clients, whose domains go with that.
    task<void> end() override;
    /// Revokes all that was granted in the clients' domains: for end(). Set before the first client comes, if at all.
    std::function<task<void>()> revoke_all;

    /// What a data server has now, and did.
    struct counts {
        std::size_t clients = 0;      ///< that have a domain
        std::int64_t connections = 0; ///< now
        std::uint64_t accepted = 0;   ///< since the start
        std::uint64_t rejected = 0;   ///< since the start
    };
    /// Any thread.
    counts count() const noexcept;

private:
    class connection;
    struct known_client {
        std::shared_ptr<layout_client> client;
        std::size_t connections = 0;
        bool is_idle = false; // when forget_idle() looked last
    };
    // Of one shard.
    struct part {
        explicit part(shard& s) noexcept : where(s) {}
        shard& where;
        intrusive_list<list_hook> connections;
        gauge count;
        counter accepted, rejected;
        log_limiter failures_logged;
    };
    part* part_here(const reactor& r) noexcept;
    task<void> end_connections(const layout_client* of);
    using known_clients = std::unordered_map<files::client_id, known_client>;
    std::shared_ptr<layout_client> drop(known_clients::iterator of) noexcept;
    rdma_layout_reject admit(const rdma_layout_connect& asked, std::shared_ptr<layout_client>& client);
    void leave(files::client_id id) noexcept;
    task<void> reject(verbs::connect_request& request, rdma_layout_reject why);

    verbs::device& device_;
    const siphash_key key_;
    const std::uint64_t epoch_;
    const data_server_limits limits_;
    log_limiter refusals_logged_;
    std::deque<part> parts_;
    mutable std::mutex mutex_; // of the next four
    known_clients clients_;
    std::unordered_map<clientid4, files::client_id> wires_; // those that are not forgotten
    std::size_t connections_ = 0;
    std::uint32_t last_number_ = 0;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
