// SPDX-License-Identifier: Apache-2.0
// Layouts that clients have: which ranges of which file, and the grants of memory that go with them.
// docs/internals/pnfs.md.
#pragma once

#include <verbena/core/adjustable.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/files/recallable.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

/// A client as data servers know it: the domain in which its keys are good. Its layouts and its connections share
/// it, on any shard; it goes with the last of them.
struct layout_client {
    /// `w` is what the client calls itself, `c` what the state layer does. `at` is the address of the data
    /// server, and `locks` says that the device locks memory for each grant.
    layout_client(files::client_id c, std::unique_ptr<verbs::protection_domain> d, std::uint32_t n = 0,
                  clientid4 w = 0, std::string at = {}, bool locks = false) noexcept
        : id(c),
          wire(w == 0 ? c : w),
          number(n),
          where(std::move(at)),
          locks_memory(locks),
          domain(std::move(d))
    {
    }
    const files::client_id id;
    const clientid4 wire;       ///< what the client calls itself
    const std::uint32_t number; ///< at its data server
    const std::string where; ///< the universal address that it connects to: its keys are of the device there
    const bool locks_memory; ///< the device has what is granted registered, which counts as locked memory
    /// owned; its last user on whichever shard destroys it
    const std::unique_ptr<verbs::protection_domain> domain;
    std::atomic<std::size_t> grants{0};      ///< that it has, or that are being made
    std::atomic<std::uint64_t> locked{0};    ///< bytes of them, where it locks_memory
    std::atomic<std::size_t> connections{0}; ///< to data servers, of all shards
};

/// What layouts may take, of one client and in all.
struct layout_limits {
    adjustable<std::size_t> layouts = 65536;          ///< pairs of a client and a file
    adjustable<std::size_t> layouts_of_client = 4096; ///< pairs with a file
    std::size_t layouts_of_file = 256;                ///< clients that have one
    std::size_t ranges = 64;              ///< of one file that a client has, and answers that gave them
    std::size_t grants_of_client = 65536; ///< grants that it may have at once
    std::size_t parts = 256;              ///< extents with memory in one answer
    std::uint64_t bytes = std::uint64_t(512) << 20; ///< in one answer
    /// Bytes that a device has registered for layouts of one client, and of all. What is in two layouts counts twice.
    std::uint64_t locked_of_client = std::uint64_t(2) << 30;
    std::uint64_t locked = std::uint64_t(16) << 30; ///< of all clients
};

/// What there is of layouts, and was.
struct layout_counts {
    std::int64_t segments = 0; ///< answers to LAYOUTGET that clients have
    std::uint64_t granted = 0; ///< of them, since the start
    std::uint64_t revoked = 0; ///< those whose grants were taken back
};

/// Where recalls of layouts go.
class layout_recaller {
public:
    /// The client is to return all that it has of the file. On the home shard of the file, amid a decision: what is to be sent is
    /// sent later.
    virtual void recall_layout(const files::recall_notice& n) noexcept = 0;
    /// The client is to give back what it can spare, so that layouts of `keep` files are left to it. Likewise.
    virtual void recall_any_layout(files::client_id client, std::size_t keep) noexcept = 0;

protected:
    ~layout_recaller() = default;
};

/// The kind of recallable state that an RDMA layout is (draft-hellwig-nfsv4-rdma-layout-00). One for all homes.
///
/// Other clients' READs, WRITEs, locks and plain opens need no recall: the server reads and writes the same memory. Opens that deny
/// access, and changes of size, place and attributes, do (2.4.6, 2.4.7, section 3), the holder's own among them.
class layouts final : public files::recallable_kind {
public:
    /// `recaller` outlives it.
    layouts(unsigned homes, layout_recaller& recaller, const layout_limits& limits = {});
    layouts(const layouts&) = delete;
    ~layouts();

