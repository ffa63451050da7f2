// SPDX-License-Identifier: Apache-2.0
// The listening server: which connection is taken, for which session and path.
#include <verbena/protocols/rtrs/server.hpp>

#include "home_server.hpp"
#include "path_part.hpp"
#include "server_connection.hpp"
#include "server_group.hpp"
#include "server_path.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <cerrno>

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

namespace {

constexpr auto pause_after_exception = std::chrono::milliseconds(100);
// Connections that wait for the home of their session, or for their rejection, while the next one is taken.
constexpr std::size_t most_arrivals = 64;

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

// Of these whoever refused it has told, as far as there is a limit or a rule to change.
bool is_told(refusal r) noexcept
{
    return r == refusal::full || r == refusal::unfinished || r == refusal::not_admitted ||
           r == refusal::share || r == refusal::no_memory;
}

// Its name comes with the INFO_REQ.
constexpr std::string_view unnamed = "unnamed";

} // namespace

struct server::impl final : exception_handler, home_server {
    impl(reactor& shard, buffer_pool& buffers, rtrs::service& s, server_group& group, const server_options& o,
         server_stats& stats)
        : members(*group.impl_),
          own(members.find(shard)),
          shared{own != nullptr ? own->at : nullptr, shard, buffers, s, group, o, stats,
                 request_layout(o.queue_depth),      {},    {},      {}}
    {
        if (own != nullptr)
            own->server = this;
    }
    ~impl()
    {
        if (own != nullptr)
            own->server = nullptr;
    }
    server_group::impl& members;
    server_group::impl::member* const own; // nullptr: the group spreads no sessions
    server_shared shared;

