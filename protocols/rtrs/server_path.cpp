// SPDX-License-Identifier: Apache-2.0
#include "server_path.hpp"

#include "server_connection.hpp"
#include "server_memory.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::rtrs {

server_path::server_path(server_session& session, verbs::context& device, const connect_request& first,
                         std::string peer, peer_charge half_made)
    : session_(session),
      device_(device),
      id_(first.path),
      expected_(first.connections),
      peer_(std::move(peer)),
      half_made_(std::move(half_made)),
      state_(session.shared().shard, "path of an RTRS server"),
      tasks_(session.shared().shard, nullptr, this),
      requests_(session.shared().shard, nullptr, this)
{
    connections_.reserve(expected_);
    shared().stats.paths.add(1);
}

server_path::~server_path()
{
    if (joined_)
        session_.handler().remove_path(peer_);
    if (counters_ != nullptr)
        shared().stats.by_path.leave(*counters_);
    shared().stats.paths.add(-1);
}

server_shared& server_path::shared() const noexcept { return session_.shared(); }

std::uint16_t server_path::refuses(const verbs::context& device, const connect_request& m) const noexcept
{
    if (!state_.is_in(server_path_state::connecting, server_path_state::informing))
        return ECONNRESET; // the path's last life has not ended: the client tries again
    if (&device != &device_ || m.connections != expected_ || m.connection != connections_.size())
        return EINVAL;
    return 0;
}

void server_path::add(std::unique_ptr<verbs::connect_request> request, const connect_request& m,
                      connection_charges charged)
{
    try {
        connections_.push_back(std::make_unique<server_connection>(*this, m.connection, std::move(charged)));
        tasks_.spawn(&server_path::take, this, std::move(request), std::ref(*connections_.back()));
    } catch (...) {
        on_exception(std::current_exception()); // the path has a connection that nobody sets up
    }
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
    session_.paths_changed();
    close_.set();
}

void server_path::drain() noexcept
{
    if (closing())
        return;
    if (!connected() || requests_.live() == 0) {
        close(path_end::stopped);
        return;
    }
    if (!draining())
        state_.to(server_path_state::draining, "its server takes no more requests");
}

void server_path::request_over() noexcept
{
    if (draining() && requests_.live() == 1)
        close(path_end::stopped);
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
    if (!service_memory_)
        co_return error(std::errc::not_enough_memory, "the memory budget has no room for a path");
    auto registered = co_await domain_->register_memory(service_memory_.bytes());
    if (!registered)
        co_return registered.error();
    service_region_ = std::move(*registered);
    co_return result<void>();
}

task<void> server_path::take(std::unique_ptr<verbs::connect_request> request, server_connection& c)
{
    const bool is_first = &c == connections_.front().get();
    if (is_first) {
        const auto ready = co_await prepare();
        if (!ready) {
            close(path_end::no_memory, ready.error());
            co_return;
        }
    }
    if (!domain_ || closing()) {
        close(path_end::bad_message,
              error(std::errc::bad_message, "a connection before the first one was accepted"));
        co_return;
    }
    const std::uint32_t receives = is_first ? service_queue_depth : shared().options.queue_depth;
    const bool accepted = co_await c.accept(std::move(request), receives);
    if (accepted) {
        ++accepted_;
        accepted_more_.set();
    } else {
        close(path_end::lost, error(std::errc::connection_aborted, "a connection could not be set up"));
    }
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
    keyless_.assign(session_.chunks().size(), 0);
    co_return result<void>();
}

// The client has said who it is: it gets to know where the chunks are, and the path is complete.
task<void> server_path::inform(std::uint32_t length)
{
    auto name =
        decode_info_request(service_memory_.bytes().first(std::min<std::size_t>(length, info_request_size)));
    if (!name || connections_.size() != expected_) {
        close(path_end::bad_message,
              name ? error(std::errc::bad_message, "an INFO_REQ before all connections were there")
                   : name.error());
        co_return;
    }
    // It may overtake what the device's connection manager has to say of the last connections.
    while (accepted_ != expected_ && !closing()) {
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
    if (closing())
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
    counters_ = &shared().stats.by_path.join(session_.name(), peer_);
    // Before it goes out: requests may follow it at once.
    state_.to(server_path_state::connected, "all that is made for it is there");
    half_made_.give_back();
    if (!connections_.front()->post({&send, 1}))
        co_return;
    log(log_level::info, "rtrs", "path connected",
        {{"session", session_.name()}, {"peer", peer_}, {"connections", std::uint64_t(expected_)}});
    tasks_.spawn(&server_path::heartbeats, this);
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
        if (missed_ != 0)
            counters_->missed_heartbeats.add();
        if (missed_++ > shared().options.misses) {
            close(path_end::silent, error(std::errc::timed_out, "nothing came from the client", missed_));
            co_return;
        }
        if (std::exchange(heartbeat_out_, true))
            continue;
        verbs::send_request beat;
        beat.opcode = verbs::opcode::write_with_immediate;
        beat.immediate = make_immediate(immediate_type::heartbeat);
        connections_.front()->post({&beat, 1});
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
    for (const auto& c : connections_) {
        session_.forget(*c);
        c->end(why_ == path_end::closed || why_ == path_end::stopped);
    }
    // Requests under way run to their end, but for those that wait for their turn at a filter: nobody hears their answer, and who sends
    // them again would wait for theirs first. Only then the memory goes that they and the device use.
    tasks_.request_stop();
    requests_.request_stop();
    co_await tasks_.join();
    co_await requests_.join();
    for (const auto& c : connections_)
        co_await c->ended();
    server_stats& stats = shared().stats;
    stats.ends[std::size_t(why_)].add();
    const bool quiet = why_ == path_end::closed || why_ == path_end::stopped;
    log_limited(stats.ends_logged, quiet ? log_level::info : log_level::warning, "rtrs", "path ended",
                {{"session", session_.name()},
                 {"peer", peer_},
                 {"reason", to_string(why_)},
                 {"cause", cause_.code() ? cause_.message() : std::string()}});
    connections_.clear();
    if (domain_)
        co_await domain_->revoke(grants_);
}

} // namespace verbena::rtrs