    /// What get() is asked for.
    struct request {
        std::shared_ptr<layout_client> client;          ///< who is to have it
        files::exported_file file;                      ///< of which file
        files::stateid by;                              ///< as files::hold_request::by
        files::lock_type type = files::lock_type::read; ///< to read, or to write as well
        std::uint64_t offset = 0;                       ///< of the first byte
        std::uint64_t length = 0;                       ///< bytes that the client asks for
        std::uint64_t minimum = 0; ///< bytes from `offset` on that the client needs, where the file has them
        std::size_t extents = SIZE_MAX;           ///< that the answer may have, not 0
        storage::file_backend* backend = nullptr; ///< of the file's export; outlives the layout
        const storage::request* who = nullptr;    ///< by whose rights; outlives the task
        const storage::handle* handle = nullptr;  ///< the back end's, of the file
    };
    /// A range of the file, and where it lies for the peer.
    struct extent {
        /// What bytes of an extent are.
        enum class kind : std::uint8_t {
            data,
            hole,
            beneath, ///< to be read alone, while what comes behind it, of the same bytes, has not been written
            fresh,   ///< not the file's yet: storage::mapping::part::beneath
        };
        std::uint64_t offset = 0;     ///< in the file
        std::uint64_t length = 0;     ///< bytes
        kind is = kind::data;         ///< what they are
        verbs::remote_segment memory; ///< unless it is a hole
    };
    /// What get() gives.
    struct granted {
        files::stateid id;           ///< the layout's
        std::vector<extent> extents; ///< in order, without gaps
        storage::attributes attrs;   ///< of the file, when its memory was looked at
    };
    /// Gives the client a layout: what it answers may be used until it is recalled.
    ///
    /// Completes when: the state layer has the range, the back end has mapped it, and the device has made the grants. On cancel: it
    /// goes on to its end, but where the home of the file stops: ECANCELED. Errors: ENODATA: the file ends before; ERANGE: the minimum
    /// is more than it may give, E2BIG: than fits in so many extents; files::errc::busy also for limits, and where another
    /// client is about to fill a hole of the range; files::errc::recalled also where all that the client has of the file is
    /// being taken; those of files::state_table::hold(), of file_backend::map() and of protection_domain::make_grants();
    /// then the client has nothing more than before.
    /// Lifetime: `state` and what `r` points at outlive the task. Shard: any.
    task<result<granted>> get(state_home& state, const request& r);

    /// Where get() was refused as in_way: has others return what excludes it.
    ///
    /// Completes when: nothing is in its way that can be made to go. On cancel: ECANCELED. Errors: busy, where they don't in time; the
    /// store's. Lifetime: as get(). Shard: any.
    task<result<void>> make_way(state_home& state, const request& r);

    /// Gives a range back, as far as answers to get() lie in it as a whole: of others the client keeps all, which is more than
    /// it needs. Yields the next stateid, or nothing where nothing is left. On the file's home, as files::state_table::give_back().
    result<std::optional<files::stateid>>
    give_back(files::state_table& table, files::client_id client, const files::stateid& id,
              const files::exported_file& file, const files::byte_range& bytes,
              std::optional<files::lock_type> type, files::loss why = files::loss::returned);

    /// Waits until what was given back by `id` is out of its client's reach: what the client writes by another way then stays on
    /// top, also where a connection of its still brings a late RDMA Write. A second at most; where stores were granted as long as their disk
    /// takes.
    ///
    /// Completes when: that is so. On cancel: at once. Errors: none. Lifetime: `state` outlives the task. Shard: any.
    task<void> until_back(state_home& state, files::exported_file file, files::stateid id);

    /// All that the client has, of files that it knows by the export `via`, and to read or to write alone, if these are given.
    ///
    /// Completes when: each home has done so, and that is out of the client's reach, as until_back(). On cancel: as shard::run(). Errors: busy,
    /// as give_back(). Lifetime: `state` outlives the task. Shard: any.
    task<result<void>> give_back_all(state_home& state, files::client_id client,
                                     std::optional<std::uint32_t> via, std::optional<files::lock_type> type);

    /// Whether the client may ask for that, before anything is made for it.
    ///
    /// Completes when: the file's home has looked. On cancel: as shard::run(). Errors: those of files::state_table::hold(), but for what can
    /// be made to go and what is over soon. Lifetime: as get(), and `r` needs no client. Shard: any.
    task<result<void>> may_ask(state_home& state, files::client_id client, const request& r);

