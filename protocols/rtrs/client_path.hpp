// SPDX-License-Identifier: Apache-2.0
// A path of a client.
#pragma once

#include "client_shared.hpp"
#include "path_states.hpp"

#include <verbena/protocols/rtrs/client.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace verbena::rtrs {

class client_connection;

/// How a path's first attempt went.
struct first_attempt {
    event over;
    result<void> outcome = error(std::errc::operation_canceled, "the path was closed");
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

    path_state state() const noexcept;
    /// Ends this life of it, since its session is no more.
    void leave_session() noexcept;
    /// Connected, and nothing has broken it since.
    bool takes_requests() const noexcept { return state_ == client_path_state::connected; }
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
    void connection_ended(const error& cause) noexcept;
    void heard() noexcept { missed_ = 0; }
    /// `key`, if any, came with it.
    void arrived(std::uint32_t immediate, const new_key* key) noexcept;
    void informed(std::uint32_t length) noexcept;

private:
    /// close() was called.
    bool closing() const noexcept { return closed_.is_set(); }
    /// Nobody knows yet how the first attempt went.
    bool first() const noexcept { return !attempt_->over.is_set(); }
    task<result<void>> set_up();
    task<result<void>> connect_all();
    task<result<void>> prepare();
    task<result<void>> inform();
    result<void> take_chunks(std::span<const descriptor> pieces);
    task<void> take_last_answers();
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
    const uuid id_ = random_uuid(shared_.shard.random());
    const std::shared_ptr<first_attempt> attempt_ = std::make_shared<first_attempt>();
    named_state<client_path_state, client_path_rules> state_{shared_.shard, "path of an RTRS client"};
    std::uint16_t reconnects_ = 0;
    scope* life_ = nullptr; ///< tasks of the connections that stand
    std::uint64_t lives_ = 0;
    // What this life has to say, in each of its states.
    bool began_ = false;   ///< it asked for a session to begin
    bool at_once_ = false; ///< the next one begins without delay

    std::unique_ptr<verbs::protection_domain> domain_;
    lease headers_; // a slot for each chunk's headers, and one for service messages
    std::unique_ptr<verbs::region> headers_region_;
    std::size_t slot_size_ = 0;
    std::vector<std::unique_ptr<client_connection>> connections_;
    bool new_keys_ = false;                // as the server says, in each life anew
    std::vector<descriptor> chunks_;       // where each is, to be written by this path
    std::vector<io_operation*> under_way_; // by chunk
    std::uint32_t in_flight_ = 0;
    std::size_t next_connection_ = 0;
    std::uint32_t info_length_ = 0;
    event informed_;
    event down_; // also before it was up
    path_end why_ = path_end::closed;
    error cause_;
    bool by_server_ = false; ///< which ended a connection in good order
    event connection_moved_; ///< one has ended, a request was answered, or close() was called
    unsigned missed_ = 0;
    std::optional<time_point> beat_at_; ///< when the heartbeat went that has no answer yet
    duration latency_{};
    event closed_; ///< close() was called: no life begins any more, whatever this one is doing
    event idle_;   ///< no request is on its way
};

} // namespace verbena::rtrs
