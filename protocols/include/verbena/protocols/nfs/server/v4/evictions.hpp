// SPDX-License-Identifier: Apache-2.0
// Whom an operator ends: a client of any minor version, with all that it has. docs/internals/nfs4_state.md.
#pragma once

#include <verbena/core/net/kept_out.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/client_book.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct server_commons;

/// A client's id as people are shown it, and write it.
std::string text_of_client(std::uint64_t number);

/// A client, for who looks for it.
struct known_client {
    files::client_label who;
    std::uint32_t minor = 0; ///< with a session: that of its first one
    bool has_minor = false;
    bool confirmed = false;
    files::client_id state = files::nobody; ///< of one that is confirmed
};

/// What became of one that was ended.
struct evicted_client {
    files::client_holdings had;
    std::size_t sessions = 0;
    std::size_t running = 0;   ///< calls of its sessions that have not ended: what they change may still come
    std::size_t fences = 0;    ///< of what it had, that have not ended: it may still reach that
    std::string failure;       ///< why its state is still there; empty: it is gone
    bool list_is_full = false; ///< it is not kept out
};

/// What the end of a client has still to do.
struct unended_client {
    bool is_there = false;        ///< its state is
    bool waits_for_store = false; ///< the state folder is to forget it first
    files::client_holdings has;   ///< that is not taken yet
};

/// Ends clients. Of server_commons.
class evictions {
public:
    /// For the clients of `commons`, whose member it is.
    explicit evictions(server_commons& commons) noexcept : commons_(commons) {}
    evictions(const evictions&) = delete;

    /// Whether a client of that name is kept out now: then it is told DELAY, and comes again by itself. Tells who was turned away. Any
    /// thread.
    bool turns_away(std::span<const std::byte> name, std::string_view from, time_point now) const noexcept;
    /// Keeps a client of that name out until then, whatever it comes from; a time that is over lets it in. False: too many are
    /// kept out. Any thread.
    bool keep_out(std::string_view name, time_point until, time_point now)
    {
        return names_.add(name, until, now);
    }

    /// Those whose id, own name or address `who` is; all where it is empty, `most` at most.
    /// Completes when: all clients were looked at, others being served in between. On cancel: with those that were found.
    /// Errors: none. Lifetime: this outlives it. Shard: the clients' home.
    task<std::vector<known_client>> find(std::string who, std::size_t most);
    /// Ends the client of that id, if there still is one: no operation of its does anything any more, what it has is free for others, and its layouts are fenced. It hears
    /// BADSESSION, or of minor version 0 EXPIRED, and may begin anew unless its name is kept out.
    /// Completes when: its state is gone, its layouts are fenced, and its calls have ended, or `patience` is over for these. On cancel:
    /// as client_book::revoke_client(). Errors: in the answer. Lifetime: this outlives it. Shard: the clients' home.
    task<evicted_client> end(std::string id, duration patience);
    /// For who does not wait for end() any longer: how far it is with the client of that id.
    /// Completes when: the client was found, or all were looked at, others being served in between. On cancel: as find(). Errors:
    /// none. Lifetime: this outlives it. Shard: the clients' home.
    task<unended_client> how_far(std::string id);

private:
    server_commons& commons_;
    kept_out names_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
