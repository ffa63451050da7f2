// SPDX-License-Identifier: Apache-2.0
// Owners of opens and of locks in minor version 0 (7530 9.1.7): the number of the last operation of each, and what it was answered.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/files/state_table.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What an operation of an owner is answered, as far as a repeat needs it.
struct v40_answer {
    nfsstat4 status = nfsstat4::ok;
    stateid4 id;
    change_info4 cinfo; // of OPEN, to the last
    std::uint32_t rflags = 0;
    bitmap4 attrset;
    open_delegation_type4 delegation_type = open_delegation_type4::none;
    stateid4 delegation;
    bool delegation_recalled = false;
    std::uint32_t export_id = 0;                      ///< of the file that was opened
    storage::handle file;                             ///< likewise, as its back end knows it
    std::shared_ptr<const files::lock_holder> holder; ///< of LOCK, if denied
};

/// Whether an answer uses up the number of the operation (7530 9.1.7).
bool moves_seqid(nfsstat4 status) noexcept;

/// What an operation's number makes of it.
enum class v40_verdict : std::uint8_t { run, repeat, bad_seqid };

/// One owner. Shard-local: of the state layer's shard.
class v40_owner {
public:
    /// An owner that `of` calls `called`, of opens or of locks. v40_owners::make() makes it known.
    v40_owner(files::client_id of, bool is_of_locks, std::span<const std::byte> called)
        : client(of), locks(is_of_locks), name(called.begin(), called.end())
    {
    }
    /// Of the operation `seqid`, while the caller has its turn().
    v40_verdict judge(nfs_opnum4 operation, std::uint32_t seqid) const noexcept;
    /// What it takes.
    std::size_t bytes() const noexcept;
    /// When its last operation was, or when it was looked at as one of no use.
    time_point used() const noexcept { return used_; }

    const files::client_id client;
    const bool locks;
    const std::vector<std::byte> name;
    bool is_new = true;     ///< has had no operation: any number is its first
    bool confirmed = false; ///< of opens: OPEN_CONFIRM came, or none is needed
    bool gone = false;      ///< whoever waited for its turn finds nobody
    v40_answer last;        ///< of a repeat

    /// A permit is the right to have an operation run.
    semaphore turn{1};
    std::size_t waiting = 0;

private:
    friend class v40_owners;
    using by_use_list = std::list<std::shared_ptr<v40_owner>>; // the one used longest ago first
    std::uint32_t seqid_ = 0;
    nfs_opnum4 operation_ = nfs_opnum4::illegal;
    time_point used_{};
    std::optional<stateid4> closed_, closing_;
    std::size_t counted_ = 0; // bytes
    by_use_list::iterator by_use_, by_use_of_peer_;
};

/// The right to have an operation of an owner run, or none. It is given back when this goes, on the owner's shard, whatever ends it
/// and wherever. Made on the owner's shard; owned by who runs the operation; any shard.
class v40_turn {
public:
    v40_turn() = default;
    /// None yet: taken() says so when there is one. `home` is the owner's shard.
    v40_turn(std::shared_ptr<v40_owner> owner, reactor& home);
    v40_turn(v40_turn&& from) noexcept = default;
    v40_turn& operator=(v40_turn&& from) noexcept
    {
        give_back();
        held_ = std::move(from.held_);
        return *this;
    }
    ~v40_turn() { give_back(); }
    /// A permit of the owner's was acquired.
    void taken() noexcept;
    /// Lets the owner's next operation go on, as the destruction does. Any shard.
    void give_back() noexcept;
    /// Whether it has a turn.
    explicit operator bool() const noexcept { return held_ != nullptr; }
    v40_owner& operator*() const noexcept;
    v40_owner* operator->() const noexcept { return &**this; }
    /// Whose turn it is; only if there is one.
    const std::shared_ptr<v40_owner>& owner() const noexcept;

private:
    class held;
    struct give_home {
        void operator()(held* h) const noexcept;
    };
    std::unique_ptr<held, give_home> held_;
};

/// All owners. Shard-local, as they are.
class v40_owners {
public:
    /// Of `limits` those of owners count.
    v40_owners(const siphash_key& key, const session_limits& limits) noexcept : key_(key), limits_(limits) {}
    /// Any thread.
    void set_limits(const changeable_session_limits& limits) noexcept
    {
        static_cast<changeable_session_limits&>(limits_) = limits;
    }

