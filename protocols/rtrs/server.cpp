// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/server.hpp>

#include "server_session.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

namespace verbena::rtrs {

std::string_view to_string(refusal r) noexcept
{
    switch (r) {
    case refusal::not_valid: return "not_valid";
    case refusal::no_session: return "no_session";
    case refusal::full: return "full";
    case refusal::ending: return "ending";
    case refusal::unfinished: return "unfinished";
    case refusal::not_admitted: return "not_admitted";
    case refusal::share: return "share";
    case refusal::failed: return "failed";
    case refusal::no_memory: return "no_memory";
    case refusal::count_: break;
    }
    return "";
}

result<void> check(const server_options& o) noexcept
{
    if (o.queue_depth < 2)
        return error(std::errc::invalid_argument, "a session's queue depth is 2 to 65535");
    if (o.chunk_size < min_chunk_size || !std::has_single_bit(o.chunk_size) ||
        o.chunk_size > buffer_pool::max_size)
        return error(std::errc::invalid_argument, "a chunk's size is a power of two from 8 KiB to 16 MiB",
                     o.chunk_size);
    if (o.header_size < 512 || o.header_size >= o.chunk_size || o.header_size % 512 != 0)
        return error(std::errc::invalid_argument,
                     "headers take a multiple of 512 bytes and less than a chunk", o.header_size);
    if (!request_layout(o.queue_depth).fits(o.chunk_size))
        return error(std::errc::invalid_argument, "queue depth, as the next power of two, times chunk size "
                                                  "is at most 256 MiB, as an immediate has 28 bits for both: "
                                                  "make either smaller");
    if (o.max_unfinished == 0 || o.max_peer_sessions == 0 || o.max_peer_connections == 0)
        return error(std::errc::invalid_argument,
                     "a peer that may have no half-made path, session or connection can't make one");
    return {};
}

namespace {

// Of a session's chunks: as few pieces as the buffers allow, all of the same size, since a client takes nothing else.
struct pieces {
    explicit pieces(const server_options& o) noexcept
    {
        const std::size_t chunk_size = o.chunk_size;
        while (o.queue_depth % count != 0 || o.queue_depth / count * chunk_size > buffer_pool::max_size)
            ++count;
        bytes = o.queue_depth / count * chunk_size;
    }
    std::uint32_t count = 1;
    std::size_t bytes = 0; // of each
};

// Of connection 0: one or the other.
std::size_t size_of_messages(const server_options& o) noexcept
{
    return std::max(info_request_size, info_response_size(o.queue_depth));
}

std::size_t size_of_path(const server_options& o) noexcept
{
    return size_of_messages(o) + (o.always_invalidate ? o.queue_depth * new_key_size : 0);
}

} // namespace

session_memory memory_of_sessions(const server_options& o, const memory_budget& budget,
                                  std::size_t pools) noexcept
{
    const pieces chunks(o);
    const std::size_t piece = std::bit_ceil(std::max(chunks.bytes, buffer_pool::min_size));
    const std::size_t path = std::bit_ceil(std::max(size_of_path(o), buffer_pool::min_size));
    const std::size_t slab = budget.slab_size();
    session_memory m;
    m.each = chunks.count * piece + path + 2 * memory_of_queues(o);
    // Each shard may have a slab of either kind that serves for more than it is used for.
    m.beside = slab - std::min(slab, piece) + slab - std::min(slab, path);
    m.shards = pools;
    // Other shards keep what their last sessions have left, and nobody can ask for it.
    const std::size_t kept =
        std::max(piece, slab) > budget.max_kept() ? std::min(slab, budget.max_kept()) : budget.max_kept();
    m.kept = (pools - 1) * kept;
    return m;
}

// --- session ---------------------------------------------------------------------------------------

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

void server_session::chunk_free(std::uint32_t number)
{
    server_chunk& chunk = chunks_[number];
    chunk.busy = nullptr;
    if (chunk.waiting.empty())
        return;
    const server_chunk::copy next = chunk.waiting.front();
    chunk.waiting.erase(chunk.waiting.begin());
    next.from->start(number, next.header, next.data_size);
}

void server_session::forget(const server_connection& from) noexcept
{
    for (server_chunk& chunk : chunks_)
        std::erase_if(chunk.waiting, [&](const server_chunk::copy& w) { return w.from == &from; });
}

namespace {

// Of memory that is cleared in one turn of the shard: some 50 us.
constexpr std::size_t cleared_at_once = std::size_t(256) << 10;

} // namespace

// Pages that hold zeros are not written: those that nobody has used yet take no memory of the host until they are.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept
{
    static constexpr std::array<std::byte, 4096> zeros{};
    for (std::size_t done = 0; !memory.empty() && done < cleared_at_once; done += zeros.size()) {
        const std::size_t size = std::min(memory.size(), zeros.size());
        if (std::memcmp(memory.data(), zeros.data(), size) != 0)
            std::memset(memory.data(), 0, size);
        memory = memory.subspan(size);
    }
    return memory;
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
    const pieces wanted(shared_.options);
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
    chunks_.resize(depth);
    const std::uint32_t each = depth / wanted.count;
    for (std::uint32_t i = 0; i < depth; ++i) {
        chunks_[i].memory = memory_[i / each].bytes().subspan(i % each * chunk_size, chunk_size);
        chunks_[i].waiting.reserve(shared_.options.max_paths);
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
    auto opened = shared_.service.open(info);
    if (!opened)
        co_return opened.error();
    // A session of this name whose paths have ended may still have requests under way, which would write over what this one writes.
    std::string wanted = asked_name_;
    auto claimed = co_await shared_.group.claim(shared_.shard, std::move(wanted));
    if (!claimed)
        co_return claimed.error();
    name_ = std::move(*claimed);
    paths_changed();
    const server_options& o = shared_.options;
    const std::size_t chunks = std::size_t(o.queue_depth) * o.chunk_size;
    // Paths may have come at once, as after a restart: the queues of all of them are charged by now.
    const auto paths = unsigned(std::max<std::size_t>(2, paths_.size()));
    memory_charged_ = charged_.also(peer_use::memory, chunks, shared_.most_memory(connections, paths));
    if (!memory_charged_)
        co_return error(
            std::errc::not_enough_memory,
            "this peer's sessions hold as much memory as those of a peer may: end one of them, or "
            "raise [daemon] peer_memory_mib",
            chunks);
    auto allocated = co_await allocate();
    if (!allocated)
        co_return allocated.error();
    handler_ = std::move(*opened);
    co_return result<void>();
}

// --- path ------------------------------------------------------------------------------------------

server_path::server_path(server_session& session, verbs::context& device, const connect_request& first,
                         std::string peer, peer_charge half_made)
    : session_(session),
      device_(device),
      id_(first.path),
      expected_(first.connections),
      peer_(std::move(peer)),
      half_made_(std::move(half_made)),
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
    if (state_ != state::connecting)
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
    if (state_ == state::closing)
        return;
    state_ = state::closing;
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
    state_ = state::draining;
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
    if (informing_ || connected()) {
        close(path_end::bad_message, error(std::errc::bad_message, "a Send behind the INFO_REQ"));
        return;
    }
    informing_ = true;
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
        const verbs::remote_segment at = g->where();
        chunks.push_back({at.address, at.key, at.length});
    }
    const std::size_t size = info_response_size(chunks.size());
    encode_info_response(service_memory_.bytes(), chunks);
    const verbs::segment message{service_memory_.data(), static_cast<std::uint32_t>(size), 0};
    verbs::send_request send;
    send.segments = {&message, 1};
    counters_ = &shared().stats.by_path.join(session_.name(), peer_);
    // Before it goes out: requests may follow it at once.
    state_ = state::connected;
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

// --- server ----------------------------------------------------------------------------------------

namespace {

constexpr auto pause_after_exception = std::chrono::milliseconds(100);

refusal refusal_of(std::uint16_t code) noexcept
{
    switch (code) {
    case ENXIO: return refusal::no_session;
    case ENOSPC: return refusal::full;
    case ECONNRESET: return refusal::ending;
    case EAGAIN: return refusal::unfinished;
    case EACCES: return refusal::not_admitted;
    case EDQUOT: return refusal::share;
    case ENOMEM: return refusal::failed;
    case ENOBUFS: return refusal::no_memory;
    default: return refusal::not_valid;
    }
}

std::string_view cure_of(refusal r) noexcept
{
    switch (r) {
    case refusal::full: return "raise [block] sessions, or end sessions";
    case refusal::not_admitted: return "name the address in clients= of a device";
    case refusal::share:
        return "raise [block] sessions_per_peer or connections_per_peer, or [daemon] peer_memory_mib";
    case refusal::failed: return "the log says before this which exception it was";
    case refusal::no_memory: return "raise [daemon] memory_mib, or end sessions";
    default: return "";
    }
}

} // namespace

struct server::impl final : exception_handler {
    impl(reactor& shard, buffer_pool& buffers, rtrs::service& s, server_group& group, const server_options& o,
         server_stats& stats)
        : shared{shard, buffers, s, group, o, stats, request_layout(o.queue_depth), {}, {}}
    {
    }
    server_shared shared;

