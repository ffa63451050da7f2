// SPDX-License-Identifier: Apache-2.0
#include "server_path.hpp"

#include "server_connection.hpp"
#include "server_memory.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace verbena::rtrs {

server_path::server_path(server_session& session, verbs::context& device, const connect_request& first,
                         std::string peer, peer_charge half_made, std::uint64_t number)
    : session_(session),
      device_(device),
      number_(number),
      id_(first.path),
      expected_(first.connections),
      peer_(std::move(peer)),
      half_made_(std::move(half_made)),
      state_(session.shared().shard, "path of an RTRS server"),
      tasks_(session.shared().shard, nullptr, this),
      // A handler of exceptions, which the check takes for an exception. NOLINTNEXTLINE(bugprone-throw-keyword-missing)
      home_(*this, session.shared(), device)
{
    shared().stats.paths.add(1);
}

server_path::~server_path()
{
    if (joined_)
        session_.handler().remove_path(peer_, why_);
    shared().stats.paths.add(-1);
    home_.connections().clear();
    // Where its parts stand, devices go behind the domain.
    grants_.clear();
    regions_.clear();
    service_region_.reset();
    domain_.reset();
    for (path_part* p : parts_)
        p->tell_gone();
}

server_shared& server_path::shared() const noexcept { return session_.shared(); }

std::uint16_t server_path::refuses(const verbs::device& device, const connect_request& m) const noexcept
{
    if (!state_.is_in(server_path_state::connecting, server_path_state::informing))
        return ECONNRESET; // the path's last life has not ended: the client tries again
    if (&device != &device_.device() || m.connections != expected_ || m.connection != came_)
        return EINVAL;
    return 0;
}

void server_path::add(std::unique_ptr<verbs::connect_request> request, const connect_request& m,
                      connection_charges charged)
{
    ++came_;
    home_.add(std::move(request), m.connection, std::move(charged));
}

path_hold server_path::add_elsewhere()
{
    parts_.reserve(parts_.size() + pins_ + 1);
    auto pin = std::make_unique<path_pin>(*this);
    ++came_;
    ++pins_;
    return path_hold(std::move(pin));
}

path_hold::~path_hold()
{
    if (pin_ != nullptr)
        pin_->path.shared().shard.post_remote(*pin_);
}

void path_pin::deliver() noexcept
{
    const std::unique_ptr<path_pin> self(this);
    path.arrived_elsewhere(made, failed);
}

void server_path::arrived_elsewhere(path_part* made, bool failed) noexcept
{
    --pins_;
    if (made != nullptr) {
        parts_.push_back(made);
        if (closing())
            made->tell_closed();
    }
    if (failed)
        close(path_end::lost, error(std::errc::connection_aborted, "a connection could not be set up"));
    accepted_more_.set();
    part_moved_.set();
}

std::size_t server_path::accepted() const noexcept
{
    std::size_t sum = home_.accepted();
    for (const path_part* p : parts_)
        sum += p->accepted();
    return sum;
}

void server_path::on_exception(const std::exception_ptr& e) noexcept
{
    shared().stats.exceptions.add();
    log_limited(shared().stats.exceptions_logged, log_level::error, "rtrs", "an exception ended a path",
                {{"peer", peer_}, {"exception", what_of(e)}});
    close(path_end::lost, error_of(e, "an exception left a task of the path"));
}

void server_path::close(path_end why, const error& cause) noexcept
{
    if (closing())
        return;
    state_.to(server_path_state::closing, text_of(why));
    why_ = why;
    cause_ = cause;
    home_.be_closed();
    for (path_part* p : parts_)
        p->tell_closed();
    session_.paths_changed();
    close_.set();
}

void server_path::drain() noexcept
{
    if (closing() || draining())
        return;
    if (!connected() || (parts_.empty() && home_.requests().live() == 0)) {
        close(path_end::stopped);
        return;
    }
    state_.to(server_path_state::draining, "its server takes no more requests");
    undrained_ = 1 + parts_.size();
    for (path_part* p : parts_)
        p->tell_to_drain();
    home_.drain();
}

void server_path::part_drained() noexcept
{
    if (--undrained_ == 0)
        close(path_end::stopped);
}

void server_path::part_connected() noexcept
{
    ++connected_parts_;
    part_moved_.set();
}

