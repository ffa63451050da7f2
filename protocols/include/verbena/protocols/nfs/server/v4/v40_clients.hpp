// SPDX-License-Identifier: Apache-2.0
// Clients of minor version 0 (7530 16.33, 16.34): who there is, by name and by number. What they have open is the state layer's.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/nfs/server/v4/callback_paths.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The clients of minor version 0, as SETCLIENTID and SETCLIENTID_CONFIRM make them (RFC 7530 16.33, 16.34).
/// Shard-local: of the state layer's shard.
class v40_clients {
public:
    /// Of `limits` those of clients count.
    v40_clients(const siphash_key& key, std::uint32_t epoch, duration lease, const session_limits& limits);
    /// Any thread.
    void set_limits(const changeable_session_limits& limits) noexcept
    {
        static_cast<changeable_session_limits&>(limits_) = limits;
    }

    /// What set() answers.
    struct made {
        nfsstat4 status = nfsstat4::ok; ///< of the operation
        clientid4 client = 0;           ///< which the answer names
        verifier4 confirm{};            ///< which SETCLIENTID_CONFIRM has to repeat
        std::string netid, address;     ///< if clid_inuse: where the one that has the name is called
        std::string held_by;            ///< with a refusal for the name: where that one came from
        files::client_id rival =
            files::nobody; ///< whose state is to be asked: ask again with it as `yields` where it gives way
        session_table::shortage short_of = session_table::shortage::none;
    };
    /// SETCLIENTID by `who` from the host `from`, to be called at `calls`. `yields`: this client of the state layer doesn't keep its name to itself, as its lease is over or it
    /// has nothing.
    made set(const SETCLIENTID4args& args, principal_digest who, std::string_view from,
             const std::optional<callback_place>& calls, time_point now, files::client_id yields);

    /// What confirm() finds.
    struct confirmation {
        nfsstat4 status = nfsstat4::ok; ///< of the operation
        bool confirms =
            false; ///< a new one: `older` is to go, a client made with `key`, and end_confirming() called
        files::client_id rival = files::nobody; ///< as of set()
        std::string held_by;                    ///< likewise
        std::string name;                       ///< of that one, or of the new one
        std::string from;                       ///< the address of the new one
        std::string key;                        ///< in the recovery store
        files::client_id older = files::nobody;
        files::client_id moved = files::nobody; ///< a known one, which is called elsewhere from now on
        std::optional<callback_place> calls;    ///< where, of a new one and of one that moved
    };
    /// The one that has the name is asked about again, with `yields`: it may have come back since set().
    confirmation begin_confirming(clientid4 id, const verifier4& confirm, principal_digest who,
                                  time_point now, files::client_id yields);
    /// `state`: the client in the state layer, or nobody where none could be made.
    void end_confirming(clientid4 id, files::client_id state) noexcept;

    /// The client of that number in the state layer, if it is confirmed; else nobody.
    files::client_id state_of(clientid4 id) const noexcept;
    /// The same by its name.
    files::client_id state_of_name(std::span<const std::byte> name) const;
    /// Whether some client is that one in the state layer.
    bool knows(files::client_id state) const noexcept { return by_state_.contains(state); }
    /// A confirmed one, for people.
    struct client_report {
        std::string name; ///< its own for itself: any octets
        clientid4 client = 0;
        std::string from; ///< the address that it came from
        files::client_id state = files::nobody;
    };
    /// Up to `most` confirmed ones in the order of their names in the state layer, from the one behind `last` on.
    std::vector<client_report> clients_behind(files::client_id last, std::size_t most) const;
    /// Confirmed ones of the group of `from`.
    std::vector<files::client_id> states_of(std::string_view from) const;
    /// Whose limits a confirmed one shares; empty where there is none.
    std::string_view peer_of(files::client_id state) const noexcept;
    /// Whether that client is one of the peer at `from`.
    bool is_of(files::client_id state, std::string_view from) const;
    /// As session_table's.
    bool may_expire_lapsed(session_table::shortage of, std::string_view from, time_point now);
    /// The client is no more.
    void forget(files::client_id state);
    /// Those that were not confirmed within a lease.
    void drop_unconfirmed(time_point now);
    /// With those that are not confirmed.
    std::size_t size() const noexcept { return count_; }

private:
    struct record;
    struct entry;
    using names = std::map<std::string, entry>;
    struct peer_entry {
        std::size_t clients = 0;
        std::list<names::iterator> unconfirmed; // the oldest first
        seldom last_expired;
    };
    using peers = std::map<std::string, peer_entry>;
    using states = std::map<files::client_id, names::iterator>;
    struct record {
        record() noexcept;
        clientid4 id = 0;
        verifier4 verifier{};
        verifier4 confirm{};
        principal_digest who = 0;
        peers::iterator peer;
        time_point asked{};
        std::string from;
        std::string netid, address;          // of callbacks, as they were said
        std::optional<callback_place> calls; // likewise, as they are used
        files::client_id state = files::nobody;
        bool confirming = false;
        states::node_type in_states; // for when it is confirmed: no memory is needed then
        std::list<names::iterator>::iterator by_age, by_age_of_peer; // if unconfirmed
    };
    struct entry {
        std::optional<record> confirmed, unconfirmed;
    };
    static nfsstat4 stands_against(const record& holder, principal_digest who, const verifier4& verifier,
                                   const std::string& group) noexcept;
    clientid4 make_id();
    verifier4 make_confirm();
    std::string key_of(std::string_view name) const;
    void drop_unconfirmed_of(names::iterator at);
    void drop_confirmed_of(names::iterator at);
    void move_to(record& confirmed, peers::iterator to) noexcept;
    void erase_if_empty(names::iterator at);
    bool drop_first(std::list<names::iterator>& of);
    session_table::shortage make_room(peer_entry& peer, time_point now);

    const siphash_key key_;
    const std::uint32_t epoch_;
    const duration lease_;
    session_limits limits_;
    names names_;
    peers peers_;
    std::list<names::iterator> unconfirmed_; // the oldest first
    std::unordered_map<clientid4, names::iterator> by_id_;
    states by_state_;
    seldom last_expired_;
    std::size_t count_ = 0;
    std::uint64_t last_ = 0;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
