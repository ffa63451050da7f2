// SPDX-License-Identifier: Apache-2.0
// What is exported, to whom, and as whom a caller acts there.
//
// An export is safe unless it says otherwise: without a list of clients it is for this host only, and
// root is nobody in particular.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/client_list.hpp>
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/nfs/server/pseudo_tree.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/rpc/principal.hpp>
#include <verbena/protocols/storage/file_backend.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Who is at work on an export: calls, and looks at it that outlive them. Each shard counts its own in a line of memory that it alone
/// writes; whoever is none of them shares one.
class export_users {
public:
    /// Shards that count apart. Those beyond count where threads do that are no shards.
    static constexpr std::size_t usual_shards = 8;
    /// For so many shards.
    explicit export_users(std::size_t shards = usual_shards) : shards_(shards), lines_(shards + 1) {}

    /// A call of that shard, on it, begins.
    void enter(std::size_t shard) noexcept { count(shard, 1); }
    /// It has ended. On the same shard.
    void leave(std::size_t shard) noexcept { count(shard, -1); }
    /// True says something where nobody can begin any more. Any thread.
    bool none() const noexcept;

private:
    struct alignas(64) line {
        std::atomic<std::int64_t> users{0};
    };
    void count(std::size_t shard, std::int64_t change) noexcept
    {
        if (shard >= shards_) {
            lines_[shards_].users.fetch_add(change, std::memory_order_release);
            return;
        }
        auto& users = lines_[shard].users;
        users.store(users.load(std::memory_order_relaxed) + change, std::memory_order_release);
    }
    const std::size_t shards_;
    std::vector<line> lines_;
};

/// An export: what it serves, to whom, as whom.
struct export_options {
    /// uid and gid of those who are squashed, unless said otherwise
    static constexpr std::uint32_t nobody = 65534;

    /// Stands in every file handle, so it must stay the same over restarts. 0: made from `pseudo`.
    std::uint32_t id = 0;
    /// What clients mount: absolute, no empty, "." or ".." component, no '/' at the end ("/" alone is good).
    std::string pseudo = "/export";
    storage::file_backend* backend = nullptr; ///< outlives the table and every call
    client_list clients;                      ///< whose calls are served; without an entry: this host's
    std::vector<std::string> transports;      ///< allowed ones ("tcp", "iwarp"...); none: all
    bool read_only = false;                   ///< what changes the export is answered ROFS
    bool root_squash = true;                  ///< uid 0 acts as anonuid and anongid
    bool all_squash = false;                  ///< everybody does
    std::uint32_t anonuid = nobody;           ///< as whom squashed callers act
    std::uint32_t anongid = nobody;           ///< and with which group
    /// Processes of this host may change the files without asking, as may exports of the same tree that share no state with this one (`space`):
    /// version 4's clients get delegations to read alone, and those only where the back end has leases.
    bool local_writers = true;
    /// Files of it are also reached by layouts (server_commons::pnfs), where the back end can map them.
    bool pnfs = false;
    bool secure = false; ///< the peer's port must be below 1024; RDMA clients have none such
    /// Counts what calls do to it; nullptr: nobody wants to know.
    std::shared_ptr<export_traffic> traffic = {};
    /// Exports of one space are those of one tree: what clients have open, locked and delegated by one of them counts for all. It is
    /// the id of the first of them, if no other tree has that one. 0: add() sets it; else it stays as it was in the list before.
    std::uint32_t space = 0;
    /// Made by add() unless it is there: those of the list before, of an export that stays; or for more shards than usual.
    std::shared_ptr<export_users> users = {};

    /// Where `shard` counts; nullptr where nothing is counted.
    export_counters* counters(unsigned shard) const noexcept
    {
        return traffic ? traffic->on(shard) : nullptr;
    }
};

/// An export that somebody is at work on: its back end stays open. Made, copied and destroyed on one shard. The export's list is kept
/// by somebody else (export_table::use).
class export_ref {
public:
    export_ref() noexcept = default;
    /// `e` stands in a list that the calling shard uses.
    export_ref(const export_options& e) noexcept;
    export_ref(const export_ref& other) noexcept;
    export_ref(export_ref&& other) noexcept
        : exported_(std::exchange(other.exported_, nullptr)), shard_(other.shard_)
    {
    }
    export_ref& operator=(export_ref other) noexcept
    {
        std::swap(exported_, other.exported_);
        std::swap(shard_, other.shard_);
        return *this;
    }
    ~export_ref()
    {
        if (exported_ != nullptr && exported_->users)
            exported_->users->leave(shard_);
    }

    const export_options& operator*() const noexcept { return *exported_; }
    const export_options* operator->() const noexcept { return exported_; }
    /// The same export, be it of different lists.
    friend bool operator==(const export_ref& a, const export_ref& b) noexcept
    {
        return a.exported_ == b.exported_ ||
               (a.exported_ != nullptr && b.exported_ != nullptr && a.exported_->id == b.exported_->id);
    }
    friend bool operator==(const export_ref& a, std::nullptr_t) noexcept { return a.exported_ == nullptr; }

private:
    const export_options* exported_ = nullptr;
    std::size_t shard_ = 0;
};

