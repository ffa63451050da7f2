// SPDX-License-Identifier: Apache-2.0
#include "server_session.hpp"

#include "server_connection.hpp"
#include "server_memory.hpp"
#include "server_path.hpp"
#include "server_shared.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <utility>

namespace verbena::rtrs {

server_session::server_session(server_shared& shared, const uuid& id, peer_charge charged)
    : shared_(shared), id_(id), charged_(std::move(charged))
{
    shared_.stats.sessions.add(1);
}

server_session::~server_session()
{
    shared_.stats.sessions.add(-1);
    if (placed_)
        shared_.group.remove_session();
}

bool server_session::take_place() noexcept
{
    placed_ = shared_.group.add_session(shared_.options.max_sessions);
    return placed_;
}

void server_session::paths_changed() noexcept
{
    name_.set_live(std::ranges::any_of(paths_, [](const auto& p) { return !p.second->closing(); }));
}

namespace {

constexpr std::uint64_t others_wait = 1;

std::uint64_t busy_with(const path_part& p) noexcept { return p.whole().number() << 1; }

} // namespace

chunk_turn server_session::take_chunk(std::uint32_t number, server_connection& by, const io_header& header,
                                      std::uint32_t data_size)
{
    server_chunk& chunk = chunks_[number];
    const std::uint64_t ours = busy_with(by.path());
    std::uint64_t found = 0;
    if (chunk.busy.compare_exchange_strong(found, ours, std::memory_order_acquire))
        return chunk_turn::now;
    auto copy = std::make_unique<waiting_copy>(by, number, header, data_size);
    const std::scoped_lock lock(copies_);
    chunk.waiting.reserve(chunk.waiting.size() + 1);
    // The chunk may have gone from hand to hand meanwhile. From here on whoever has others waiting keeps it.
    found = chunk.busy.load(std::memory_order_acquire);
    // Whoever leaves the chunk behind this comes to the lock first.
    while (found == 0 || (found & others_wait) == 0) {
        const std::uint64_t wanted = found == 0 ? ours : found | others_wait;
        if (chunk.busy.compare_exchange_weak(found, wanted, std::memory_order_acquire)) {
            if (found == 0)
                return chunk_turn::now;
            break;
        }
    }
    const auto is_ours = [&](const auto& w) { return &w->from.path().whole() == &by.path().whole(); };
    if ((found & ~others_wait) == ours || std::ranges::any_of(chunk.waiting, is_ours))
        return chunk_turn::never;
    chunk.waiting.push_back(std::move(copy));
    return chunk_turn::later;
}

bool server_session::leave_chunk(std::uint32_t number, const path_part& path) noexcept
{
    std::uint64_t expected = busy_with(path);
    return chunks_[number].busy.compare_exchange_strong(expected, 0, std::memory_order_release,
                                                        std::memory_order_relaxed);
}

void server_session::next_copy(std::uint32_t number) noexcept
{
    server_chunk& chunk = chunks_[number];
    std::unique_ptr<waiting_copy> next;
    {
        const std::scoped_lock lock(copies_);
        if (chunk.waiting.empty()) { // it was forgotten
            chunk.busy.store(0, std::memory_order_release);
            return;
        }
        next = std::move(chunk.waiting.front());
        chunk.waiting.erase(chunk.waiting.begin());
        chunk.busy.store(busy_with(next->from.path()) | (chunk.waiting.empty() ? 0 : others_wait),
                         std::memory_order_release);
        next->from.path()
            .copy_comes(); // under the lock: its path forgets what waits, and then waits for what comes
    }
    waiting_copy::start(std::move(next));
}

void server_session::forget(const server_connection& from) noexcept
{
    const std::scoped_lock lock(copies_);
    for (server_chunk& chunk : chunks())
        std::erase_if(chunk.waiting, [&](const auto& w) { return &w->from == &from; });
}

namespace {

// `memory` holds what other sessions and calls left there. A client could read it, or have it written to a device.
task<result<void>> clear(std::span<std::byte> memory)
{
    const task_context& context = co_await current_context();
    while (!memory.empty()) {
        if (context.stop.stop_requested())
            co_return error(std::errc::operation_canceled, "the path has ended");
        memory = clear_some(memory);
        co_await yield();
    }
    co_return result<void>();
}

} // namespace

task<result<void>> server_session::allocate()
{
    const std::uint32_t depth = shared_.options.queue_depth;
    const std::size_t chunk_size = shared_.options.chunk_size;
    const chunk_pieces wanted(shared_.options);
    bytes_of_piece_ = wanted.bytes;
    std::vector<lease> memory;
    memory.reserve(wanted.count);
    for (std::uint32_t i = 0; i < wanted.count; ++i) {
        lease piece = co_await shared_.buffers.acquire(bytes_of_piece_, buffer_pool::call_patience);
        if (!piece)
            co_return error(std::errc::not_enough_memory,
                            "the memory budget has no room for a session's chunks", depth * chunk_size);
        const auto cleared = co_await clear(piece.bytes().first(bytes_of_piece_));
        if (!cleared)
            co_return cleared.error();
        memory.push_back(std::move(piece));
    }
    memory_ = std::move(memory);
    chunks_ = std::make_unique<server_chunk[]>(depth);
    chunk_count_ = depth;
    const std::uint32_t each = depth / wanted.count;
    for (std::uint32_t i = 0; i < depth; ++i) {
        chunks_[i].memory = memory_[i / each].bytes().subspan(i % each * chunk_size, chunk_size);
    }
    co_return result<void>();
}

task<result<void>> server_session::begin(std::string name, std::string_view peer_address,
                                         std::uint16_t connections)
{
    while (beginning_) {
        const bool over = co_await begun_.wait();
        if (!over)
            co_return error(std::errc::operation_canceled, "the path has ended");
    }
    if (begun()) {
        if (name != name_.text())
            co_return error(std::errc::permission_denied,
                            "another name than that of the session's other paths");
        co_return result<void>();
    }
    beginning_ = true;
    begun_.reset();
    const auto done = co_await claim(std::move(name), peer_address, connections);
    if (!done) {
        memory_charged_.give_back(); // first: whoever waits for the name is charged when it has it
        name_ = session_name();
    }
    beginning_ = false;
    begun_.set();
    co_return done;
}

// Who is not admitted claims no name: its owner would wait meanwhile. Memory comes last: an old session of this name gives back its own.
task<result<void>> server_session::claim(std::string name, std::string_view peer_address,
                                         std::uint16_t connections)
{
    asked_name_ = std::move(name);
    peer_address_ = peer_address;
    session_info info;
    info.name = asked_name_;
    info.peer_address = peer_address_;
    info.max_io_size = shared_.max_io_size();
    info.home = shared_.home;
    auto opened = shared_.service.open(info);
    if (!opened)
        co_return opened.error();
    // A session of this name whose paths have ended may still have requests under way, which would write over what this one writes.
    std::string wanted = asked_name_;
    auto claimed = co_await shared_.group.claim(shared_.shard, std::move(wanted));
    if (!claimed) {
        if (claimed.error() == std::errc::file_exists)
            tell_refusal(refused::session_name, {.peer = peer_address_, .object = asked_name_});
        co_return claimed.error();
    }
    name_ = std::move(*claimed);
    paths_changed();
    const server_options& o = shared_.options;
    const std::size_t chunks = std::size_t(o.queue_depth) * o.chunk_size;
    // Paths may have come at once, as after a restart: the queues of all of them are charged by now.
    const auto paths = unsigned(std::max<std::size_t>(2, paths_.size()));
    memory_charged_ = charged_.also(peer_use::memory, chunks, shared_.most_memory(connections, paths));
    if (!memory_charged_) {
        tell_refusal(refused::session_peer_memory, {.peer = peer_address_, .object = asked_name_});
        co_return error(
            std::errc::not_enough_memory,
            "this peer's sessions hold as much memory as those of a peer may: end one of them, make [block] "
            "queue_depth smaller, or raise [daemon] peer_memory_mib",
            chunks);
    }
    auto allocated = co_await allocate();
    if (!allocated) {
        if (allocated.error() == std::errc::not_enough_memory)
            tell_refusal(refused::session_memory, {.peer = peer_address_, .object = asked_name_});
        co_return allocated.error();
    }
    handler_ = std::move(*opened);
    co_return result<void>();
}

} // namespace verbena::rtrs
