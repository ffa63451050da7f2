// SPDX-License-Identifier: Apache-2.0
// Calls to clients: what the state layer has them told goes out over the back channels of their sessions.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct server_commons;
namespace detail {
struct callback_message;
}

/// What became of calls to clients. Written on the clients' home, read from any thread.
struct callback_counters {
    /// What became of a call.
    enum class outcome : std::uint8_t {
        ok,
        later,       ///< DELAY, or the client does not know of it yet: the call is made again
        failed,      ///< any other status
        unanswered,  ///< no reply in time, or the connection went: the call is made again
        unreachable, ///< there is no connection to the client: the call waits for one
    };
    static constexpr std::size_t outcomes = 5; ///< of outcome
    /// What the call was for.
    enum class kind : std::uint8_t { recall, recall_any, notify_lock, getattr, layout_recall };
    static constexpr std::size_t kinds = 5; ///< of kind

    /// One call more. On the clients' home.
    void note(kind k, outcome o) noexcept { calls[std::size_t(k)][std::size_t(o)].add(); }
    std::array<std::array<counter, outcomes>, kinds> calls; ///< by kind and outcome
    /// For want of memory: what should have been recalled is revoked when its time is over. Or of a free lock, where the client has not
    /// heard of very many others yet: then it asks by itself.
    counter lost;
    std::atomic<std::uint64_t> lost_elsewhere{0}; ///< likewise, on the homes of files, which write it
    gauge waiting;                                ///< calls that nobody has begun to make yet
};

/// The state layer's handler: notes what it is told, and calls the clients. That is done on the clients' home. Tables
/// tell it on their own shards, from where a message for each notice takes it there: that needs memory for the notice,
/// and nothing else.
class callback_sender final : public files::state_handler, public holder_inquiry {
public:
    /// `c` outlives it, and it outlives the shards; nothing of `c` is used yet.
    explicit callback_sender(server_commons& c) noexcept : commons_(c) {}

    // files::state_handler. On the home of the file; last_heard() on the clients'.
    void recall(const files::recall_notice& n) noexcept override;
    void recall_any(files::client_id client, std::size_t keep) noexcept override;
    void lock_available(const files::lock_notice& n) noexcept override;
    time_point last_heard(files::client_id client) noexcept override;
    /// Tells the log.
    void lost(const files::loss_notice& n) noexcept override;
    /// All of a layout, on the home of its file (CB_LAYOUTRECALL). Where its client says that it has none, it is given back.
    void recall_layout(const files::recall_notice& n) noexcept;
    /// The client is to give back layouts that it can spare, so that those of `keep` files are left (CB_RECALL_ANY). Any home.
    void recall_any_layout(files::client_id client, std::size_t keep) noexcept;
    std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle& file) override;

    // holder_inquiry. Who asks for what is being asked already hears that answer.
    task<result<held_attributes>> ask(files::client_id holder, const files::stateid& id,
                                      const files::exported_file& file, duration patience) override;

    /// Makes the calls. One runs as long as the server serves.
    /// Completes when: its task is stopped, and the calls under way have ended. On cancel: it ends. Errors: none. Lifetime: this
    /// outlives it. Shard: the clients' home.
    task<void> run();

    const callback_counters& counters() const noexcept { return counters_; }

private:
    using kind = callback_counters::kind;
    using outcome = callback_counters::outcome;
    struct question;
    class letter;
    struct notice {
        notice(files::client_id c, kind w) noexcept : client(c), what(w) {}
        files::client_id client;
        kind what;
        files::stateid id;               // recall, getattr, layout_recall
        files::exported_file file;       // these, and notify_lock; by the client's export
        std::size_t keep = 0;            // recall_any
        bool of_layouts = false;         // likewise: of these, and not of delegations
        std::string owner;               // notify_lock
        std::shared_ptr<question> asked; // getattr
    };
    /// What one client is to be told, and how many tasks do that.
    struct line {
        std::deque<notice> waiting;
        std::size_t workers = 0;
        std::size_t locks = 0; ///< of `waiting`, those that say that a lock is free
    };
    void tell(notice n) noexcept;
    void note(notice n) noexcept;
    void line_up_all(scope& workers);
    bool line_up(line& l, notice&& n);
    void start_worker(scope& workers, files::client_id client, line& l);
    void serve_those_without_workers(scope& workers);
    task<void> serve(files::client_id client);
    task<void> deliver(const notice* told);
    /// Of a notice.
    enum class use_of : std::uint8_t {
        none,
        until_heard, ///< by any answer: what it is about is gone already. A client that can't be called is not told
        until_done, ///< and the client has done what it says, or can't
    };
    static use_of use_at(files::state_table& table, const notice& n) noexcept;
    task<use_of> use_now(const notice* n);
    task<void> give_back_layout(const notice* n);
    duration patience_for(const notice& n) const;
    std::shared_ptr<session> find_session(files::client_id client) const;
    task<outcome> call(session& s, const notice& n);
    task<outcome> call_v40(const notice& n);
    bool write_down(const notice& n, clientid4 client, file_handle& handle,
                    detail::callback_message& m) const;

    server_commons& commons_;
    std::deque<notice> told_;
    event news_;
    std::unordered_map<files::client_id, line> lines_;
    std::map<std::array<std::byte, 12>, std::shared_ptr<question>> questions_; // by stateid
    callback_counters counters_;
    log_limiter losses_logged_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
