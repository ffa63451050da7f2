// SPDX-License-Identifier: Apache-2.0
// What operations of minor version 0 do on the state layer's shard: clients, owners, and by them opens and locks.
// docs/internals/nfs4_v40.md.
#pragma once

#include <verbena/protocols/nfs/server/v4/state_answers.hpp>
#include <verbena/protocols/nfs/server/v4/v40_clients.hpp>
#include <verbena/protocols/nfs/server/v4/v40_owners.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

class evictions;

/// What minor version 0 calls the answer of an operation.
nfsstat4 v40_status(nfs_opnum4 operation, nfsstat4 status) noexcept;
/// What it calls what the state layer says.
nfsstat4 v40_status(const error& failure) noexcept;

/// This holds for all its tasks. Completes when: the state layer has answered. On cancel: as shard::run(). Errors: as a status. Lifetime: what
/// they are given is borrowed. Shard: any.
class v40_state {
public:
    /// `state` outlives it.
    v40_state(state_home& state, const siphash_key& key, const session_limits& limits);

    /// Of a COMPOUND.
    std::uint32_t most_operations() const noexcept { return limits_.operations; }
    /// Any thread.
    void set_limits(const changeable_session_limits& limits) noexcept
    {
        clients_.set_limits(limits);
        owners_.set_limits(limits);
        paths_.set_limits(limits);
    }

    // --- Clients

    /// `calls`: where it is called, if anywhere.
    task<v40_clients::made> set_client(const SETCLIENTID4args& args, principal_digest who,
                                       std::string_view from, const std::optional<callback_place>& calls);
    /// `peer` as for state_table::add_client(). `is_full`: all places for clients are taken: another client has to
    /// go, and this be asked again.
    struct confirmed {
        nfsstat4 status = nfsstat4::ok;
        bool is_full = false;
        std::string held_by, name;               ///< as of v40_clients::confirmation
        files::client_id client = files::nobody; ///< a new one
    };
    /// delay for a new one whose name is among those that are kept out (`evicted`); `from` is told of then.
    task<confirmed> confirm_client(const SETCLIENTID_CONFIRM4args& args, principal_digest who,
                                   std::uint64_t peer, const evictions& evicted, std::string_view from);
    /// The peer that the client which is called so in the state layer came from; empty for none. On the clients' home.
    std::string address_of(files::client_id state) const { return std::string(clients_.peer_of(state)); }
    /// Its lease begins anew. cb_path_down: likewise, and it has delegations and can't be called.
    /// `client` is who it is then.
    task<nfsstat4> renew(clientid4 id, files::client_id& client);

    // --- Owners

    /// An operation that has its owner's turn, for as long as this is there, if it runs.
    struct begun {
        bool runs = false;
        v40_answer answer;                       ///< unless it runs: as a repeat, if that is ok
        files::client_id client = files::nobody; ///< whose number it brings
        bool may_delegate =
            false; ///< if it runs: the owner is confirmed; of a reclaim, the client is called somewhere
        v40_turn turn;
    };
    /// An OPEN that runs goes to end_open(). Where it doesn't get there its number is not used up.
    task<begun> begin_open(const OPEN4args& args);
    /// `answer` is what the OPEN came to; it is changed to what is to be said.
    task<void> end_open(begun& open, const OPEN4args& args, v40_answer& answer);
    /// For these, `refused` is answered if it is not ok and the owner's number is right.
    task<v40_answer> confirm_open(const OPEN_CONFIRM4args& args, const files::exported_file& file,
                                  nfsstat4 refused);
    /// OPEN_DOWNGRADE (RFC 7530 16.19).
    task<v40_answer> downgrade(const OPEN_DOWNGRADE4args& args, const files::exported_file& file,
                               nfsstat4 refused);
    /// CLOSE (RFC 7530 16.2).
    task<v40_answer> close(const CLOSE4args& args, const files::exported_file& file, nfsstat4 refused);
    /// LOCK (RFC 7530 16.10).
    task<v40_answer> lock(const LOCK4args& args, const files::exported_file& file, nfsstat4 refused);
    /// LOCKU (RFC 7530 16.12).
    task<v40_answer> unlock(const LOCKU4args& args, const files::exported_file& file, nfsstat4 refused);

    // --- Without a number

    /// `holder` is who has it, if it is denied.
    task<nfsstat4> test_lock(const LOCKT4args& args, const files::exported_file& file,
                             const files::byte_range& bytes, files::lock_holder& holder);
    /// RELEASE_LOCKOWNER (RFC 7530 16.37).
    task<nfsstat4> release_lock_owner(const RELEASE_LOCKOWNER4args& args);
    /// The holder's lease begins anew.
    task<nfsstat4> return_delegation(const stateid4& id, const files::exported_file& file);
    /// Whose stateid it is, or nobody's of this minor version.
    task<files::client_id> holder_of(const stateid4& id);
    /// Whose number it is in the state layer, if that client is confirmed and one of the peer at `from`; else
    /// nobody.
    task<files::client_id> client_of(clientid4 id, std::string_view from);
    /// As v4::check_io().
    task<nfsstat4> check_io(const stateid4& id, const files::exported_file& file, files::operation op,
                            state_home::io_terms& terms);

