// SPDX-License-Identifier: Apache-2.0
// What a client keeps of a path, its connections, and its requests.
#pragma once

#include "connection.hpp"
#include "permit_line.hpp"

#include <verbena/protocols/rtrs/client.hpp>

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace verbena::rtrs {

class client_connection;
class client_path;

uuid random_uuid();

/// A request, from its permit to its answer. Lives in its caller's task.
struct io_operation : list_hook {
    bool is_write = false;
    bool service = false;
    client::header* user = nullptr;
    std::span<std::byte> data;
    std::uint32_t chunk = 0;
    bool answered = false;
    bool refused = false;            ///< by its header
    bool leaving = false;            ///< the device has not given its memory back yet
    std::optional<time_point> until; ///< since it waits without a path: how long it goes on
    result<void> outcome;
    event ended; ///< answered and given back, or its path is gone
};

/// How a path's first attempt went.
struct first_attempt {
    event over;
    result<void> outcome = error(std::errc::operation_canceled, "the path was closed");
};

/// What all paths of a client share.
struct client_shared {
    client_shared(reactor& s, buffer_pool& b, client_options o, client_stats& st)
        : shard(s), buffers(b), options(std::move(o)), stats(st), tasks(s), session(random_uuid())
    {
    }
    reactor& shard;
    buffer_pool& buffers;
    const client_options options;
    client_stats& stats;
    scope tasks;
    uuid session; ///< begin_anew() draws another one
    // The server's, since the first path came up; of those that follow they are the same.
    std::uint32_t queue_depth = 0;
    std::uint32_t max_io_size = 0;
    std::uint32_t max_header_size = 0;
    // One less than there are chunks: service messages get through while all requests wait for what they set right.
    permit_line permits{0};
    permit_line service_permit{1};
    std::vector<std::uint32_t> free_chunks;
    event chunk_free;
    struct carrier {
        uuid path;
        std::uint64_t life = 0;
    };
    /// Of each chunk: the paths that its request was sent by, and in which of their lives. Their memory stays for the next request.
    std::vector<std::vector<carrier>> sent_by;
    /// Chunks of requests that were given up after they were sent. The server may be at them still, and what is written there then would be
    /// taken for those requests. A path that is connected again is the proof that its last life is over. Where it never is, client::impl::begin_anew()
    /// is the way out.
    std::vector<std::uint32_t> held;
    std::uint32_t owed_permits =
        0;            ///< that requests don't give back, as the chunk of a service message is held
    event path_moved; ///< a path came up or went
    std::size_t connected_paths = 0;
    // How long requests could not go on though a path was connected, since all chunks are held.
    std::optional<time_point> stuck_since; ///< while a path is connected
    duration stuck_before{};               ///< until the last path went, before that
    std::uint64_t epoch = 0;
    bool restarting = false;
    std::function<task<void>()> restarted;
    bool closing = false;

    /// A path came up, in its life `life`.
    void path_up(const uuid& path, std::uint64_t life);
    /// A path that was up is so no more.
    void path_lost() noexcept;
    /// No path will be.
    void end() noexcept;
    /// Every chunk that `o` could have is held, so that no answer to another request brings one.
    bool all_held(const io_operation& o) const noexcept
    {
        return o.service ? queue_depth != 0 && held.size() >= queue_depth : all_held();
    }
    /// That a request could have which is no service message. As of `permits`.
    bool all_held() const noexcept { return queue_depth != 0 && held.size() + 1 >= queue_depth; }
    /// No path brought a chunk, though one was connected for `patience`: the session is to begin anew. Paths that went with the others have
    /// had that long to come back, too.
    bool is_stuck() const noexcept { return stuck_since && stuck_for() >= options.patience; }
    duration stuck_for() const noexcept;
    /// Whenever a path comes or goes, or `held` has changed.
    void look_at_held() noexcept;
    /// How long `o` may wait: for ever while a path is connected, unless all chunks are held. Then it is at least until the session is_stuck().
    time_point patience_of(io_operation& o);
    /// Frees all held chunks: another session begins, whose chunks are others.
    void release_held() noexcept;
    task<result<void>> take_chunk(io_operation& o);
    /// Until something happened. Errors: ENOTCONN when it is `until`, ECANCELED.
    task<result<void>> wait_for(event& what, time_point until);
    void give_chunk(io_operation& o) noexcept;
    void give_permit() noexcept;
    void wake_waiters() noexcept;
    task<result<void>> wait_for_chunk(io_operation& o);
    task<void> restart();

    std::uint32_t chunk_size() const noexcept { return max_io_size + max_header_size; }
    /// Keeps the sizes of the first answer; false for others in a later one.
    bool agree(const connect_reply& r);
};

class client_connection final : public connection {
public:
    client_connection(client_path& p, std::uint16_t number) noexcept : connection(number), path_(p) {}

    task<result<void>> connect(const connect_request& m);
    /// Receives for the answers to so many requests, from now on. Once. Completes when: there is memory for them, if they need any. On cancel:
    /// ECANCELED as ENOMEM. Errors: ENOMEM, ENOBUFS. Lifetime: the connection outlives it. Shard: the connection's.
    task<result<void>> stand(std::uint32_t requests);
    result<void> post(std::span<const verbs::send_request> batch) noexcept;
    void end(bool orderly) noexcept;
    verbs::queue_pair& queue_pair() noexcept { return *queue_pair_; }

    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void run() noexcept override;

private:
    void on_end(const error& cause) noexcept override;
    void handle(const arrival& a) noexcept;

    client_path& path_;
    std::optional<new_key> key_; // whose immediate follows
};

/// A path. Its life: connect, serve, fall down, wait, connect again.
class client_path {
public:
    client_path(client_shared& shared, verbs::context& d, std::string address, first_failure then);
    ~client_path();

    const std::shared_ptr<first_attempt>& attempt() const noexcept { return attempt_; }
    /// Lives until it is closed, or its first attempt failed and that is the end.
    task<void> run();
    void close() noexcept;
    /// Sends `o` and waits until it was answered or the path is gone and nothing of it touches o's memory any more.
    task<void> issue(io_operation& o);

    path_state state() const noexcept { return state_; }
    /// Ends this life of it, since its session is no more.
    void leave_session() noexcept;
    /// Connected, and nothing has broken it since.
    bool takes_requests() const noexcept { return state_ == path_state::connected && !is_down_; }
    std::uint32_t in_flight() const noexcept { return in_flight_; }
    duration latency() const noexcept { return latency_; }
    const std::string& address() const noexcept { return address_; }
    client_shared& shared() noexcept { return shared_; }
    verbs::context& device() noexcept { return device_; }
    verbs::protection_domain& domain() noexcept { return *domain_; }

    /// Each answer brings the key with which its chunk is written next.
    bool new_keys() const noexcept { return new_keys_; }
    void set_new_keys(bool on) noexcept { new_keys_ = on; }

    // From its connections.
    void left(std::uint32_t chunk) noexcept;
    void broken(path_end why, const error& cause) noexcept;
    void heard() noexcept { missed_ = 0; }
    /// `key`, if any, came with it.
    void arrived(std::uint32_t immediate, const new_key* key) noexcept;
    void informed(std::uint32_t length) noexcept;

private:
    task<result<void>> set_up();
    task<result<void>> connect_all();
    task<result<void>> prepare();
    task<result<void>> inform();
    result<void> take_chunks(std::span<const descriptor> pieces);
    task<void> take_down(bool orderly);
    task<void> heartbeats();
    void log_loss() noexcept;
    task<void> live(scope& life);
    task<void> come_up(scope& life);
    task<void> limit_set_up();
    result<void> post(io_operation& o, client_connection& c, const verbs::grant* sink,
                      std::uint32_t key_of_data);
    client_connection& choose(const io_operation& o) noexcept;
    class counted;
    class placed;
    void answered(const response& r, const new_key* key) noexcept;

    client_shared& shared_;
    verbs::context& device_;
    const std::string address_;
    const first_failure then_;
    path_counters& counters_; // the client's stats have them
    const uuid id_ = random_uuid();
    const std::shared_ptr<first_attempt> attempt_ = std::make_shared<first_attempt>();
    path_state state_ = path_state::connecting;
    bool closing_ = false;
    std::uint16_t reconnects_ = 0;
    scope* life_ = nullptr; ///< tasks of the connections that stand
    std::uint64_t lives_ = 0;
    bool began_ = false;   ///< this life asked for a session to begin
    bool at_once_ = false; ///< the next life begins without delay

    std::unique_ptr<verbs::protection_domain> domain_;
    lease headers_; // a slot for each chunk's headers, and one for service messages
    std::unique_ptr<verbs::region> headers_region_;
    std::size_t slot_size_ = 0;
    std::vector<std::unique_ptr<client_connection>> connections_;
    bool new_keys_ = false;
    std::vector<descriptor> chunks_;       // where each is, to be written by this path
    std::vector<io_operation*> under_way_; // by chunk
    std::uint32_t in_flight_ = 0;
    std::size_t next_connection_ = 0;
    std::uint32_t info_length_ = 0;
    event informed_;
    event down_; // also before it was up
    path_end why_ = path_end::closed;
    error cause_;
    bool is_down_ = true;
    unsigned missed_ = 0;
    bool heartbeat_out_ = false;
    time_point beat_at_{};
    duration latency_{};
    event closed_;
    event idle_; ///< no request is on its way
};

} // namespace verbena::rtrs
