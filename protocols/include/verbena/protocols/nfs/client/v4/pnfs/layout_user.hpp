// SPDX-License-Identifier: Apache-2.0
// What a client has for the RDMA layouts of all its files: the connections to data servers, who is told of recalls, and counts.
#pragma once

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/data_connections.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_file.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

/// When layouts are asked for, and how long I/O waits for them.
struct layout_options {
    data_connection_options connections; ///< of the connections to data servers
    /// I/O that can't go by RDMA fails, in place of going by NFS.
    bool requires_layouts = false;
    std::uint64_t least = std::uint64_t(1) << 20; ///< bytes of a file for which layouts are asked for
    std::uint64_t read_ahead = std::uint64_t(512)
                               << 20; ///< bytes that a LAYOUTGET asks for, from the one that is read on
    std::uint64_t write_ahead = std::uint64_t(64)
                                << 20; ///< likewise, but for no more than the file is to have
    /// How often a server that says "later" is asked again, the first time after `first_wait`, then after twice that and so on.
    unsigned tries = 4;
    duration first_wait = std::chrono::milliseconds(2);  ///< see `tries`
    duration most_wait = std::chrono::milliseconds(250); ///< the longest of these
    duration rest =
        std::chrono::seconds(1); ///< then, or after a loss, none is asked for the file for so long
    /// How long I/O waits for the connection to a data server that is being made, before it goes by NFS. With `requires_layouts` it waits until
    /// there is one, or can't be one.
    duration connection_patience = duration::zero();
};

/// What I/O of a client went which way.
struct layout_user_counts {
    std::uint64_t read_by_rdma = 0;                        ///< bytes, as the next three
    std::uint64_t read_by_nfs = 0;                         ///< bytes that went by NFS
    std::uint64_t written_by_rdma = 0;                     ///< bytes
    std::uint64_t written_by_nfs = 0;                      ///< also again, after a loss
    std::uint64_t got = 0;                                 ///< answers to LAYOUTGET that were used
    std::uint64_t recalled = 0;                            ///< recalls that were answered with OK
    std::uint64_t returned = 0;                            ///< LAYOUTRETURNs
    std::uint64_t lost = 0;                                ///< files whose layouts were lost
    std::uint64_t commits = 0;                             ///< LAYOUTCOMMITs
    std::array<std::uint64_t, reasons_by_nfs> by_reason{}; ///< reads and writes that went by NFS
};

/// Made before client::open_session(), which tells the server that this client uses layouts. The client has a callback_service, or there are no layouts. Files are
/// closed or destroyed before it; then close(), then client::close().
///
///     nfs::v4::pnfs::layout_user layouts(client, iwarp_context, buffers);
///     auto opened = co_await client.open(found, nfs::v4::share4::access_read);
///     auto f = layouts.use(std::move(*opened));
///     auto read = co_await f->read(0, 1 << 20);
///
/// Shard: the client's, whose reactor is that of `device`.
class layout_user final : private layout_holder {
public:
    /// All outlive it. As data_connections' constructor.
    layout_user(client& of, verbs::context& device, buffer_pool& pool, layout_options options = {});
    layout_user(const layout_user&) = delete;
    ~layout_user();

    /// Opens `f`, a file of the client, for I/O by layouts. What is returned owns it.
    std::unique_ptr<layout_file> use(std::unique_ptr<file> f);
    /// Ends the connections to data servers, and gives back what the server may have given although no answer came. Completes when: they have ended,
    /// and the server has answered. On cancel: likewise. Errors: none. Lifetime: this outlives it. Shard: the client's.
    task<void> close();

    const layout_user_counts& counts() const noexcept { return counts_; }
    const layout_options& options() const noexcept { return options_; }
    /// For figures, and for tests.
    data_connections& connections() noexcept { return connections_; }
    /// Files that have layouts.
    std::size_t holders() const noexcept;

private:
    friend class layout_file;
    friend struct file_layout;
    struct file_system {
        fsid4 id;
        bool has_type = false;
        std::uint64_t block = 0;
    };
    task<result<file_system>> look_at(const v4::node& of);
    file_layout* find(const known_handle& object) const noexcept;
    void run_beside(task<void> made);
    task<void> give_all_back(std::vector<std::shared_ptr<file_layout>> those, layoutrecall_type4 type,
                             known_handle of);
    task<void> give_some_back(const std::vector<std::shared_ptr<file_layout>>& those, std::size_t& next);
    std::vector<std::shared_ptr<file_layout>> holding() const;

    nfsstat4 recalled(const CB_LAYOUTRECALL4args& args) override;
    void keep_at_most(std::size_t most) override;
    task<void> free_what_is_revoked() override;
    void cannot_be_called() override;
    void changed(const known_handle& object) noexcept override;

    static constexpr std::size_t max_file_systems = 64;
    static constexpr std::size_t given_back_at_once = 16; // files
    client& client_;
    buffer_pool& pool_;
    const layout_options options_;
    data_connections connections_;
    std::vector<file_layout*> files_;       // each once, however often it is open
    std::vector<file_system> file_systems_; // that were looked at
    bool is_in_doubt_ = false;              // whether the server has given layouts that nobody heard of
    bool takes_stats_ = true;               // whether it has LAYOUTSTATS
    bool takes_errors_ = true;              // likewise LAYOUTERROR
    std::size_t lanes_ = 0;
    std::uint64_t uses_ = 0;
    layout_user_counts counts_;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