    /// The owner of that name; nullptr if there is none.
    std::shared_ptr<v40_owner> find(files::client_id client, bool locks,
                                    std::span<const std::byte> name) const;
    /// Whether an owner has no state and no turn.
    using idle_test = std::function<bool(const v40_owner&)>;
    /// What make() found or made.
    struct made {
        std::shared_ptr<v40_owner> owner;                                 ///< empty: there is no place
        session_table::shortage short_of = session_table::shortage::none; ///< then: which limit was met
    };
    /// Finds the owner, or makes it where there is none. Of a client with many, some of those that are idle go:
    /// have no state, as `is_idle` says, and no turn. So do those of its peer where that has all it may have,
    /// and, where all together have, those of the peers that have most; if that is not enough, there is no
    /// owner.
    made make(files::client_id client, std::string_view peer, bool locks, std::span<const std::byte> name,
              time_point now, const idle_test& is_idle);
    /// The owner is not idle now.
    void use(v40_owner& o, time_point now);
    /// The operation that was to run is answered.
    void finish(v40_owner& o, nfs_opnum4 operation, std::uint32_t seqid, const v40_answer& answer);
    /// The owner, whose turn the caller has, is about to close that open. From now on its stateid leads to it, as
    /// nobody knows when the table lets go of it.
    void begin_closing(const std::shared_ptr<v40_owner>& o, const stateid4& id);
    /// What came of that. An open that was closed leads to its owner until that closes another one.
    void end_closing(v40_owner& o, bool is_closed) noexcept;
    /// The owner that begin_closing() noted for this stateid; nullptr if none is known any more.
    std::shared_ptr<v40_owner> who_closed(const stateid4& id) const;
    /// Forgets an owner: whoever waits for its turn finds that it is gone.
    void drop(v40_owner& o);
    /// Forgets all owners of a client.
    void forget(files::client_id client);
    /// Owners of `client` that were not used since `before` and have no turn, the oldest first; each counts as used `now`. `most` are looked at, and
    /// it becomes what is left of that.
    std::vector<std::shared_ptr<v40_owner>> unused(files::client_id client, time_point before, time_point now,
                                                   std::size_t& most);
    /// How many clients have owners, and the one of them behind `last`, in turn; nobody where none has.
    std::size_t clients() const noexcept { return clients_.size(); }
    /// The client behind `last`, in the order of numbers; the first behind the last one.
    files::client_id next_client(files::client_id last) const noexcept;
    std::size_t size() const noexcept { return count_; }
    /// What all of them take.
    std::size_t bytes() const noexcept { return bytes_; }

private:
    static constexpr std::size_t few = 1024; // of a client: idle ones stay for a lease
    struct key_hash {
        siphash_key key;
        std::size_t operator()(const std::string& text) const noexcept
        {
            return siphash(key, std::as_bytes(std::span(text)));
        }
    };
    using by_use_list = v40_owner::by_use_list;
    struct of_peer {
        by_use_list by_use;
        std::size_t bytes = 0;
    };
    using peers = std::map<std::string, of_peer, std::less<>>;
    using by_bytes = std::set<std::pair<std::size_t, of_peer*>>;
    struct of_client {
        of_client(const siphash_key& key, peers::iterator p) : by_name(8, key_hash{key}), peer(p) {}
        std::unordered_map<std::string, std::shared_ptr<v40_owner>, key_hash> by_name;
        by_use_list by_use;
        const peers::iterator peer;
    };
    session_table::shortage shortage_of(const of_peer& peer) const noexcept;
    void count(v40_owner& o, of_peer& peer, std::size_t bytes) noexcept;
    bool look_at_first(by_use_list& of, const v40_owner& made, const idle_test& is_idle);
    void make_room_of_all(const v40_owner& made, const idle_test& is_idle);
    peers::iterator peer_of(std::string_view name);
    static std::string key_of(bool locks, std::span<const std::byte> name);
    static std::string key_of(const stateid4& id);

    const siphash_key key_;
    session_limits limits_;
    peers peers_;
    by_bytes most_; // the peers, by what theirs take
    std::map<files::client_id, of_client> clients_;
    std::unordered_map<std::string, std::weak_ptr<v40_owner>, key_hash> closed_{8, key_hash{key_}};
    std::size_t count_ = 0, bytes_ = 0;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