    task<void> take_next(verbs::context& d, std::unique_ptr<verbs::connect_request> request, scope& paths);
    std::uint16_t take(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                       const connect_request& m, scope& paths);
    std::uint16_t take_or_fail(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                               const connect_request& m, scope& paths) noexcept;
    server_path* begin_path(server_session& s, verbs::context& d, const connect_request& m, std::string peer,
                            peer_charge half_made, scope& paths);
    task<void> run_path(server_session& s, server_path& p);
    std::uint16_t charge_queues(std::uint16_t connections, connection_charges& charges) const noexcept;
    server_path* find(const uuid& session, const uuid& path) const noexcept;
    void remove(server_session& s, const uuid& path) noexcept;
    /// Of a connection that was to be taken, or of a path's last task: while it lives the path has a handler of its own.
    void on_exception(const std::exception_ptr& e) noexcept override;
};

server::server(reactor& shard, buffer_pool& buffers, service& s, server_group& group, const server_options& o,
               server_stats& stats)
    : impl_(new impl(shard, buffers, s, group, o, stats))
{
}

server::~server() = default;

// An errno, or 0: the connection has its place. Nothing is made before the peer is charged and admitted, for each connection of each path.
std::uint16_t server::impl::take(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                                 const connect_request& m, scope& paths)
{
    const server_options& o = shared.options;
    connection_charges charges;
    charges.place =
        shared.peers().charge(request->peer_address(), peer_use::rtrs_connections, 1, o.max_peer_connections);
    if (!charges.place)
        return EDQUOT;
    if (!shared.service.admits(request->peer_address()))
        return EACCES;
    if (server_path* const p = find(m.session, m.path); p != nullptr) {
        std::uint16_t refused = p->refuses(d, m);
        if (refused == 0)
            refused = charge_queues(m.connections, charges);
        if (refused == 0)
            p->add(std::move(request), m, std::move(charges));
        return refused;
    }
    auto at = shared.sessions.find(m.session);
    if (m.connection != 0 || m.connections > o.max_connections)
        return EINVAL;
    peer_charge half_made = charges.place.also(peer_use::rtrs_half_made, 1, o.max_unfinished);
    if (!half_made)
        return EAGAIN;
    if (const std::uint16_t refused = charge_queues(m.connections, charges); refused != 0)
        return refused;
    if (at == shared.sessions.end()) {
        if (!m.first)
            return ENXIO; // the session that this path belongs to is gone
        peer_charge session = charges.place.also(peer_use::rtrs_sessions, 1, o.max_peer_sessions);
        if (!session)
            return EDQUOT;
        auto made = std::make_unique<server_session>(shared, m.session, std::move(session));
        if (!made->take_place())
            return ENOSPC;
        at = shared.sessions.emplace(m.session, std::move(made)).first;
    } else if (at->second->paths().size() >= o.max_paths) {
        return ENOSPC;
    }
    server_session& s = *at->second;
    server_path* p = nullptr;
    try {
        p = begin_path(s, d, m, std::string(request->peer_address()), std::move(half_made), paths);
    } catch (...) {
        remove(s, m.path);
        throw;
    }
    if (p == nullptr)
        return ENOMEM;
    p->add(std::move(request), m, std::move(charges));
    return 0;
}

// For a connection of a path that has so many: an errno, or 0. The path may have come to take the place of one that has not
// ended yet.
std::uint16_t server::impl::charge_queues(std::uint16_t connections,
                                          connection_charges& charges) const noexcept
{
    const std::size_t bytes = memory_of_queues(shared.options);
    charges.memory = charges.place.also(peer_use::memory, bytes, shared.most_memory(connections, 2));
    if (!charges.memory)
        return EDQUOT;
    charges.budget = budget_part(shared.buffers.budget(), bytes);
    return charges.budget ? 0 : ENOBUFS;
}

// Its task begins before it has a connection, so that whatever happens then the path comes to an end. Nothing: it has ended.
server_path* server::impl::begin_path(server_session& s, verbs::context& d, const connect_request& m,
                                      std::string peer, peer_charge half_made, scope& paths)
{
    const uuid session = s.id();
    auto made = std::make_unique<server_path>(s, d, m, std::move(peer), std::move(half_made));
    server_path& p = *s.paths().emplace(m.path, std::move(made)).first->second;
    s.paths_changed();
    p.belongs_to(paths);
    paths.spawn(already_made, run_path(s, p));
    return find(session, m.path);
}

server_path* server::impl::find(const uuid& session, const uuid& path) const noexcept
{
    const auto at = shared.sessions.find(session);
    if (at == shared.sessions.end())
        return nullptr;
    const auto p = at->second->paths().find(path);
    return p == at->second->paths().end() ? nullptr : p->second.get();
}

// The last path takes the session with it.
void server::impl::remove(server_session& s, const uuid& path) noexcept
{
    s.paths().erase(path);
    if (!s.paths().empty())
        return;
    const uuid session = s.id();
    shared.sessions.erase(session);
}

task<void> server::impl::run_path(server_session& s, server_path& p)
{
    try {
        co_await p.run();
    } catch (...) {
        p.on_exception(std::current_exception());
    }
    const uuid id = p.id();
    remove(s, id);
    shared.path_over.set();
}

void server::impl::on_exception(const std::exception_ptr& e) noexcept
{
    shared.stats.exceptions.add();
    log_limited(shared.stats.exceptions_logged, log_level::error, "rtrs",
                "an exception cost a connection or a path", {{"exception", what_of(e)}});
}

std::uint16_t server::impl::take_or_fail(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                                         const connect_request& m, scope& paths) noexcept
{
    try {
        return take(d, request, m, paths);
    } catch (...) {
        on_exception(std::current_exception());
        return ENOMEM;
    }
}

task<void> server::impl::take_next(verbs::context& d, std::unique_ptr<verbs::connect_request> request,
                                   scope& paths)
{
    const auto message = decode_connect_request(request->private_data());
    std::uint16_t refused = EINVAL;
    if (message)
        refused = take_or_fail(d, request, *message, paths);
    if (refused == 0)
        co_return;
    server_stats& stats = shared.stats;
    stats.refused[std::size_t(refusal_of(refused))].add();
    if (!request)
        co_return; // it went with the exception, and is rejected
    log_limited(stats.refusals_logged, log_level::info, "rtrs", "connection refused",
                {{"peer", request->peer_name()},
                 {"reason", to_string(refusal_of(refused))},
                 {"errno", std::uint64_t(refused)},
                 {"cause", message ? std::string() : message.error().message()},
                 {"cure", cure_of(refusal_of(refused))}});
    connect_reply reply;
    reply.error = refused;
    const auto private_data = encode(reply);
    (void)co_await request->reject(private_data);
}

task<void> server::serve(verbs::context& d, verbs::listener& l)
{
    if (!d.query().write_with_immediate) {
        log(log_level::error, "rtrs", "this provider has no RDMA Write with immediate, which RTRS is made of",
            {{"provider", d.query().provider}});
        co_return;
    }
    if (impl_->shared.options.always_invalidate &&
        !(d.query().renewable_grants && d.query().send_with_immediate)) {
        log(log_level::error, "rtrs",
            "this device can't give a chunk a new key for each request: it lacks memory windows of type 1, "
            "or Send with "
            "immediate; serve without always_invalidate",
            {{"provider", d.query().provider}});
        co_return;
    }
    scope paths(impl_->shared.shard, nullptr, impl_.get(), "paths of RTRS");
    // Whatever one connection does, the next one is taken.
    for (bool is_open = true, thrown = false; is_open;) {
        try {
            if (std::exchange(thrown, false)) {
                co_await yield(); // if there is no memory to sleep either
                is_open = co_await sleep_for(pause_after_exception);
            }
            if (!is_open)
                break;
            auto request = co_await l.next();
            is_open = request.has_value();
            if (is_open)
                co_await impl_->take_next(d, std::move(*request), paths);
        } catch (...) {
            impl_->on_exception(std::current_exception());
            thrown = true;
        }
    }
    for (const auto& session : impl_->shared.sessions) {
        for (const auto& path : session.second->paths()) {
            if (path.second->is_of(paths))
                path.second->drain();
        }
    }
    while (paths.live() != 0) {
        impl_->shared.path_over.reset();
        const bool one_is = co_await impl_->shared.path_over.wait();
        if (!one_is)
            break;
    }
    paths.request_stop();
    co_await paths.join();
}

} // namespace verbena::rtrs
