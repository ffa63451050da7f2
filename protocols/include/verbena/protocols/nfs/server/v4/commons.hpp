// SPDX-License-Identifier: Apache-2.0
// What the programs of all shards share of version 4: clients, sessions, the way to the state layer.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/pseudo_tree.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/callbacks.hpp>
#include <verbena/protocols/nfs/server/v4/evictions.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/server/v4/v40_state.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

namespace pnfs {
class service;
}

/// What the programs of all shards share: clients, sessions, state, names. Made when the exports are known; outlives
/// the programs.
struct server_commons {
    /// Files have their homes on `homes`, and clients on the first of them: state_home, whose tasks the caller runs
    /// there. `store`, which outlives this, has begun, and `options` has what that said; its key is made of `key`. `now`
    /// is the time of day of this start in seconds since 1970.
    server_commons(const export_table& exports, const handle_key& key, std::span<shard* const> homes,
                   files::recovery_store& store, const files::state_options& options, std::int64_t now,
                   const session_limits& limits = {});

    /// Of what is given from now on. Any thread.
    void set_limits(const files::changeable_limits& of_state,
                    const changeable_session_limits& of_sessions) noexcept
    {
        state.set_limits(of_state);
        sessions.set_limits(of_sessions);
        v40.set_limits(of_sessions);
    }

    /// verbena_nfs4_* of the state, which all shards share.
    metric_registrations expose(metric_registry& registry) const;

    /// Once a lease, ends the clients that have nothing to come back for: what they had was taken, or they had
    /// nothing and their lease is over.
    /// Completes when: its task is stopped. On cancel: it ends. Errors: none. Lifetime: this outlives it. Shard: the
    /// clients' home.
    task<void> tend();
    /// Ends clients whose lease is over, those first that have nothing or whose lease ended first: of the peer's
    /// group, or of all. True if there was one. At most once a second.
    /// Completes when: they are gone. On cancel: as the state layer's store says. Errors: none. Lifetime: `from` is
    /// borrowed. Shard: any.
    task<bool> expire_lapsed(session_table::shortage of, std::string_view from);
    /// The same among clients of minor version 0.
    task<bool> expire_lapsed_v40(session_table::shortage of, std::string_view from);
    /// The same among all clients, for one that the state layer has no place for.
    task<bool> expire_lapsed_of_any();

    /// Ends what `client` has for another user who wants its name, and then it is gone from the state layer. CLID_INUSE
    /// if it does not give way: while its lease runs and it has sessions or something in the state layer, while a call
    /// of its runs, or a session of it is being created. In one step, so that nothing is granted to it in between.
    /// Completes when: it is gone, or stays. On cancel: as the state layer's store says. Errors: as a status, DELAY
    /// where the store refuses; then it stays. Lifetime: this outlives it. Shard: any.
    task<nfsstat4> end_rival(files::client_id client);
    /// Says in the log that the client `from` waits, or is refused, since the one at `holder` has its name. Any thread.
    void note_shared_name(std::span<const std::byte> name, std::string_view holder, std::string_view from);

    const export_table& exports;
    const handle_key key;
    const std::int64_t started;
    /// The same over restarts, another one for each daemon: else a client would take two servers for one.
    const std::string owner;
    /// Which minor versions are served; to be set before the first call.
    std::array<bool, max_minor_version + 1> minors{false, true, true};
    /// Who knows users and groups by their names, on the clients' home; nothing where clients may say numbers alone. Outlives the
    /// programs, and is to be set before the first call.
    user_names* users = nullptr;
    /// Who gives layouts of files of export_options::pnfs; nothing where nobody does. Outlives the programs, and is to be set before
    /// the first call; whoever shows metrics may look before.
    std::atomic<v4::pnfs::service*> pnfs = nullptr;
    callback_sender callbacks;
    state_home state;
    session_table sessions;
    v40_state v40;
    evictions evicted{*this};

private:
    task<void> tend_once();
    enum class ending : bool { of_what_is_lost, of_each };
    task<std::size_t> end_lapsed(std::vector<files::client_id> clients, ending what, std::size_t most);
    template<class Choose>
    task<bool> end_some(Choose choose);
    seldom expired_of_any_; // of the state layer's shard
    log_limiter shared_names_{3, std::chrono::minutes(1)};
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