void server_path::part_ended() noexcept
{
    ++ended_parts_;
    part_moved_.set();
}

bool server_path::take_key(std::uint32_t chunk) noexcept
{
    // While it is on its way the other shard posts a request.
    for (unsigned turns = 1;; ++turns) {
        key k = key::theirs;
        if (keys_[chunk].compare_exchange_strong(k, key::taken, std::memory_order_acquire))
            return true;
        if (k == key::taken)
            return false;
        if (turns % 64 == 0)
            std::this_thread::yield(); // its thread may want this processor
    }
}

std::span<std::byte> server_path::key_message(std::uint32_t chunk) const noexcept
{
    const std::size_t begin = size_of_messages(shared().options);
    return service_memory_.bytes().subspan(begin + chunk * new_key_size, new_key_size);
}

// The domain, and memory for messages.
task<result<void>> server_path::prepare()
{
    auto made = device_.make_domain();
    if (!made)
        co_return made.error();
    domain_ = std::move(*made);
    service_memory_ =
        co_await shared().buffers.acquire(size_of_path(shared().options), buffer_pool::call_patience);
    if (!service_memory_) {
        tell_refusal(refused::session_memory, {.peer = peer_, .object = "unnamed"});
        co_return error(std::errc::not_enough_memory, "the memory budget has no room for a path");
    }
    auto registered = co_await domain_->register_memory(service_memory_.bytes());
    if (!registered)
        co_return registered.error();
    service_region_ = std::move(*registered);
    co_return result<void>();
}

void server_path::start_information(std::uint32_t length)
{
    if (state_ != server_path_state::connecting) {
        close(path_end::bad_message, error(std::errc::bad_message, "a Send behind the INFO_REQ"));
        return;
    }
    state_.to(server_path_state::informing, "the client has said who it is");
    tasks_.spawn(&server_path::inform, this, length);
}

task<result<void>> server_path::map_chunks()
{
    std::vector<std::span<std::byte>> granted;
    const bool renewable = shared().options.always_invalidate;
    if (renewable) {
        for (const server_chunk& c : session_.chunks())
            granted.push_back(c.memory);
    } else {
        for (std::size_t i = 0; i < session_.memory().size(); ++i)
            granted.push_back(session_.memory(i));
    }
    // Where a key opens all of the region that its grant lies in, each grant is given a region of its own.
    std::vector<std::span<std::byte>> registered = granted;
    if (renewable && device_.query().checks_grant_bounds) {
        registered.clear();
        for (std::size_t i = 0; i < session_.memory().size(); ++i)
            registered.push_back(session_.memory(i));
    }
    for (const std::span<std::byte> memory : registered) {
        auto made = co_await domain_->register_memory(memory);
        if (!made)
            co_return made.error();
        regions_.push_back(std::move(*made));
    }
    std::vector<verbs::grant_request> wanted(granted.size());
    for (std::size_t i = 0; i < granted.size(); ++i) {
        wanted[i].memory = granted[i];
        wanted[i].rights = verbs::access::remote_write;
        wanted[i].renewable = renewable;
    }
    const auto done = co_await domain_->make_grants(wanted);
    if (!done)
        co_return done.error();
    for (auto& g : wanted)
        grants_.push_back(std::move(g.made));
    if (renewable)
        keys_ = std::make_unique<std::atomic<key>[]>(session_.chunks().size());
    co_return result<void>();
}