    // --- On its home only

    /// What is known of clients of minor version 0.
    v40_clients& clients() noexcept { return clients_; }
    /// Their owners, with the answers that repeats get.
    v40_owners& owners() noexcept { return owners_; }
    /// How they are called.
    callback_paths& paths() noexcept { return paths_; }
    /// Any thread, for what its counters say.
    const callback_paths& paths() const noexcept { return paths_; }
    /// The client has lost a delegation with its export, and a call that should tell it of that was not answered. For two
    /// leases RENEW answers CB_PATH_DOWN, so that the client gives back all delegations that it knows of. Nothing, if this
    /// is no client of minor version 0. The clients' home; throws bad_alloc.
    void note_unheard_loss(files::client_id client);
    /// The client is no more.
    void forget(files::client_id client);
    /// Once a lease: what was not confirmed goes, and owners that have nothing. At most so many owners are looked at; true if that was not
    /// enough: then it goes on behind the last one's client, when it is called again.
    task<bool> tend(time_point now, std::size_t most_owners = 1024);
    /// Owners that were not made. Any thread reads them.
    const files::limit_counters& refused_limits() const noexcept { return refused_limits_; }

private:
    struct closing;
    struct located {
        nfsstat4 status = nfsstat4::bad_stateid;
        std::shared_ptr<v40_owner> owner;
    };
    time_point now() const noexcept { return state_.now(); }
    task<result<files::state_holder>> look_up(const stateid4& id);
    task<located> locate(stateid4 id, bool locks);
    task<nfsstat4> renew_here(files::client_id client);
    task<nfsstat4> renew_client_here(clientid4 id);
    task<nfsstat4> renew_and_tell_here(clientid4 id);
    task<void> end_telling(files::client_id client);
    task<nfsstat4> end_if_unaware(files::client_id client);
    task<nfsstat4> return_delegation_here(stateid4 id, const files::exported_file* file);
    task<nfsstat4> take_turn(std::shared_ptr<v40_owner> owner, v40_turn& turn);
    task<nfsstat4> turn_of(files::client_id client, bool locks, std::span<const std::byte> name,
                           v40_turn& turn);
    task<bool> judge(v40_owner& o, nfs_opnum4 operation, std::uint32_t seqid, v40_answer& answer);
    task<begun> begin(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks);
    task<nfsstat4> drop_unconfirmed(std::shared_ptr<v40_owner> o);
    task<void> tend_owner(std::shared_ptr<v40_owner> o, time_point looked_at);
    bool is_idle(const v40_owner& o);
    task<void> hears_of_revoked(files::client_id client, const stateid4& id);
    template<class Ask>
    auto ask_of_name(Ask ask);
    task<v40_clients::made> set_client_here(const SETCLIENTID4args* args, principal_digest who,
                                            std::string_view from,
                                            const std::optional<callback_place>* calls);
    task<confirmed> confirm_client_here(const SETCLIENTID_CONFIRM4args* args, principal_digest who,
                                        std::uint64_t peer, const evictions* evicted, std::string_view from);
    task<files::client_id> holder_here(stateid4 id);
    task<begun> begin_open_here(const OPEN4args* args);
    task<void> end_open_here(begun* open, const OPEN4args* args, v40_answer* answer);
    template<class Act>
    task<v40_answer> in_turn(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks,
                             nfsstat4 refused, Act act);
    task<v40_answer> lock_here(const LOCK4args* args, const files::exported_file* file, nfsstat4 refused);
    task<nfsstat4> lock_by(v40_owner& o, const LOCK4args& args, const files::exported_file& file,
                           v40_answer& answer);
    task<nfsstat4> test_lock_here(const LOCKT4args* args, const files::exported_file* file,
                                  const files::byte_range* bytes, files::lock_holder* holder);
    task<nfsstat4> release_here(const RELEASE_LOCKOWNER4args* args);
    task<nfsstat4> check_io_here(stateid4 id, const files::exported_file* file, files::operation op,
                                 state_home::io_terms* terms);

    state_home& state_;
    session_limits limits_;
    v40_clients clients_;
    v40_owners owners_;
    callback_paths paths_;
    // When RENEW told of all that was revoked until then, those that have not heard what it was.
    std::unordered_map<files::client_id, time_point> told_;
    // Clients that lost a delegation with its export, and could not be called: when that was last.
    std::unordered_map<files::client_id, time_point> unheard_;
    files::client_id tended_ = files::nobody; // whose owners were looked at last
    files::limit_counters refused_limits_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
