// SPDX-License-Identifier: Apache-2.0
// Calls to clients: what the state layer has them told goes out over the back channels of their sessions.
#pragma once

#include <verbena/core/event.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/v4/callback.hpp>
#include <verbena/protocols/nfs/v4/sessions.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct server_commons;

/// What became of calls to clients. Written on the state layer's shard, read from any thread.
struct callback_counters {
    enum class outcome : std::uint8_t {
        ok,
        later,       ///< DELAY, or the client does not know of it yet: the call is made again
        failed,      ///< any other status
        unanswered,  ///< no reply in time, or the connection went: the call is made again
        unreachable, ///< there is no connection to the client: the call waits for one
    };
    static constexpr std::size_t outcomes = 5;
    enum class kind : std::uint8_t { recall, recall_any };
    static constexpr std::size_t kinds = 2;

    void note(kind k, outcome o) noexcept { calls[std::size_t(k)][std::size_t(o)].add(); }
    std::array<std::array<counter, outcomes>, kinds> calls;
    counter lost; ///< for want of memory: what should have been recalled is revoked when its time is over
};

/// The state layer's handler: notes what it is told, and calls the clients. On the state layer's shard.
class callback_sender final : public files::state_handler {
public:
    /// `c` outlives it; nothing of `c` is used yet.
    explicit callback_sender(server_commons& c) noexcept : commons_(c) {}

    // files::state_handler
    void recall(const files::recall_notice& n) noexcept override;
    void recall_any(files::client_id client, std::size_t keep) noexcept override;
    void lock_available(const files::lock_notice&) noexcept override {}
    time_point last_heard(files::client_id client) noexcept override;

    /// Makes the calls. One runs as long as the server serves.
    /// Completes when: its task is stopped, and the calls under way have ended. On cancel: it ends. Errors: none. Lifetime: this
    /// outlives it. Shard: the state layer's.
    task<void> run();

    const callback_counters& counters() const noexcept { return counters_; }

private:
    using kind = callback_counters::kind;
    using outcome = callback_counters::outcome;
    struct notice {
        files::client_id client = files::nobody;
        kind what = kind::recall;
        files::stateid id;
        storage::handle file;
        std::size_t keep = 0;
    };
    /// What one client is to be told, and how many tasks do that.
    struct line {
        std::deque<notice> waiting;
        std::size_t workers = 0;
    };
    void note(notice n) noexcept;
    task<void> serve(files::client_id client);
    task<void> deliver(notice n);
    std::shared_ptr<session> find_session(files::client_id client) const;
    task<outcome> call(session& s, notice n);

    server_commons& commons_;
    std::deque<notice> told_;
    event news_;
    std::unordered_map<files::client_id, line> lines_;
    callback_counters counters_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