// The client has said who it is: it gets to know where the chunks are, and the path is complete.
task<void> server_path::inform(std::uint32_t length)
{
    auto name =
        decode_info_request(service_memory_.bytes().first(std::min<std::size_t>(length, info_request_size)));
    if (!name || came_ != expected_) {
        close(path_end::bad_message,
              name ? error(std::errc::bad_message, "an INFO_REQ before all connections were there")
                   : name.error());
        co_return;
    }
    // It may overtake what the device's connection manager has to say of the last connections.
    while (accepted() != expected_ && !closing()) {
        accepted_more_.reset();
        const bool more = co_await accepted_more_.wait();
        if (!more)
            co_return;
    }
    const auto begun = co_await session_.begin(std::move(*name), peer_, expected_);
    if (!begun) {
        const bool short_of_memory = begun.error() == std::errc::not_enough_memory;
        close(short_of_memory ? path_end::no_memory : path_end::refused, begun.error());
        co_return;
    }
    if (const auto joined = session_.handler().add_path(peer_); !joined) {
        close(path_end::refused, joined.error());
        co_return;
    }
    joined_ = true;
    const auto mapped = co_await map_chunks();
    if (!mapped) {
        close(path_end::no_memory, mapped.error());
        co_return;
    }
    const bool ready = co_await connect_parts();
    if (!ready || closing())
        co_return;
    std::vector<descriptor> chunks;
    for (const auto& g : grants_) {
        const verbs::remote_segment at = g.where();
        chunks.push_back({at.address, at.key, at.length});
    }
    const std::size_t size = info_response_size(chunks.size());
    encode_info_response(service_memory_.bytes(), chunks);
    const verbs::segment message{service_memory_.data(), static_cast<std::uint32_t>(size), 0};
    verbs::send_request send;
    send.segments = {&message, 1};
    home_.be_connected();
    // Before it goes out: requests may follow it at once.
    state_.to(server_path_state::connected, "all that is made for it is there");
    half_made_.give_back();
    if (!home_.connections().front()->post({&send, 1}))
        co_return;
    log_limited(shared().stats.begins_logged, log_level::info, "rtrs", "path connected",
                {{"session", session_.name()}, {"peer", peer_}, {"connections", std::uint64_t(expected_)}});
    tasks_.spawn(&server_path::heartbeats, this);
}

// Requests may come to any part as soon as the client has heard of the chunks. False: the path ends.
task<bool> server_path::connect_parts()
{
    for (path_part* p : parts_)
        p->tell_connected();
    while (connected_parts_ != parts_.size() && !closing()) {
        part_moved_.reset();
        const bool moved = co_await part_moved_.wait();
        if (!moved)
            co_return false;
    }
    co_return true;
}

task<void> server_path::limit_set_up()
{
    const bool late = co_await sleep_for(shared().options.set_up);
    if (late && !connected())
        close(path_end::unfinished, error(std::errc::timed_out, "the path was not complete in time"));
}

task<void> server_path::heartbeats()
{
    for (;;) {
        const bool due = co_await sleep_for(shared().options.heartbeat);
        if (!due || closing())
            co_return;
        bool heard = home_.take_heard();
        for (path_part* p : parts_)
            heard |= p->take_heard();
        if (heard)
            missed_ = 0;
        if (missed_ != 0)
            home_.counters().missed_heartbeats.add();
        if (missed_++ > shared().options.misses) {
            close(path_end::silent, error(std::errc::timed_out, "nothing came from the client", missed_));
            co_return;
        }
        if (std::exchange(heartbeat_out_, true))
            continue;
        verbs::send_request beat;
        beat.opcode = verbs::opcode::write_with_immediate;
        beat.immediate = make_immediate(immediate_type::heartbeat);
        home_.connections().front()->post({&beat, 1});
    }
}

task<void> server_path::run()
{
    try {
        tasks_.spawn(&server_path::limit_set_up, this);
    } catch (...) {
        on_exception(std::current_exception());
    }
    const bool closed = co_await close_.wait();
    if (!closed)
        close(path_end::stopped);
    const bool quiet = why_ == path_end::closed || why_ == path_end::stopped;
    // All connections end first, then requests under way come to their end. Only then the memory goes that they and the device use. Nothing
    // is allocated before the parts on other shards have ended.
    home_.begin_end(quiet);
    tasks_.request_stop();
    co_await tasks_.join();
    const auto [taking, requests] = home_.tasks();
    co_await taking.join();
    while (home_.copies_come()) {
        home_.copy_came_event().reset();
        co_await home_.copy_came_event().wait_shielded();
    }
    co_await requests.join();
    while (pins_ != 0 || ended_parts_ != parts_.size()) {
        part_moved_.reset();
        co_await part_moved_.wait_shielded();
    }
    for (const auto& c : home_.connections())
        co_await c->ended();
    server_stats& stats = shared().stats;
    stats.ends[std::size_t(why_)].add();
    log_limited(stats.ends_logged, quiet ? log_level::info : log_level::warning, "rtrs", "path ended",
                {{"session", session_.name()},
                 {"peer", peer_},
                 {"reason", to_string(why_)},
                 {"cause", cause_.code() ? cause_.message() : std::string()}});
    home_.connections().clear();
    if (domain_)
        co_await domain_->revoke(grants_);
}

} // namespace verbena::rtrs