    task<void> take_next(verbs::context& d, std::unique_ptr<verbs::connect_request> request, scope& paths);
    const server_group::impl::member& home_of(const connect_request& m) const noexcept;
    std::uint16_t admit(const std::string& peer, connection_charges& charges) const;
    std::uint16_t take(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                       const connect_request& m, scope& paths);
    joined join(const connect_request& m, const std::string& peer, const verbs::device& device) override;
    task<std::uint16_t> take_of_elsewhere(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                                          const connect_request& m, scope& paths);
    path_part& part_of(path_pin& pin, verbs::context& d, scope& paths);
    task<void> run_part(std::uint64_t number, task<void> running);
    std::uint16_t take_or_fail(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                               const connect_request& m, scope& paths) noexcept;
    server_path* begin_path(server_session& s, verbs::context& d, const connect_request& m, std::string peer,
                            peer_charge half_made, scope& paths);
    task<void> run_path(server_session& s, server_path& p);
    std::uint16_t charge_queues(const std::string& peer, std::uint16_t connections,
                                connection_charges& charges) const noexcept;
    bool may_have_chunks(const std::string& peer, std::uint16_t connections,
                         const connection_charges& charges) const;
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

std::vector<session_report> server::sessions_behind(const std::optional<uuid>& id, std::size_t most) const
{
    const auto& sessions = impl_->shared.sessions;
    std::vector<session_report> all;
    auto at = id ? sessions.upper_bound(*id) : sessions.begin();
    for (; all.size() < most && at != sessions.end(); ++at) {
        session_report& one = all.emplace_back();
        one.id = at->first;
        one.name = at->second->name();
        for (const auto& [name, path] : at->second->paths())
            one.paths.push_back({path->peer(), path->expected_connections(), path->state_name()});
    }
    return all;
}

bool server::end_session(const uuid& id)
{
    const auto found = impl_->shared.sessions.find(id);
    if (found == impl_->shared.sessions.end())
        return false;
    for (const auto& [name, path] : found->second->paths())
        path->close(path_end::refused);
    return true;
}

// Its session's. Of a group that spreads sessions.
const server_group::impl::member& server::impl::home_of(const connect_request& m) const noexcept
{
    return members.members[members.home_of(m.session, members.members.size())];
}

// An errno, or 0. Nothing is made before the peer is charged and admitted, for each connection of each path.
std::uint16_t server::impl::admit(const std::string& peer, connection_charges& charges) const
{
    if (shared.peers().evicted().has(peer, shared.shard.clock().now())) {
        tell_refusal(refused::connection_evicted, {.peer = peer, .object = "rtrs"});
        return EDQUOT;
    }
    charges.place =
        shared.peers().charge(peer, peer_use::rtrs_connections, 1, shared.options.max_peer_connections);
    if (!charges.place) {
        tell_refusal(refused::session_connections,
                     {.peer = peer, .object = unnamed, .most = shared.options.max_peer_connections});
        return EDQUOT;
    }
    if (shared.service.admits(peer))
        return 0;
    tell_refusal(refused::session_address, {.peer = peer, .object = unnamed});
    return EACCES;
}

// An errno, or 0: the connection has its place.
std::uint16_t server::impl::take(verbs::context& d, std::unique_ptr<verbs::connect_request>& request,
                                 const connect_request& m, scope& paths)
{
    const server_options& o = shared.options;
    connection_charges charges;
    const std::string peer(request->peer_address());
    if (const std::uint16_t refused = admit(peer, charges); refused != 0)
        return refused;
    if (server_path* const p = find(m.session, m.path); p != nullptr) {
        std::uint16_t refused = p->refuses(d.device(), m);
        if (refused == 0)
            refused = charge_queues(peer, m.connections, charges);
        if (refused == 0)
            p->add(std::move(request), m, std::move(charges));
        return refused;
    }
    auto at = shared.sessions.find(m.session);
    if (m.connection != 0 || m.connections > o.max_connections)
        return EINVAL;
    peer_charge half_made = charges.place.also(peer_use::rtrs_half_made, 1, o.max_unfinished);
    if (!half_made) {
        tell_refusal(refused::session_half_made, {.peer = peer, .object = unnamed, .most = o.max_unfinished});
        return EAGAIN;
    }
    if (const std::uint16_t refused = charge_queues(peer, m.connections, charges); refused != 0)
        return refused;
    if (at == shared.sessions.end()) {
        if (!m.first)
            return ENXIO; // the session that this path belongs to is gone
        peer_charge session = charges.place.also(peer_use::rtrs_sessions, 1, o.max_peer_sessions);
        if (!session) {
            tell_refusal(refused::session_share,
                         {.peer = peer, .object = unnamed, .most = o.max_peer_sessions});
            return EDQUOT;
        }
        if (!may_have_chunks(peer, m.connections, charges))
            return EDQUOT;
        auto made = std::make_unique<server_session>(shared, m.session, std::move(session));
        if (!made->take_place()) {
            tell_refusal(refused::session_all, {.peer = peer, .object = unnamed, .most = o.max_sessions});
            return ENOSPC;
        }
        at = shared.sessions.emplace(m.session, std::move(made)).first;
    } else if (at->second->paths().size() >= o.max_paths) {
        tell_refusal(refused::session_all, {.peer = peer,
                                            .object = unnamed,
                                            .limit = "paths of a session",
                                            .cure = "connect the session by fewer paths",
                                            .most = o.max_paths});
        return ENOSPC;
    }
    server_session& s = *at->second;
    server_path* p = nullptr;
    try {
        p = begin_path(s, d, m, peer, std::move(half_made), paths);
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
std::uint16_t server::impl::charge_queues(const std::string& peer, std::uint16_t connections,
                                          connection_charges& charges) const noexcept
{
    const std::size_t bytes = memory_of_queues(shared.options);
    charges.memory = charges.place.also(peer_use::memory, bytes, shared.most_memory(connections, 2));
    if (!charges.memory) {
        tell_refusal(refused::session_peer_memory, {.peer = peer, .object = unnamed});
        return EDQUOT;
    }
    charges.budget = budget_part(shared.buffers.budget(), bytes);
    if (charges.budget)
        return 0;
    tell_refusal(refused::session_memory, {.peer = peer, .object = unnamed});
    return ENOBUFS;
}

// Its chunks are charged behind the INFO_REQ, for which the protocol has no refusal: whoever could not have them hears of it here,
// where there is one. A session that ends gives back its own, and may be the one whose name this one will ask for; then it is let in.
bool server::impl::may_have_chunks(const std::string& peer, std::uint16_t connections,
                                   const connection_charges& charges) const
{
    const server_options& o = shared.options;
    const peer_charge chunks = charges.place.also(
        peer_use::memory, std::uint64_t(o.queue_depth) * o.chunk_size, shared.most_memory(connections, 2));
    if (chunks || members.has_ending_session())
        return true;
    tell_refusal(refused::session_peer_memory, {.peer = peer, .object = unnamed});
    return false;
}

// Its task begins before it has a connection, so that whatever happens then the path comes to an end. Nothing: it has ended.
server_path* server::impl::begin_path(server_session& s, verbs::context& d, const connect_request& m,
                                      std::string peer, peer_charge half_made, scope& paths)
{
    const uuid session = s.id();
    const std::uint64_t number = members.last_path.fetch_add(1, std::memory_order_relaxed) + 1;
    auto made = std::make_unique<server_path>(s, d, m, std::move(peer), std::move(half_made), number);
    server_path& p = *s.paths().emplace(m.path, std::move(made)).first->second;
    s.paths_changed();
    p.home().belongs_to(paths);
    paths.spawn(already_made, run_path(s, p));
    return find(session, m.path);
}

joined server::impl::join(const connect_request& m, const std::string& peer, const verbs::device& device)
{
    connection_charges charges;
    if (const std::uint16_t refused = admit(peer, charges); refused != 0)
        return joined(refused);
    server_path* const p = find(m.session, m.path);
    if (p == nullptr)
        return joined(m.connection == 0 ? EINVAL : ENXIO);
    if (const std::uint16_t refused = p->refuses(device, m); refused != 0)
        return joined(refused);
    if (!device.query().domains_across_shards)
        return joined(EINVAL);
    if (!p->is_prepared()) {
        p->close(path_end::bad_message,
                 error(std::errc::bad_message, "a connection before the first one was accepted"));
        return joined(EINVAL);
    }
    if (const std::uint16_t refused = charge_queues(peer, m.connections, charges); refused != 0)
        return joined(refused);
    return joined(p->add_elsewhere(), std::move(charges));
}

// A connection of a session whose home is another shard: that gives it its place, and it is served here.
task<std::uint16_t> server::impl::take_of_elsewhere(verbs::context& d,
                                                    std::unique_ptr<verbs::connect_request>& request,
                                                    const connect_request& m, scope& paths)
{
    const server_group::impl::member& home = home_of(m);
    const std::string peer(request->peer_address());
    const auto ask = [&home, &m, &peer, &d] {
        if (home.server == nullptr)
            return joined(ECONNRESET);
        return home.server->join(m, peer, d.device());
    };
    joined place = co_await home.at->run(ask);
    if (place.refused != 0)
        co_return place.refused;
    path_pin& pin = *place.hold.operator->();
    path_part& part = part_of(pin, d, paths);
    if (part.closing())
        co_return ECONNRESET;
    part.add(std::move(request), m.connection, std::move(place.charges));
    pin.failed = false;
    co_return 0;
}

// What the path has on this shard, made now if it has to be.
path_part& server::impl::part_of(path_pin& pin, verbs::context& d, scope& paths)
{
    const std::uint64_t number = pin.path.number();
    const auto [at, is_new] = shared.parts.try_emplace(number);
    if (!is_new)
        return *at->second;
    try {
        at->second = std::make_unique<path_part>(pin.path, shared, d);
        at->second->belongs_to(paths);
        // Both frames are made here: a part without a runner would keep its path from ending.
        paths.spawn(already_made, run_part(number, at->second->run()));
    } catch (...) {
        shared.parts.erase(at);
        throw;
    }
    pin.made = at->second.get();
    return *at->second;
}

task<void> server::impl::run_part(std::uint64_t number, task<void> running)
{
    co_await running;
    shared.parts.erase(number);
    shared.path_over.set();
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
    if (message && own != nullptr && &home_of(*message) != own) {
        try {
            refused = co_await take_of_elsewhere(d, request, *message, paths);
        } catch (const shard_stopped&) {
            refused = ECONNRESET;
        } catch (...) {
            on_exception(std::current_exception());
            refused = ENOMEM;
        }
    } else if (message) {
        refused = take_or_fail(d, request, *message, paths);
    }
    if (refused == 0)
        co_return;
    server_stats& stats = shared.stats;
    stats.refused[std::size_t(refusal_of(refused))].add();
    if (!request)
        co_return; // it went with the exception, and is rejected
    if (!is_told(refusal_of(refused)))
        log_limited(stats.refusals_logged, log_level::info, "rtrs", "connection refused",
                    {{"peer", request->peer_name()},
                     {"reason", to_string(refusal_of(refused))},
                     {"errno", std::uint64_t(refused)},
                     {"cause", message ? std::string() : message.error().message()}});
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
    scope arrivals(impl_->shared.shard, nullptr, impl_.get(), "connections of RTRS");
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
            if (!is_open)
                break;
            // A home that is slow to answer holds up those alone that come to it.
            task<void> taking = impl_->take_next(d, std::move(*request), paths);
            if (arrivals.live() < most_arrivals)
                arrivals.spawn(already_made, std::move(taking));
            else
                co_await taking;
        } catch (...) {
            impl_->on_exception(std::current_exception());
            thrown = true;
        }
    }
    co_await arrivals.join();
    for (const auto& session : impl_->shared.sessions) {
        for (const auto& path : session.second->paths()) {
            if (path.second->home().is_of(paths))
                path.second->drain();
        }
    }
    for (const auto& part : impl_->shared.parts) {
        if (part.second->is_of(paths))
            part.second->ask_to_drain();
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