/// For people: the export, and the file by the name that its back end gave it, which costs no system call.
void describe(const export_options& exported, const storage::handle& file, request_report& into) noexcept;

class export_table;

/// Why a peer may not use an export.
enum class access_refusal : std::uint8_t { none, address, transport, port };

/// Refusals by reason. Written by one shard, read from any thread.
struct access_counters {
    counter address;   ///< refused for the peer's address
    counter transport; ///< for the transport that it came by
    counter port;      ///< for its port

    /// One refusal more. On the shard.
    void note(access_refusal reason) noexcept;
};

/// Whether `peer` may use the export. A peer of transport "loop" is in this process, thus on this host.
access_refusal check_access(const export_options& exported, const rpc::peer& peer, host_addresses& host);
/// Whether `peer` may ask for a handle of the export: as check_access(), by any transport, since kernels
/// speak MOUNT over TCP even for a mount by RDMA. The handle serves over the export's transports only.
access_refusal check_mount_access(const export_options& exported, const rpc::peer& peer,
                                  host_addresses& host);

/// Whether any export is for the peer's address.
bool is_for(const export_table& exports, const rpc::peer& peer, host_addresses& host);

class user_groups;

/// As whom a caller that claims to be `claimed` acts: with `known`, unless that is empty, else with the groups that it
/// claims. Who is squashed has none. `known` counts as it is, and is shared: root's group, where it is squashed, is
/// none of them (without_root()). With manage_gids caller_groups knows them.
storage::credential squash(const export_options& exported, const rpc::principal& claimed,
                           const storage::shared_groups& known = {}) noexcept;
/// `groups`, which are sorted and begin with root's, with `anongid` in its place. Throws std::bad_alloc.
storage::shared_groups without_root(const std::vector<std::uint32_t>& groups, std::uint32_t anongid);

/// Who nobody is: chown(2) and setfsuid(2) read it as "leave it".
inline constexpr std::uint32_t no_id = ~std::uint32_t(0);

/// The exports of a server, as they are between two reloads. Filled, then read from any shard and never changed.
class export_list {
public:
    static constexpr std::size_t max_exports = 4096;

    export_list();
    /// To follow `before`: what stays keeps its number in the pseudo file system. `now`: nanoseconds since 1970, which those directories
    /// have changed at.
    export_list(const export_list& before, std::int64_t now);
    export_list(const export_list&) = delete;

    /// EINVAL for a bad or repeated pseudo-path or id, or handles that can't be signed; the context
    /// says which rule.
    result<void> add(export_options options);

    /// nullptr if there is none. The export lives as long as the list.
    const export_options* by_id(std::uint32_t id) const noexcept;
    /// An export and its number in a space.
    using of_number = std::pair<std::uint32_t, const export_options*>;
    /// Those of one space, in the order of add().
    std::span<const of_number> of_space(std::uint32_t space) const noexcept;

    /// What by_path() found.
    struct match {
        const export_options* exported; ///< lives as long as the list
        std::string_view rest;          ///< of the path asked for, behind the export's; without '/' in front
    };
    /// The export with the longest pseudo-path that is `path` or one of its ancestors.
    std::optional<match> by_path(std::string_view path) const noexcept;

    /// An export whose pseudo-path lies in another one's: it covers what that one has at this path.
    struct nest {
        const export_options* outer;
        std::string_view
            path; ///< of the inner one's pseudo-path, what stands behind the outer one's; without '/' in front
        const export_options* inner;
    };
    /// The export whose pseudo-path is that of `outer` and `name` behind it: it covers what the root of `outer` has by
    /// this name. nullptr if there is none.
    const export_options* nested(const export_options& outer, std::string_view name) const noexcept;
    /// The exports within `outer`, at any depth, but for those within another one of them.
    std::span<const nest> nests_of(const export_options& outer) const noexcept;
    /// Whether any export lies within this one.
    bool has_nested(const export_options& outer) const noexcept { return !nests_of(outer).empty(); }
    /// The one whose inner export this is; nullptr if it lies in no other one.
    const nest* nest_around(const export_options& inner) const noexcept;

    /// In the order of add().
    const std::deque<export_options>& all() const noexcept { return exports_; }
    /// The pseudo file system of version 4.
    const pseudo_tree& places() const noexcept { return places_; }

private:
    friend class export_table;
    // A shard's calls, which it alone counts.
    struct alignas(64) calls_here {
        std::atomic<std::uint64_t> calls{0};
    };
    static bool comes_before(const nest& one, const nest& other) noexcept;
    void note_nest(const nest& made);
    void note_nests(const export_options& added);
    std::uint32_t space_of(const export_options& added) const noexcept;

