// SPDX-License-Identifier: Apache-2.0
#include "path_part.hpp"

#include "server_connection.hpp"
#include "server_memory.hpp"
#include "server_path.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>

namespace verbena::rtrs {

path_part::path_part(server_path& path, server_shared& here, verbs::context& device)
    : path_(path),
      here_(here),
      at_home_(&here == &path.shared()),
      device_(device),
      tasks_(here.shard, nullptr, this),
      requests_(here.shard, nullptr, this)
{
}

path_part::~path_part()
{
    if (counters_ != nullptr)
        here_.stats.by_path.leave(*counters_);
}

server_session& path_part::session() const noexcept { return path_.session(); }
verbs::protection_domain& path_part::domain() const noexcept { return path_.domain(); }
const lease& path_part::service_memory() const noexcept { return path_.service_memory(); }
verbs::grant& path_part::grant_of(std::uint32_t chunk) noexcept { return path_.grant_of(chunk); }
bool path_part::take_key(std::uint32_t chunk) noexcept { return path_.take_key(chunk); }
void path_part::begin_new_key(std::uint32_t chunk) noexcept { path_.begin_new_key(chunk); }
void path_part::give_key(std::uint32_t chunk) noexcept { path_.give_key(chunk); }
std::span<std::byte> path_part::key_message(std::uint32_t chunk) const noexcept
{
    return path_.key_message(chunk);
}

// --- connections ---

void path_part::add(std::unique_ptr<verbs::connect_request> request, std::uint16_t number,
                    connection_charges charged)
{
    try {
        connections_.push_back(std::make_unique<server_connection>(*this, number, std::move(charged)));
        tasks_.spawn(&path_part::take, this, std::move(request), std::ref(*connections_.back()));
    } catch (...) {
        on_exception(std::current_exception()); // the path has a connection that nobody sets up
    }
}

task<void> path_part::take(std::unique_ptr<verbs::connect_request> request, server_connection& c)
{
    const bool is_first = c.number() == 0;
    if (is_first) {
        const auto ready = co_await path_.prepare();
        if (!ready) {
            close(path_end::no_memory, ready.error());
            co_return;
        }
    }
    if (closing() || !path_.is_prepared()) {
        close(path_end::bad_message,
              error(std::errc::bad_message, "a connection before the first one was accepted"));
        co_return;
    }
    const std::uint32_t receives = is_first ? service_queue_depth : here_.options.queue_depth;
    const bool accepted = co_await c.accept(std::move(request), receives);
    if (!accepted) {
        close(path_end::lost, error(std::errc::connection_aborted, "a connection could not be set up"));
        co_return;
    }
    accepted_.fetch_add(1, std::memory_order_release);
    if (at_home())
        path_.look_at_accepted();
    else if (!accepted_told_.exchange(true))
        send_home(accepted_note_);
}

void path_part::on_exception(const std::exception_ptr& e) noexcept
{
    here_.stats.exceptions.add();
    log_limited(here_.stats.exceptions_logged, log_level::error, "rtrs", "an exception ended a path",
                {{"peer", path_.peer()}, {"exception", what_of(e)}});
    close(path_end::lost, error_of(e, "an exception left a task of the path"));
}

void path_part::heartbeat_answered() noexcept
{
    if (at_home())
        path_.heartbeat_answered();
}

// Connection 0 alone takes it, which stands at home.
void path_part::start_information(std::uint32_t length) { path_.start_information(length); }

void path_part::request_over() noexcept
{
    if (!draining() || requests_.live() != 1 || std::exchange(drained_, true))
        return;
    if (at_home())
        path_.part_drained();
    else
        send_home(drained_note_);
}

// --- stages ---

void path_part::be_connected()
{
    counters_ = &here_.stats.by_path.join(session().name(), path_.peer());
    stage_ = stage::connected;
}

void path_part::drain() noexcept
{
    if (stage_ != stage::connected)
        return;
    stage_ = stage::draining;
    if (requests_.live() != 0 || std::exchange(drained_, true))
        return;
    if (at_home())
        path_.part_drained();
    else
        send_home(drained_note_);
}

void path_part::close(path_end why, const error& cause) noexcept
{
    if (closing())
        return;
    if (at_home()) {
        path_.close(why, cause);
        return;
    }
    stage_ = stage::closing;
    why_ = why;
    cause_ = cause;
    send_home(close_note_);
}

void path_part::ask_to_drain() noexcept
{
    if (at_home())
        path_.drain();
    else if (!closing() && !std::exchange(asked_to_drain_, true))
        send_home(drain_note_);
}

void path_part::begin_end(bool orderly) noexcept
{
    for (const auto& c : connections_) {
        // Before that no request has come, and its session may be making the chunks.
        if (counters_ != nullptr)
            session().forget(*c);
        c->end(orderly);
    }
    // Requests under way run to their end, but for those that wait for their turn at a filter: nobody hears their answer, and who sends
    // them again would wait for theirs first.
    tasks_.request_stop();
    requests_.request_stop();
}

// Nothing is allocated before home has been told, as home waits for that.
task<void> path_part::run()
{
    const bool told = co_await closed_.wait();
    if (!told) {
        close(path_end::stopped);
        co_await closed_.wait_shielded();
    }
    stage_ = stage::closing;
    const path_end why = path_.why();
    begin_end(why == path_end::closed || why == path_end::stopped);
    co_await tasks_.join();
    while (copies_come()) {
        copy_came_.reset();
        co_await copy_came_.wait_shielded();
    }
    co_await requests_.join();
    try {
        for (const auto& c : connections_)
            co_await c->ended();
    } catch (...) {
        here_.stats.exceptions.add(); // their queue pairs end at once, then
    }
    connections_.clear();
    send_home(ended_note_);
    co_await gone_.wait_shielded();
}

// --- messages ---

void path_part::send_home(part_note& note) noexcept { path_.shared().shard.post_remote(note); }
void path_part::tell_connected() noexcept { here_.shard.post_remote(connected_); }
void path_part::tell_to_drain() noexcept { here_.shard.post_remote(drains_); }
void path_part::tell_closed() noexcept { here_.shard.post_remote(closed_note_); }
void path_part::tell_gone() noexcept { here_.shard.post_remote(gone_note_); }

void path_part::path_connected() noexcept
{
    if (closing())
        return;
    try {
        be_connected();
    } catch (...) {
        on_exception(std::current_exception());
        return;
    }
    send_home(connected_note_);
}

void path_part::path_drains() noexcept { drain(); }

void path_part::path_closed() noexcept
{
    stage_ = stage::closing;
    closed_.set();
}

void path_part::path_gone() noexcept { gone_.set(); }

void path_part::says_accepted() noexcept
{
    accepted_told_.exchange(false);
    path_.look_at_accepted();
}

void path_part::says_connected() noexcept { path_.part_connected(); }
void path_part::says_drain() noexcept { path_.drain(); }
void path_part::says_drained() noexcept { path_.part_drained(); }
void path_part::says_close() noexcept { path_.close(why_, cause_); }
void path_part::says_ended() noexcept { path_.part_ended(); }

} // namespace verbena::rtrs
