// SPDX-License-Identifier: Apache-2.0
// What operations of minor version 0 do on the state layer's shard: clients, owners, and by them opens and locks. docs/internals/nfs4.md.
#pragma once

#include <verbena/protocols/nfs/v4/state_home.hpp>
#include <verbena/protocols/nfs/v4/v40_clients.hpp>
#include <verbena/protocols/nfs/v4/v40_owners.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What minor version 0 calls the answer of an operation.
nfsstat4 v40_status(nfs_opnum4 operation, nfsstat4 status) noexcept;

/// This holds for all its tasks. Completes when: the state layer has answered. On cancel: as shard::run(). Errors: as a status. Lifetime: what
/// they are given is borrowed. Shard: any.
class v40_state {
public:
    /// `state` outlives it.
    v40_state(state_home& state, const siphash_key& key, const session_limits& limits);

    /// Of a COMPOUND.
    std::uint32_t most_operations() const noexcept { return limits_.operations; }

    // --- Clients

    task<v40_clients::made> set_client(const SETCLIENTID4args& args, principal who, std::string_view from);
    /// `peer` as for state_table::add_client().
    task<nfsstat4> confirm_client(const SETCLIENTID_CONFIRM4args& args, principal who, std::uint64_t peer);
    /// Its lease begins anew.
    task<nfsstat4> renew(clientid4 id);

    // --- Owners

    /// An OPEN that has its owner's turn, if it is to run. Goes back to end_open() then, whatever happens.
    struct open_turn {
        nfsstat4 status = nfsstat4::ok; ///< not ok: it is answered with that
        bool repeats = false;           ///< it is answered with `answer`
        v40_answer answer;
        files::client_id client = files::nobody;
        std::shared_ptr<v40_owner> owner;
    };
    task<open_turn> begin_open(const OPEN4args& args);
    /// `answer` is what the OPEN came to; it is changed to what is to be said. `file` is what was opened, as the state layer knows it.
    task<void> end_open(open_turn& turn, const OPEN4args& args, const storage::handle& file,
                        v40_answer& answer);
    /// For these, `refused` is answered if it is not ok and the owner's number is right.
    task<v40_answer> confirm_open(const OPEN_CONFIRM4args& args, const storage::handle& file,
                                  nfsstat4 refused);
    task<v40_answer> downgrade(const OPEN_DOWNGRADE4args& args, const storage::handle& file,
                               nfsstat4 refused);
    task<v40_answer> close(const CLOSE4args& args, const storage::handle& file, nfsstat4 refused);
    task<v40_answer> lock(const LOCK4args& args, const storage::handle& file, nfsstat4 refused);
    task<v40_answer> unlock(const LOCKU4args& args, const storage::handle& file, nfsstat4 refused);

    // --- Without a number

    task<state_home::locked> test_lock(const LOCKT4args& args, const storage::handle& file,
                                       const files::byte_range& bytes);
    task<nfsstat4> release_lock_owner(const RELEASE_LOCKOWNER4args& args);
    /// As state_home::check_io().
    task<nfsstat4> check_io(const stateid4& id, const storage::handle& file, files::operation op);

    // --- On its home only

    v40_clients& clients() noexcept { return clients_; }
    v40_owners& owners() noexcept { return owners_; }
    /// The client is no more.
    void forget(files::client_id client);
    /// Once a lease: what was not confirmed goes, and owners that have nothing.
    void tend(time_point now);
    /// Whether clients may be ended to make room: once a second.
    bool may_make_room(time_point now) noexcept;

private:
    class waiting;
    struct located {
        nfsstat4 status = nfsstat4::bad_stateid;
        std::shared_ptr<v40_owner> owner;
    };
    time_point now() const noexcept { return state_.now(); }
    located locate(const stateid4& id, bool locks);
    task<nfsstat4> renew_here(files::client_id client);
    task<nfsstat4> renew_client_here(clientid4 id);
    static task<nfsstat4> take_turn(std::shared_ptr<v40_owner> owner);
    void drop_unconfirmed(v40_owner& o);
    bool is_idle(const v40_owner& o);
    task<v40_clients::made> set_client_here(const SETCLIENTID4args* args, principal who,
                                            std::string_view from);
    task<nfsstat4> confirm_client_here(const SETCLIENTID_CONFIRM4args* args, principal who,
                                       std::uint64_t peer);
    task<open_turn> begin_open_here(const OPEN4args* args);
    task<void> end_open_here(open_turn* turn, const OPEN4args* args, const storage::handle* file,
                             v40_answer* answer);
    template<class Act>
    task<v40_answer> in_turn(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks,
                             nfsstat4 refused, Act act);
    task<v40_answer> lock_here(const LOCK4args* args, const storage::handle* file, nfsstat4 refused);
    task<state_home::locked> test_lock_here(const LOCKT4args* args, const storage::handle* file,
                                            const files::byte_range* bytes);
    task<nfsstat4> release_here(const RELEASE_LOCKOWNER4args* args);
    task<nfsstat4> check_io_here(stateid4 id, const storage::handle* file, files::operation op);

    state_home& state_;
    const session_limits limits_;
    v40_clients clients_;
    v40_owners owners_;
    time_point made_room_{};
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