    std::deque<export_options> exports_; // in the order of add()
    std::vector<nest> nests_;            // sorted
    std::vector<of_number> ids_;         // sorted
    std::vector<of_number> spaces_;      // sorted by their numbers
    pseudo_tree places_;
    const pseudo_tree* before_ = nullptr; // of the list before, until this one is published
    std::unique_ptr<calls_here[]> calls_;
};

/// The exports of a server, which a reload may exchange while it serves. Each shard reads a list of its own choice without a lock: all have
/// the same one, but for the moment in which a reload goes round. What an export_list says of a question this says as the calling
/// shard's list does; its answers last as long as a `use` that was begun before.
class export_table {
public:
    static constexpr std::size_t max_exports = export_list::max_exports;

    export_table();
    export_table(export_table&&) noexcept;
    export_table& operator=(export_table&&) noexcept;
    ~export_table();

    /// Before the first call.
    result<void> add(export_options options);

    /// @name Of the calling shard's list
    /// As export_list's, of now(). What is found lives as long as the list: a call holds it by begin_use().
    /// @{
    using of_number = export_list::of_number;
    using match = export_list::match;
    using nest = export_list::nest;
    /// The calling shard's. Threads that are no shard have the newest, and no way to keep it: they ask newest().
    const export_list& now() const noexcept;
    const export_options* by_id(std::uint32_t id) const noexcept { return now().by_id(id); }
    std::span<const of_number> of_space(std::uint32_t space) const noexcept { return now().of_space(space); }
    std::optional<match> by_path(std::string_view path) const noexcept { return now().by_path(path); }
    const export_options* nested(const export_options& outer, std::string_view name) const noexcept
    {
        return now().nested(outer, name);
    }
    std::span<const nest> nests_of(const export_options& outer) const noexcept
    {
        return now().nests_of(outer);
    }
    bool has_nested(const export_options& outer) const noexcept { return now().has_nested(outer); }
    const nest* nest_around(const export_options& inner) const noexcept { return now().nest_around(inner); }
    const std::deque<export_options>& all() const noexcept { return now().all(); }
    const pseudo_tree& places() const noexcept { return now().places(); }
    /// @}

    /// A call has one: the lists that it sees live as long. Begun and ended on one shard.
    class use {
    public:
        use() noexcept = default;
        use(const use& other) noexcept : calls_(other.calls_) { count(1); }
        use(use&& other) noexcept : calls_(std::exchange(other.calls_, nullptr)) {}
        use& operator=(use other) noexcept
        {
            std::swap(calls_, other.calls_);
            return *this;
        }
        ~use() { count(-1); }

    private:
        friend class export_table;
        explicit use(std::atomic<std::uint64_t>& calls) noexcept : calls_(&calls) { count(1); }
        // Written by one thread alone.
        void count(int change) noexcept
        {
            if (calls_ != nullptr)
                calls_->store(calls_->load(std::memory_order_relaxed) + std::uint64_t(change),
                              std::memory_order_release);
        }
        std::atomic<std::uint64_t>* calls_ = nullptr;
    };
    /// Keeps the lists that the calling shard has meanwhile.
    use begin_use() const noexcept;

    // --- Reload: one thread at a time, which is no shard.

    /// Hears on its shard that it has another list.
    class listener : public list_hook {
    public:
        /// On the listener's shard, behind take(). It must not wait.
        virtual void exports_changed() noexcept = 0;

    protected:
        ~listener() = default;
    };
    /// On the listener's shard; so is its end.
    void tell(listener& l) const noexcept;

    /// The list that publish() gave last. Any thread.
    std::shared_ptr<const export_list> newest() const;
    /// What threads have that are none of the first `shards` shards. Those take it by take().
    void publish(std::shared_ptr<export_list> made, std::size_t shards);
    /// On each shard, in the order of publish(): from now on it has that list. Throws nothing.
    void take(const export_list& made) noexcept;
    /// Drops the lists that no shard has and no call refers to, the oldest first. How many are left besides the newest.
    std::size_t drop_old();

    /// Has callers' groups come from `groups`, which outlives all calls; to be set before the first one. Without it
    /// they come from the calls.
    void look_up_groups(user_groups& groups) noexcept { groups_ = &groups; }
    user_groups* groups() const noexcept { return groups_; }

private:
    struct shared;
    std::unique_ptr<shared> shared_;
    user_groups* groups_ = nullptr;
};

/// Takes the first component off `path`, where '/' may be repeated; empty behind the last one.
std::string_view next_component(std::string_view& path) noexcept;

/// The id that an export gets from its pseudo-path.
std::uint32_t export_id_of(std::string_view pseudo) noexcept;

/// EPERM if AUTH_SYS, in which a caller names itself, would be open to strangers: `exported` admits
/// globally routable clients, and a listener stands at (or, being unspecified, includes) a globally
/// routable address. The operator can insist with --allow-public.
result<void> refuse_public(const export_options& exported, std::span<const ip_address> listeners,
                           const host_addresses& host);

} // namespace verbena::nfs

#pragma GCC visibility pop