    /// A file's bytes that a client is about to have committed: they are not fenced before this goes.
    class commit {
    public:
        /// The stores that bytes were written to.
        using stores = std::vector<std::shared_ptr<verbs::byte_store>>;
        /// For layouts::begin_commit(): `of` counts commits, `keeps` lives as long as this.
        explicit commit(std::atomic<unsigned>& of, std::shared_ptr<void> keeps, stores written) noexcept;
        commit(commit&&) noexcept = default;
        ~commit();
        /// Why bytes that the client wrote by its layout are lost, if any are: to be asked once they are durable otherwise, and so until
        /// the layout is given back.
        std::error_code failure() const noexcept;

    private:
        std::shared_ptr<void> keeps_;
        std::atomic<unsigned>* of_;
        stores stores_;
    };
    /// Of what the client has by `id`. On the file's home; what it yields may go on any shard. Errors: as
    /// files::state_table::give_back(); ENOENT: none of `bytes`, nor those of `all_of`, are in a layout to write; EBADF: it is one to read.
    result<commit> begin_commit(files::state_table& table, files::client_id client, const files::stateid& id,
                                const files::exported_file& file, const files::byte_range& bytes,
                                std::span<const files::byte_range> all_of);

    /// Any thread.
    layout_counts counts() const noexcept;

    // recallable_kind
    std::string_view name() const noexcept override { return "layout"; }
    bool conflicts(files::lock_type type, files::operation op) const noexcept override;
    bool conflicts_with_holder(files::lock_type type, files::operation op) const noexcept override;
    bool hole_conflicts(files::operation op) const noexcept override;
    bool unshared_conflicts(files::operation op) const noexcept override;
    bool is_numbered() const noexcept override { return true; }
    bool ends_with_lease() const noexcept override { return true; }
    bool has_room(const files::stateid& id) const noexcept override;
    void recall(const files::recall_notice& n) noexcept override { recaller_.recall_layout(n); }
    void recall_any(files::client_id client, std::size_t keep) noexcept override
    {
        recaller_.recall_any_layout(client, keep);
    }
    task<result<void>> fence(const files::lost_state& what) override;
    /// Parallel LAYOUTGETs bear one number (RFC 8881 12.5.3).
    std::uint32_t most_behind() const noexcept override { return 64; }
    /// Of what is given from now on. Any thread.
    void set_most(std::size_t of_all, std::size_t of_client) noexcept
    {
        limits_.layouts = of_all;
        limits_.layouts_of_client = of_client;
    }
    std::size_t most() const noexcept override { return limits_.layouts; }
    std::size_t most_of_client() const noexcept override { return limits_.layouts_of_client; }
    std::size_t most_of_file() const noexcept override { return limits_.layouts_of_file; }
    std::size_t most_ranges() const noexcept override { return limits_.ranges; }

private:
    struct segment;
    struct record;
    struct begun;
    struct mapped;
    class unfinished;
    using key = std::array<std::byte, 12>; // a stateid without its number
    // Of one home, and used there alone, but for what is counted.
    struct home {
        std::map<key, std::shared_ptr<record>> records;
        gauge segments;
        counter granted, revoked;
    };
    home& home_of(const files::stateid& id) noexcept;
    files::hold_request hold_of(files::client_id client, const request& r) noexcept;
    static task<result<void>> wait_until_back(home* at, std::vector<files::stateid> ids, time_point until);
    result<begun> begin(files::state_table& table, const files::hold_request& hold, const request& r);
    task<result<void>> map(const request& r, const files::byte_range& bytes, mapped& made);
    task<result<void>> map_some(const request& r, const files::byte_range& bytes, mapped& made);
    bool add(const request& r, const storage::mapping& got, const files::byte_range& bytes,
             mapped& made) const;
    bool is_being_filled(files::state_table& table, const begun& b, const mapped& made) const;
    result<files::stateid> end(files::state_table& table, const begun& b, mapped& made) noexcept;
    static std::optional<files::byte_range> first_free(const record& of, files::byte_range bytes,
                                                       files::lock_type type) noexcept;

    layout_limits limits_;
    layout_recaller& recaller_;
    bool lock(const request& r, mapped& made) noexcept;
    void unlock(layout_client& c, std::uint64_t bytes) noexcept;
    std::vector<home> homes_;
    std::atomic<std::uint64_t> locked_{0};
    log_limiter refusals_logged_;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
